"""Tests for jtransformer.functional.attention_backends: which program, and that all are equal."""

import functools
from inspect import unwrap  # Reaches the function behind the tests' shape checker.
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer.functional import (
    Visibility,
    attention,
    attention_backend,
    attention_backends,
    attention_weights,
    causal_mask,
    dot_product_attention,
)

B, T, S, N, K, H = 2, 4, 6, 6, 2, 8


@pytest.fixture
def make(normal):
    """Draws queries, keys and values of one width."""
    return lambda: normal((B, T, N, H), (B, S, K, H), (B, S, K, H))


def heads(T=T, S=S, N=N, H=H, Hv=None, dtype=jnp.bfloat16):
    """Shapes and dtypes of queries, keys and values; nothing is allocated."""
    shapes = (B, T, N, H), (B, S, K, H), (B, S, K, H if Hv is None else Hv)
    return [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]


def of(shape, dtype):
    return jax.ShapeDtypeStruct(shape, dtype)


SQUARE = jax.eval_shape(lambda: Visibility(jnp.arange(T)[None], jnp.arange(S)[None]))
LONG = dict(T=2048, S=2048, N=2)
CHOICES = [
    ("plain", {}, {}, "cpu"),
    ("plain", {}, {}, "tpu"),
    ("fused", {}, {}, "gpu"),
    ("fused", {}, dict(mask=of((B, 1, T, S), bool)), "gpu"),
    ("fused", {}, dict(mask=SQUARE), "cuda"),
    ("fused", dict(dtype=jnp.float16), {}, "gpu"),
    ("fused", LONG, {}, "gpu"),
    ("fused", {}, dict(dropout_rate=0.1), "gpu"),
    ("plain", dict(dtype=jnp.float16), dict(mask=of((1, 1, T, S), bool)), "gpu"),
    ("plain", dict(dtype=jnp.float32), {}, "gpu"),
    ("plain", dict(H=12), {}, "gpu"),
    ("plain", dict(H=136), {}, "gpu"),
    ("plain", dict(Hv=16), {}, "gpu"),
    ("plain", dict(T=5), dict(mask=of((1, 1, 5, S), bool)), "gpu"),
    ("plain", dict(S=5), dict(mask=of((1, 1, T, 5), bool)), "gpu"),
    ("plain", dict(S=0), {}, "gpu"),
    ("plain", {}, dict(bias=of((1, N, T, S), jnp.bfloat16)), "gpu"),
    ("plain", {}, dict(soft_cap=3.0), "gpu"),
    ("plain", {}, dict(dropout_rate=0.1, key=jax.random.key(0)), "gpu"),
    ("blockwise", LONG, {}, "cpu"),
    ("blockwise", LONG, {}, "rocm"),
    ("blockwise", LONG, dict(soft_cap=3.0), "gpu"),
    ("plain", dict(T=2048, S=1024, N=2), {}, "cpu"),  # 2^23 scores, and not one more
    ("plain", LONG, dict(dropout_rate=0.1, key=jax.random.key(0)), "cpu"),
]


@pytest.mark.parametrize(("expected", "sizes", "options", "platform"), CHOICES)
def test_what_auto_chooses(expected, sizes, options, platform):
    arrays = heads(**sizes)
    assert attention_backend(*arrays, **options, platform=platform) == expected


def test_the_platform_is_that_of_the_process_where_none_is_named(monkeypatch):
    assert attention_backend(*heads()) == "plain"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for version, capability, expected in (
        ("cuda 12080", "9.0", "fused"),
        ("cuda 12080", "7.5", "plain"),
        ("rocm 60300", "9.0", "plain"),
    ):
        client = SimpleNamespace(platform_version=version)
        device = SimpleNamespace(client=client, compute_capability=capability)
        monkeypatch.setattr(jax, "devices", lambda device=device: [device])
        assert attention_backend(*heads()) == expected


def test_auto_does_what_the_answer_says(monkeypatch, make):
    asked = []

    def answer(*arrays, **options):
        asked.append((arrays, options))
        return "blockwise"

    monkeypatch.setattr(attention, "attention_backend", answer)
    monkeypatch.setattr(attention, "block_rows", lambda shape: 1)
    arrays = make()
    program = jax.make_jaxpr(dot_product_attention)(*arrays)
    assert "scan" in str(program)
    jax.eval_shape(
        functools.partial(dot_product_attention, soft_cap=2.0, dropout_rate=0.1), *arrays
    )
    given = dict(mask=None, bias=None, soft_cap=2.0, dropout_rate=0.1, key=None, platform=None)
    assert asked[1][1] == given
    assert "scan" not in str(
        jax.make_jaxpr(functools.partial(dot_product_attention, backend="plain"))(*arrays)
    )
    assert len(asked) == 2


RANDOM = np.random.default_rng(0)
BLIND = jnp.array(RANDOM.random((B, N, T, S)) < 0.6).at[0, :, 1].set(False).at[1, 2, 3].set(False)
CASES = {
    "all visible": {},
    "blind queries": dict(mask=BLIND, scale=0.3),
    "padding": dict(mask=BLIND[:, :1, :1]),
    "bias": dict(bias=jnp.array(RANDOM.normal(size=(1, N, 1, S)), jnp.float32)),
    "bias and mask": dict(bias=jnp.where(BLIND, 0.5, -jnp.inf), mask=causal_mask(T, S)),
    "visibility": dict(mask=Visibility(jnp.arange(T)[None], jnp.arange(S)[None] + 1)),
    "a head off": dict(heads_on=jnp.arange(N) != 3),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, jnp.float32) for name in CASES]
    + [("bias and mask", dtype) for dtype in (jnp.bfloat16, jnp.float16)],
)
def test_jax_own_attention_computes_the_same(make, name, dtype):
    arrays = tuple(x.astype(dtype) for x in make())

    def derivatives(backend):
        @quickly
        def both(*arrays):
            attend = functools.partial(dot_product_attention, **CASES[name], backend=backend)
            out, forward = jax.jvp(attend, arrays, arrays)
            return out, forward, jax.vjp(attend, *arrays)[1](jnp.cos(out))

        return jax.tree.leaves(both(*arrays))

    # Half a unit in the last place of the weights, times the sum of the values they weigh.
    atol = 2e-6 if dtype == jnp.float32 else 16 * float(jnp.finfo(dtype).eps)
    for found, expected in zip(*map(derivatives, ("fused", "plain")), strict=True):
        assert found.dtype == dtype
        as_float = (np.asarray(x, np.float32) for x in (found, expected))
        np.testing.assert_allclose(*as_float, atol=atol)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("hiding", [dict(mask=BLIND), dict(bias=jnp.where(BLIND, 0.5, -jnp.inf))])
def test_blind_queries_of_jax_own_attention_get_zeros_and_send_none(make, hiding, dtype):
    arrays = tuple(x.astype(dtype) for x in make())
    blind = np.moveaxis(~np.asarray(BLIND).any(axis=-1), 1, 2)

    @quickly
    def both(*arrays):
        attend = functools.partial(dot_product_attention, **hiding, backend="fused")
        out, forward = jax.jvp(attend, arrays, arrays)
        _, pull = jax.vjp(attend, *arrays)
        of_blind = jnp.where(blind[..., None], jnp.ones_like(out), 0)
        return out, forward, pull(of_blind), pull(jnp.ones_like(out))

    out, forward, of_blind, of_all = both(*arrays)
    assert blind.sum() > 1
    for found in (out, forward, of_all[0]):
        assert (found[blind] == 0).all()
        assert jnp.isfinite(found).all()
    assert (out[~blind] != 0).all()
    assert all((pulled == 0).all() for pulled in of_blind)


@pytest.fixture
def kernel(monkeypatch):
    """Records what cuDNN would be handed, and computes it without a GPU."""
    calls, real = [], jax.nn.dot_product_attention

    def pretended(q, k, v, *, bias, mask, scale, implementation):
        calls.append(SimpleNamespace(q=q, bias=bias, mask=mask, by=implementation))
        raised = (x.astype(jnp.float32) for x in (q, k, v))
        return real(*raised, bias=bias, mask=mask, scale=scale).astype(q.dtype)

    monkeypatch.setattr(jax.nn, "dot_product_attention", pretended)
    monkeypatch.setattr(attention_backends, "has_cudnn", lambda platform: True)
    return calls


def test_cudnn_is_handed_what_it_takes_and_its_blind_queries_are_mended(make, kernel):
    arrays = [x.astype(jnp.bfloat16) for x in make()]
    for mask in (BLIND, BLIND[:, :1, :1], None):
        found, expected = (
            quickly(functools.partial(dot_product_attention, mask=mask, backend=backend))(*arrays)
            for backend in ("auto", "plain")
        )
        as_float = (np.asarray(x, np.float32) for x in (found, expected))
        np.testing.assert_allclose(*as_float, atol=0.06)
        np.testing.assert_array_equal(found[expected == 0], 0)
    assert [call.by for call in kernel] == ["cudnn"] * 3
    assert all(call.q.dtype == jnp.bfloat16 and call.bias is None for call in kernel)
    # It takes no mask that is to be broadcast over queries or keys.
    assert [call.mask.shape for call in kernel[:2]] == [(B, N, T, S), (B, 1, T, S)]
    assert kernel[2].mask is None


def test_what_cudnn_computes_differently_goes_to_xla(make, kernel):
    arrays = [x.astype(jnp.bfloat16) for x in make()]
    low_bias = jnp.zeros((1, N, T, S), jnp.bfloat16)
    attend = functools.partial(dot_product_attention, backend="fused")
    jax.eval_shape(functools.partial(attend, bias=low_bias), *arrays)
    jax.eval_shape(attend, *make())
    assert [call.by for call in kernel] == ["xla"] * 2
    assert all(call.q.dtype == jnp.float32 for call in kernel)
    jax.eval_shape(dot_product_attention, *make())  # not chosen where it is not asked for
    assert len(kernel) == 2


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({}, dict(soft_cap=2.0), "has no soft cap, got soft_cap=2.0"),
        ({}, dict(dropout_rate=0.1, key=jax.random.key(0)), "drops no weights"),
        (dict(Hv=4), {}, "as wide as the keys, got H=8, Hv=4"),
        (dict(S=0), {}, "needs a query and a key, got T=4, S=0"),
        (dict(dtype=jnp.float64), {}, r"at most 32 bits, got \['float64', 'float64', 'float64'\]"),
    ],
)
@pytest.mark.usefixtures("float64")
def test_what_jax_own_attention_does_not_compute_is_refused(arrays, options, message):
    zeros = [jnp.zeros(x.shape, x.dtype) for x in heads(**{"dtype": jnp.float32, **arrays})]
    with pytest.raises(ValueError, match=f"^backend='fused' .*{message}.*; use 'auto' or 'plain'"):
        dot_product_attention(*zeros, **options, backend="fused")
    plain = functools.partial(dot_product_attention, **options, backend="plain")
    assert jax.eval_shape(plain, *zeros).shape == (*zeros[0].shape[:3], zeros[2].shape[-1])


def test_mixed_dtypes_and_unknown_backends_are_refused(make):
    q, k, v = make()
    with pytest.raises(ValueError, match="one dtype.*'float32', 'float16', 'float32'"):
        dot_product_attention(q, k.astype(jnp.float16), v, backend="fused")
    with pytest.raises(ValueError, match="backend='flash' is unknown; use 'auto' or 'plain'"):
        unwrap(dot_product_attention)(q, k, v, backend="flash")


def test_weights_on_request_cost_no_second_softmax(make):
    def number_of_products(*functions):
        program = jax.jit(lambda q, k, v: [function(q, k, v) for function in functions])
        return program.lower(*make()).compile().as_text().count(" dot(")

    def weights(q, k, v):
        return attention_weights(q, k, mask=causal_mask(T, S))

    def out(q, k, v):
        return dot_product_attention(q, k, v, mask=causal_mask(T, S))

    assert number_of_products(weights) == 1
    assert number_of_products(out) == number_of_products(out, weights) == 2
