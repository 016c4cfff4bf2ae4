"""One table of every variant, run through the same properties: a new variant is one row.

Values are checked where each function has its tests; here are the properties that all share.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer import functional as F

B, T, S, N, K, H, Hv, D, FW, V = 2, 3, 5, 4, 2, 6, 3, 8, 7, 9
HEADS = ((B, T, N, H), (B, S, K, H), (B, S, K, Hv))
DENSE = ((B, T, D), (D, FW), (FW, D), (FW,), (D,))
GATED = ((B, T, D), (D, FW), (D, FW), (FW, D))
TOKENS = np.array([[0, 8, 2], [2, 2, 5]], np.int32)
POSITIONS = np.array([[0, 1, 2], [7, 70_000, 131_072]], np.int32)
VALID = np.array([[True, True, False, True, True], [True, True, False, False, False]])


class Row(NamedTuple):
    """One variant.

    Attributes:
        function: Floating-point arrays in, one array out.
        shapes: Of its arguments.
        batched: How many leading arguments have the batch as their first axis.
        keeps_dtype: Whether the output has the dtype of the input.
    """

    function: Callable
    shapes: tuple
    batched: int = 1
    keeps_dtype: bool = True


def attention(**options):
    return Row(functools.partial(F.dot_product_attention, **options), HEADS, batched=3)


def blind_row_mask():
    """Causal, aligned to the end, padded, with a query that sees nothing."""
    causal = F.combine_masks(F.causal_mask(T, S), F.padding_mask(jnp.array(VALID)))
    return causal.at[1, :, 0].set(False)


def wiring(**options):
    def wired(x, scale, w):
        norms = {name: functools.partial(norm, scale=scale) for name, norm in options.items()}
        return F.residual(x, lambda h: F.linear(h, w), **norms)

    return Row(wired, ((B, T, D), (D,), (D, D)))


def sums(**options):
    weights = jnp.array([[1.0, 0.5, 0.0], [2.0, 1.0, 0.0]])

    def loss(logits):
        found = F.cross_entropy(logits, jnp.array(TOKENS), weights, **options)
        return jnp.stack([found.loss_sum, found.nll_sum, found.z_sum])

    return Row(loss, ((B, T, V),), batched=0, keeps_dtype=False)


CATALOGUE = {
    **{
        name: Row(getattr(F, name), ((B, T),))
        for name in "identity relu relu_squared gelu gelu_tanh silu sigmoid tanh".split()
    },
    "linear": Row(F.linear, ((B, T, D), (D, N, H), (N, H))),
    "linear joining heads": Row(
        functools.partial(F.linear, axes=2), ((B, T, N, Hv), (N, Hv, D), (D,))
    ),
    "layer_norm": Row(F.layer_norm, ((B, T, D), (D,), (D,))),
    "layer_norm plain": Row(functools.partial(F.layer_norm, epsilon=0.3), ((B, T, D),)),
    "rms_norm": Row(F.rms_norm, ((B, T, D), (D,))),
    "attention": attention(),
    "attention masked": attention(mask=blind_row_mask()),
    "attention capped": attention(soft_cap=1.5, scale=0.9),
    "attention biased": Row(
        lambda q, k, v, bias: F.dot_product_attention(q, k, v, bias=bias),
        (*HEADS, (1, N, T, S)),
        batched=3,
    ),
    "attention_weights": Row(
        functools.partial(F.attention_weights, mask=blind_row_mask()), HEADS[:2], batched=2
    ),
    "dropout": Row(functools.partial(F.dropout, rate=0.4, key=jax.random.key(1)), ((B, T, D),)),
    **{
        f"ffn {name}": Row(
            functools.partial(
                F.gated_feed_forward if kind.gated else F.feed_forward, activation=kind.activation
            ),
            GATED if kind.gated else DENSE,
        )
        for name, kind in F.FFN_KINDS.items()
    },
    "residual pre": wiring(norm_in=F.rms_norm),
    "residual post": wiring(norm_out=F.layer_norm),
    "residual sandwich": wiring(norm_in=F.layer_norm, norm_branch=F.rms_norm),
    "residual scaled": Row(
        lambda x, scale: F.residual(x, F.silu, branch_scale=scale, stream_scale=0.5),
        ((B, T, D), (D,)),
    ),
    **{
        f"rope {pairing}": Row(
            functools.partial(F.rope, positions=jnp.array(POSITIONS), pairing=pairing),
            ((B, T, N, H),),
        )
        for pairing in ("half", "interleaved")
    },
    "embed": Row(lambda table: F.embed(jnp.array(TOKENS), table), ((V, D),), batched=0),
    "learned_positions": Row(
        lambda table: F.learned_positions(jnp.array(TOKENS), table), ((V, D),), batched=0
    ),
    "readout": Row(F.readout, ((B, T, D), (V, D))),
    "cross_entropy": sums(),
    "cross_entropy smoothed": sums(label_smoothing=0.1, z_loss=0.2),
}
# Half the time of compiling; where the compiled code itself is tested, it is not used.
QUICKLY = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
EVERY = pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)


def on_device(arrays, dtype=jnp.float32):
    """Moves NumPy arrays to JAX; they are prepared in NumPy, since JAX compiles each step."""
    return tuple(jnp.asarray(array, dtype) for array in arrays)


@EVERY
def test_compiled_and_mapped_equals_an_eager_loop(normal, row):
    runs = [np.asarray(run) for run in normal(*((2, *shape) for shape in row.shapes))]
    loop = [np.asarray(row.function(*on_device(run[r] for run in runs))) for r in range(2)]
    mapped = jax.jit(jax.vmap(row.function))(*on_device(runs))
    np.testing.assert_allclose(mapped, np.stack(loop), atol=1e-5)


@EVERY
@pytest.mark.usefixtures("float64")
def test_derivatives_equal_finite_differences_in_both_modes(normal, row):
    arrays = normal(*row.shapes, dtype=jnp.float64)
    along = normal(*row.shapes, dtype=jnp.float64)
    step = 1e-6

    @QUICKLY
    def derivatives(arrays, along):
        out, forward = jax.jvp(row.function, arrays, along)
        upstream = jnp.cos(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape)
        pulled = jax.vjp(row.function, *arrays)[1](upstream)
        reverse = sum(jnp.vdot(*pair) for pair in zip(pulled, along, strict=True))
        return out, forward, reverse, jnp.vdot(upstream, forward)

    out, forward, reverse, paired = derivatives(tuple(arrays), tuple(along))
    assert out.dtype == jnp.float64
    pairs = [(np.asarray(x), np.asarray(d)) for x, d in zip(arrays, along, strict=True)]
    np.testing.assert_allclose(reverse, paired, rtol=1e-9)
    function = QUICKLY(row.function)
    ahead, behind = (
        np.asarray(function(*on_device((x + sign * step * d for x, d in pairs), jnp.float64)))
        for sign in (1, -1)
    )
    np.testing.assert_allclose(forward, (ahead - behind) / (2 * step), atol=2e-7, rtol=1e-6)


@EVERY
def test_low_precision_stays_finite_and_keeps_its_dtype(normal, row):
    arrays = [np.asarray(array) for array in normal(*row.shapes)]
    function = QUICKLY(row.function)
    exact = np.asarray(function(*on_device(arrays)))
    size = np.abs(exact).max()
    for dtype, tolerance in ((jnp.bfloat16, 0.04), (jnp.float16, 0.005)):
        out = function(*on_device(arrays, dtype))
        assert out.dtype == (dtype if row.keeps_dtype else jnp.float32)
        np.testing.assert_allclose(np.asarray(out, np.float32), exact, atol=tolerance * size)


BATCHED = {name: row for name, row in CATALOGUE.items() if row.batched}


@pytest.mark.parametrize("row", BATCHED.values(), ids=BATCHED)
def test_other_rows_of_the_batch_do_not_matter(normal, row):
    arrays = [np.array(array) for array in normal(*row.shapes)]
    function = QUICKLY(row.function)
    out = np.asarray(function(*on_device(arrays)))
    for array in arrays[: row.batched]:
        array[1] = array[1] ** 2 - 1
    after = np.asarray(function(*on_device(arrays)))
    np.testing.assert_array_equal(after[0], out[0])
    assert not np.allclose(after[1], out[1])


def test_every_public_function_of_arrays_has_a_row():
    rowless = {"sinusoidal_positions", "sinusoidal_embedding", "combine_masks", "visible"}
    rowless |= {name for name in F.__all__ if name.endswith("_mask")}
    source = " ".join(CATALOGUE)
    functions = {name for name in F.__all__ if name[0].islower()} - rowless
    renamed = {
        "dot_product_attention": "attention",
        "feed_forward": "ffn relu",
        "gated_feed_forward": "ffn swiglu",
    }
    for name in functions:
        assert renamed.get(name, name) in source, name
