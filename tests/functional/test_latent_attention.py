"""Tests for jtransformer.functional.latent_attention."""

import functools
import math
import re
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F
from jtransformer.functional.masks import causal_mask
from jtransformer.functional.visibility import Visibility

dot_product_attention = at_once(F.dot_product_attention)
latent_attention = at_once(F.latent_attention)
rope = at_once(F.rope)

B, T, S, N, H, Hv, Hr, C = 2, 3, 11, 5, 7, 13, 4, 17
FORMS = pytest.mark.parametrize("form", ["expanded", "absorbed"])


@pytest.fixture
def make(normal):
    """Draws positional arrays of `latent_attention`, and the rotary pair by name."""

    def draw(T=T, S=S, dtype=jnp.float32):
        q, latent, w_k, w_v, q_rotary, k_rotary = normal(
            (B, T, N, H), (B, S, C), (C, N, H), (C, N, Hv), (B, T, N, Hr), (B, S, Hr), dtype=dtype
        )
        w_k, w_v = (w / math.sqrt(C) for w in (w_k, w_v))
        return (q, latent, w_k, w_v), dict(q_rotary=q_rotary, k_rotary=k_rotary)

    return draw


@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(mask=causal_mask(T, S).at[..., 1, :].set(False)),
        dict(bias=jnp.linspace(-2, 2, N * S).reshape(1, N, 1, S), scale=0.7),
        dict(dropout_rate=0.4, key=jax.random.key(1)),
    ],
    ids=["no rotary part", "blind row", "bias", "dropout"],
)
@pytest.mark.usefixtures("float64")
def test_both_forms_are_one_function(make, options):
    arrays, rotary = make(dtype=jnp.float64)

    @functools.partial(quickly, static_argnames="form")
    def value_and_slopes(*arrays, form, **pair):
        read = functools.partial(latent_attention, **pair, **options, form=form)
        out, pull = jax.vjp(read, *arrays)
        upstream = jnp.cos(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape)
        return out, pull(upstream)

    pair = rotary if options else {}
    out, slopes = value_and_slopes(*arrays, form="expanded", **pair)
    absorbed_out, absorbed_slopes = value_and_slopes(*arrays, form="absorbed", **pair)
    np.testing.assert_allclose(absorbed_out, out, atol=1e-13)
    for absorbed, expanded in zip(absorbed_slopes, slopes, strict=True):
        np.testing.assert_allclose(absorbed, expanded, atol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_the_absorbed_form_is_no_less_precise(make, dtype):
    arrays, rotary = make(dtype=dtype)
    read = quickly(latent_attention, static_argnames=("form", "scale"))
    raised, raised_rotary = jax.tree.map(lambda x: x.astype(jnp.float32), (arrays, rotary))
    exact = read(*raised, **raised_rotary)
    error = {}
    for form in ("expanded", "absorbed"):
        out = read(*arrays, **rotary, form=form)
        assert out.dtype == dtype
        error[form] = np.sqrt(np.mean((np.asarray(out, np.float32) - exact) ** 2))
    # Rounding in between as well, it would err as much as the other: 0.9 to 1.2 times.
    assert error["absorbed"] < 0.8 * error["expanded"]


@FORMS
def test_a_latent_of_concatenated_keys_and_values_is_multi_head_attention(normal, form):
    """With maps that select, the latent holds every head's key and value as it is."""
    q, k, v = normal((B, T, N, H), (B, S, N, H), (B, S, N, Hv))
    latent = jnp.concatenate([k.reshape(B, S, N * H), v.reshape(B, S, N * Hv)], axis=-1)
    select = jnp.eye(N * (H + Hv))
    w_k = select[:, : N * H].reshape(-1, N, H)
    w_v = select[:, N * H :].reshape(-1, N, Hv)
    mask = causal_mask(T, S)
    out = latent_attention(q, latent, w_k, w_v, mask=mask, form=form)
    np.testing.assert_allclose(out, dot_product_attention(q, k, v, mask=mask), atol=1e-5)


@FORMS
def test_the_scale_is_that_of_both_parts_of_a_head(make, form):
    """Neither of H alone, nor of the latent that the absorbed form reads as its key."""
    arrays, rotary = make()
    read = quickly(latent_attention, static_argnames=("form", "scale"))
    out = read(*arrays, **rotary, form=form)
    np.testing.assert_allclose(out, read(*arrays, **rotary, form=form, scale=11**-0.5), rtol=1e-6)
    without = read(*arrays, form=form)
    silent = {name: jnp.zeros_like(x) for name, x in rotary.items()}
    padded = read(*arrays, **silent, form=form, scale=7**-0.5)
    np.testing.assert_allclose(padded, without, atol=1e-6)


@FORMS
def test_scores_of_the_rotary_part_depend_on_offsets_only(make, form):
    arrays, rotary = make()
    read = quickly(latent_attention, static_argnames=("form", "scale"))

    def out(shift):
        positions = [jnp.arange(n)[None] + shift for n in (T, S)]
        return read(
            *arrays,
            q_rotary=rope(rotary["q_rotary"], positions[0]),
            k_rotary=rope(rotary["k_rotary"][:, :, None], positions[1])[:, :, 0],
            form=form,
        )

    np.testing.assert_allclose(out(0), out(100), atol=1e-5)
    assert not np.allclose(out(0), read(*arrays, **rotary, form=form), atol=0.01)


def shapes_in(function, *arrays):
    """Every shape that occurs while the function is computed."""
    text = str(jax.make_jaxpr(function)(*arrays))
    return {tuple(map(int, found.split(","))) for found in re.findall(r"\[(\d+(?:,\d+)*)\]", text)}


def test_the_absorbed_form_reads_what_a_cache_keeps_and_no_more(make):
    """C + Hr numbers per token; the expanded form makes N (H + Hr + Hv) of them."""
    arrays, rotary = make()

    def sizes_per_token(form):
        def read(*arrays):
            return latent_attention(*arrays[:4], q_rotary=arrays[4], k_rotary=arrays[5], form=form)

        shapes = shapes_in(read, *arrays, *rotary.values())
        # Scores have S too, but also T; what has S and not T is made of the source.
        return {math.prod(shape) // (B * S) for shape in shapes if S in shape and T not in shape}

    assert max(sizes_per_token("absorbed")) == C + Hr
    assert max(sizes_per_token("expanded")) == N * max(H + Hr, Hv)
    assert C + Hr < 2 * N * H


@FORMS
def test_a_query_that_sees_nothing_gets_zeros_and_sends_none(make, form):
    arrays, rotary = make()
    mask = jnp.ones((T, S), bool).at[1].set(False)

    def out(*arrays):
        return latent_attention(*arrays, **rotary, mask=mask, form=form)

    np.testing.assert_array_equal(quickly(out)(*arrays)[:, 1], jnp.zeros((B, N, Hv)))
    blind = quickly(jax.grad(lambda *a: out(*a)[:, 1].sum(), argnums=(0, 1, 2, 3)))(*arrays)
    assert all((slope == 0).all() for slope in blind)


@FORMS
def test_decoding_from_a_store_of_latents_equals_the_full_pass(make, form):
    arrays, rotary = make(T=S)
    full = latent_attention(*arrays, **rotary, mask=causal_mask(S))
    q, latent, w_k, w_v = arrays
    stored = Visibility(jnp.full((B, 1), 6), jnp.arange(S)[None])
    step = latent_attention(
        q[:, 6:7],
        latent.at[:, 7:].set(1e3),  # Not written yet.
        w_k,
        w_v,
        q_rotary=rotary["q_rotary"][:, 6:7],
        k_rotary=rotary["k_rotary"],
        mask=stored,
        form=form,
    )
    np.testing.assert_allclose(step[:, 0], full[:, 6], atol=2e-6)


@pytest.mark.parametrize(
    ("index", "shape", "message"),
    [
        (1, (3, S, C), r"latent.shape=\(3, 11, 17\)"),
        (1, (B, S, C, 1), r"must have the axes B S C"),
        (2, (C, N, H + 1), r"w_k.shape=\(17, 5, 8\) .* use \(17, 5, 7\)"),
        (2, (C + 1, N, H), r"w_k.shape=\(18, 5, 7\)"),
        (3, (C, N + 1, Hv), r"w_v.shape=\(17, 6, 13\)"),
        (3, (C, N), r"w_v.shape=\(17, 5\)"),
    ],
)
def test_wrong_shapes_are_named(make, index, shape, message):
    arrays = list(make()[0])
    arrays[index] = jnp.ones(shape)
    with pytest.raises(ValueError, match=message):
        unwrap(latent_attention)(*arrays)


def test_wrong_options_are_named(make):
    arrays, rotary = make()
    with pytest.raises(ValueError, match="given together, got k_rotary=None"):
        latent_attention(*arrays, q_rotary=rotary["q_rotary"])
    with pytest.raises(ValueError, match="given together, got q_rotary=None"):
        latent_attention(*arrays, k_rotary=rotary["k_rotary"])
    wrong = dict(rotary, k_rotary=jnp.ones((B, S, Hr + 1)))
    with pytest.raises(ValueError, match=r"k_rotary.shape=\(2, 11, 5\)"):
        unwrap(latent_attention)(*arrays, **wrong)
    with pytest.raises(ValueError, match="Unknown form 'folded'; use 'expanded' or 'absorbed'"):
        unwrap(latent_attention)(*arrays, form="folded")
    for form in ("expanded", "absorbed"):
        with pytest.raises(ValueError, match=r"mask.shape=\(3, 4\) for B, N, T, S = \(2, 5, 3, 11"):
            latent_attention(*arrays, mask=jnp.ones((3, 4), bool), form=form)
