"""Tests for jtransformer.functional.placements."""

import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer import functional as F
from jtransformer.spec import ModelSpec
from jtransformer.spec.model import NormPlacement

B, T, D = 2, 3, 5


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


FORMULAS = {
    "post": lambda x, f: norm(x + f(x)),
    "pre": lambda x, f: x + f(norm(x)),
    "sandwich": lambda x, f: x + norm(f(norm(x))),
    "branch": lambda x, f: x + norm(f(x)),
    "deepnorm": lambda x, f: norm(8**0.25 * x + f(x)),
    "none": lambda x, f: x + f(x),
}


@pytest.mark.parametrize("name", F.PLACEMENTS)
def test_each_placement_is_its_formula(normal, name):
    (x,) = normal((B, T, D))
    placement = F.PLACEMENTS[name]
    options = dict.fromkeys(placement.norms, F.layer_norm)
    if placement.deepnorm:
        options["stream_scale"] = F.deepnorm(decoder_layers=4).decoder.stream_scale
    expected = FORMULAS[name](np.asarray(x, np.float64), np.sin)
    np.testing.assert_allclose(F.residual(x, jnp.sin, **options), expected, atol=1e-5)


def test_the_table_is_complete_and_no_two_placements_are_one():
    assert set(F.PLACEMENTS) == set(FORMULAS)
    assert len(set(F.PLACEMENTS.values())) == len(FORMULAS)


def test_the_stacks_whose_last_sublayer_ends_unnormalised_have_a_final_norm():
    ends = {name for name, placement in F.PLACEMENTS.items() if placement.final_norm}
    assert ends == {"pre", "sandwich", "branch"}


@pytest.mark.parametrize("name", typing.get_args(NormPlacement))
def test_a_spec_means_the_same_by_a_name(name):
    spec = ModelSpec(norm_placement=name)
    assert F.PLACEMENTS[name].norms == spec.norm_slots
    assert F.PLACEMENTS[name].final_norm == spec.has_final_norm


def test_factors_of_one_stack():
    # (2 L)^(1/4) and (8 L)^(-1/4): of 8 layers 2 and 8^(-1/2), of 2 layers 2^(1/2) and 1/2.
    encoder, none = F.deepnorm(encoder_layers=8)
    assert none is None
    np.testing.assert_allclose(encoder, [2, 0.3535533906], rtol=1e-9)
    none, decoder = F.deepnorm(decoder_layers=2)
    assert none is None
    np.testing.assert_allclose(decoder, [1.4142135624, 0.5], rtol=1e-9)


def test_factors_of_an_encoder_and_a_decoder():
    # N = 8, M = 16: N^4 M = 2^16; 3 M = 48 and 12 M = 192.
    encoder, decoder = F.deepnorm(encoder_layers=8, decoder_layers=16)
    np.testing.assert_allclose(encoder, [2 * 0.81, 0.87 / 2], rtol=1e-12)
    np.testing.assert_allclose(decoder, [2.6321480260, 0.2686424829], rtol=1e-9)


def test_live_the_other_stack_changes_both_factors_of_each():
    alone = F.deepnorm(encoder_layers=6).encoder
    with_6, with_18 = (F.deepnorm(encoder_layers=6, decoder_layers=M) for M in (6, 18))
    assert len({alone, with_6.encoder, with_18.encoder}) == 3
    assert with_6.decoder != F.deepnorm(decoder_layers=6).decoder


def test_null_no_layers_of_the_other_stack_is_the_default():
    assert F.deepnorm(encoder_layers=6, decoder_layers=0) == F.deepnorm(encoder_layers=6)
    assert F.deepnorm(encoder_layers=0, decoder_layers=6) == F.deepnorm(decoder_layers=6)


def test_deepnorm_bounds_what_a_deep_stack_makes_of_a_change_of_its_weights(normal):
    """The paper's reason: the update of the output stays small at any depth."""
    width, depth = 32, 60
    x, kernels = normal((width,), (depth, width, width))

    @quickly
    def moved(alpha, gain):
        def layer(x, w):
            wired = F.residual(
                x, lambda h: F.linear(h, gain * w), norm_out=F.layer_norm, stream_scale=alpha
            )
            return wired, None

        def out(kernels):
            return jax.lax.scan(layer, x, kernels / width**0.5)[0]

        slope = jax.grad(lambda kernels: out(kernels)[0])(kernels)
        return jax.jvp(out, (kernels,), (slope,))[1].max()

    # A layer of the paper has two sublayers.
    alpha, beta = (jnp.array(factor) for factor in F.deepnorm(decoder_layers=depth // 2).decoder)
    one = jnp.ones(())
    assert moved(alpha, beta) < moved(one, one) / 5


def test_no_stack_is_refused():
    with pytest.raises(ValueError, match="got encoder_layers=0, decoder_layers=0; use 0 for"):
        F.deepnorm()
    with pytest.raises(ValueError, match="got encoder_layers=6, decoder_layers=-1"):
        F.deepnorm(encoder_layers=6, decoder_layers=-1)
