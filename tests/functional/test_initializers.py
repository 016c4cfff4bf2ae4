"""Tests for jtransformer.functional.initializers: deviations are measured, not computed."""

import functools
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer import functional as F

HEADS = dict(fan_in_axes=(0,))
JOINED = dict(fan_in_axes=(0, 1))
STACKED = dict(fan_in_axes=(1,), stacked_axes=(0,))
CASES = {
    "query of the standard case": ((512, 8, 64), HEADS, 512, 512),
    "query of narrow heads": ((512, 3, 40), HEADS, 512, 120),
    "output of the standard case": ((8, 64, 512), JOINED, 512, 512),
    "twelve matrices": ((12, 512, 512), STACKED, 512, 512),
    "five outputs": ((5, 4, 32, 256), dict(fan_in_axes=(-3, -2), stacked_axes=(-4,)), 128, 256),
}
EACH_CASE = pytest.mark.parametrize(
    ("shape", "axes", "fan_in", "fan_out"), CASES.values(), ids=CASES
)
DRAWS = {
    "normal": functools.partial(F.draw_normal, deviation=0.3),
    "fan_in": functools.partial(F.draw_fan_in, fan_in_axes=(0,)),
    "xavier": functools.partial(F.draw_xavier, fan_in_axes=(0,)),
    "depth_scaled": functools.partial(F.draw_depth_scaled, layers=3),
    "deepnorm": functools.partial(F.draw_deepnorm, part="value", init_gain=0.4, fan_in_axes=(0,)),
}
EACH_DRAW = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
SHAPE = (200, 4, 60)


def deviation(values):
    return np.std(np.asarray(values, np.float64))


@EACH_CASE
def test_fan_in_is_that_of_the_contracted_axes(key, shape, axes, fan_in, fan_out):
    """A default of -2 takes D N for the fan-in of a kernel [D, N, H]."""
    values = F.draw_fan_in(key, shape, **axes)
    assert values.shape == shape
    np.testing.assert_allclose(deviation(values), fan_in**-0.5, rtol=0.02)
    assert abs(np.mean(np.asarray(values))) < 0.02 * fan_in**-0.5


@EACH_CASE
def test_xavier_takes_both_fans(key, shape, axes, fan_in, fan_out):
    values = F.draw_xavier(key, shape, **axes)
    np.testing.assert_allclose(deviation(values), (2 / (fan_in + fan_out)) ** 0.5, rtol=0.02)


def test_the_figures_of_a_width_of_512(key):
    for draw in (F.draw_fan_in, F.draw_xavier):
        values = draw(key, (512, 8, 64), fan_in_axes=(0,))
        np.testing.assert_allclose(deviation(values), 0.044194, rtol=0.02)
    library = jax.nn.initializers.lecun_normal()(key, (512, 8, 64), jnp.float32)
    assert deviation(library) < 0.02  # what the axes are there for


def test_every_layer_of_a_stack_has_the_statistics_of_one(key):
    stack = np.asarray(F.draw_xavier(key, (12, 128, 256), **STACKED))
    one = F.draw_xavier(key, (128, 256), fan_in_axes=(0,))
    for layer in stack:
        np.testing.assert_allclose(deviation(layer), deviation(one), rtol=0.02)
    assert abs(np.corrcoef(np.ravel(stack[0]), np.ravel(stack[1]))[0, 1]) < 0.02


@pytest.mark.parametrize("part", ["fan_in", "xavier"])
def test_a_linear_map_of_such_values_keeps_the_variance(normal, key, part):
    x = normal((400, 8, 64))[0]
    draw = {"fan_in": F.draw_fan_in, "xavier": F.draw_xavier}[part]
    joined = F.linear(x, draw(key, (8, 64, 512), **JOINED), axes=2)
    np.testing.assert_allclose(jnp.var(joined), 1, rtol=0.03)


@pytest.mark.parametrize(
    ("distribution", "largest"), [("normal", 4.5), ("truncated_normal", 2.274), ("uniform", 3**0.5)]
)
def test_live_the_distribution_changes_the_shape_and_not_the_deviation(key, distribution, largest):
    draws = [
        functools.partial(F.draw_fan_in, fan_in_axes=(0,)),
        functools.partial(F.draw_xavier, fan_in_axes=(0,)),
    ]
    if distribution != "uniform":
        draws += [
            functools.partial(F.draw_normal, deviation=400**-0.5),
            functools.partial(F.draw_depth_scaled, deviation=0.2, layers=8),
        ]
    for draw in draws:
        values = draw(key, (400, 400), distribution=distribution)
        np.testing.assert_allclose(deviation(values), 0.05, rtol=0.02)
        reach = np.abs(values).max() / 0.05
        assert reach <= largest * 1.0001 if distribution != "normal" else reach > 4


@EACH_DRAW
def test_live_the_key_and_null_the_same_key(key, draw):
    values = draw(key, SHAPE)
    np.testing.assert_array_equal(draw(key, SHAPE), values)
    other = draw(jax.random.key(1), SHAPE)
    assert abs(np.corrcoef(np.ravel(values), np.ravel(other))[0, 1]) < 0.02


def test_compiled_draws_are_the_same_but_for_rounding(key):
    def compiled(key):
        return [draw(key, SHAPE) for draw in DRAWS.values()]

    for found, draw in zip(quickly(compiled)(key), DRAWS.values(), strict=True):
        np.testing.assert_allclose(found, draw(key, SHAPE), rtol=1e-6)


@EACH_DRAW
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_is_the_float32_draw_rounded(key, draw, dtype):
    """Drawn in bfloat16 a normal variable takes 128 values, none beyond 2.6 deviations."""
    values = draw(key, SHAPE, dtype)
    assert values.dtype == dtype
    np.testing.assert_array_equal(values, draw(key, SHAPE).astype(dtype))


def test_null_defaults_are_plain(key):
    for name, neutral in {
        "normal": dict(distribution="normal"),
        "fan_in": dict(distribution="normal", stacked_axes=()),
        "xavier": dict(distribution="normal", stacked_axes=(), gain=1.0),
        "depth_scaled": dict(distribution="normal", branches=2, deviation=0.02),
        "deepnorm": dict(stacked_axes=()),
    }.items():
        np.testing.assert_array_equal(DRAWS[name](key, SHAPE, **neutral), DRAWS[name](key, SHAPE))


@pytest.mark.parametrize(
    ("name", "change", "factor"),
    [
        ("normal", dict(deviation=0.6), 2),
        ("fan_in", dict(fan_in_axes=(0, 1)), 0.5),
        ("fan_in", dict(stacked_axes=(1,)), 1),
        ("xavier", dict(gain=3.0), 3),
        ("xavier", dict(fan_in_axes=(0, 1)), (440 / 860) ** 0.5),
        ("xavier", dict(stacked_axes=(1,)), (440 / 260) ** 0.5),
        ("depth_scaled", dict(layers=12), 0.5),
        ("depth_scaled", dict(branches=8), 0.5),
        ("depth_scaled", dict(deviation=0.2), 10),
        ("deepnorm", dict(init_gain=0.8), 2),
        ("deepnorm", dict(part="key"), 2.5),
        ("deepnorm", dict(fan_in_axes=(0, 1)), (440 / 860) ** 0.5),
        ("deepnorm", dict(stacked_axes=(1,)), (440 / 260) ** 0.5),
    ],
)
def test_live_each_knob_scales_the_draw(key, name, change, factor):
    found, before = DRAWS[name](key, SHAPE, **change), DRAWS[name](key, SHAPE)
    np.testing.assert_allclose(found, factor * before, rtol=1e-5)


def test_the_residual_matrices_of_gpt2_shrink_with_depth(key):
    """A scaling that is found by name can silently match nothing."""
    stream = F.draw_depth_scaled(key, (768, 768), layers=12)
    np.testing.assert_allclose(deviation(stream), 0.00408248, rtol=0.01)
    np.testing.assert_allclose(
        deviation(F.draw_normal(key, (768, 768), deviation=0.02)), 0.02, rtol=0.01
    )


def test_the_sum_of_depth_scaled_branches_does_not_grow_with_depth(normal, key):
    x = normal((50, 64))[0]

    def added(layers):
        shape = (2 * layers, 64, 64)  # two matrices for each layer
        kernels = F.draw_depth_scaled(key, shape, layers=layers, deviation=64**-0.5)
        return np.var(sum(np.asarray(x) @ np.asarray(kernel) for kernel in kernels))

    np.testing.assert_allclose([added(2), added(8)], [1, 1], rtol=0.1)


@pytest.mark.parametrize(
    ("part", "gain"), [("query", 1), ("key", 1), ("value", 0.35), ("out", 0.35), ("ffn", 0.35)]
)
def test_deepnorm_gives_its_gain_to_the_parts_that_it_names(key, part, gain):
    factors = F.deepnorm(decoder_layers=8).decoder
    values = F.draw_deepnorm(
        key, (256, 4, 64), part=part, init_gain=factors.init_gain, fan_in_axes=(0,)
    )
    np.testing.assert_allclose(deviation(values), gain * 256**-0.5, rtol=0.025)


def test_a_plain_normal_draw_has_the_numbers_of_jax(key):
    found = DRAWS["normal"](key, SHAPE)
    np.testing.assert_array_equal(found, jax.nn.initializers.normal(0.3)(key, SHAPE))
    # One program may multiply by 0.3 before it rounds the draw: so does JAX 0.12, and is off by a
    # unit in the last place from a product of two rounded numbers.
    by_hand = np.float32(0.3) * np.asarray(jax.random.normal(key, SHAPE))
    np.testing.assert_allclose(found, by_hand, rtol=np.finfo(np.float32).eps)


@pytest.mark.parametrize(
    "axes",
    [
        dict(fan_in_axes=()),
        dict(fan_in_axes=(2,)),
        dict(fan_in_axes=(0, -2)),
        dict(fan_in_axes=(0,), stacked_axes=(0,)),
    ],
)
def test_wrong_axes_are_named(key, axes):
    for draw in (F.draw_fan_in, F.draw_xavier):
        with pytest.raises(
            ValueError, match=r"different axes .* fan_in_axes=.* for shape=\(3, 4\)"
        ):
            draw(key, (3, 4), **axes)


def test_wrong_arguments_are_named(key):
    with pytest.raises(ValueError, match="at least 0, got deviation=-1.0"):
        F.draw_normal(key, (3,), deviation=-1.0)
    with pytest.raises(ValueError, match="'uniform'; use 'normal', 'truncated_normal'."):
        unwrap(F.draw_normal)(key, (3,), deviation=1.0, distribution="uniform")
    with pytest.raises(ValueError, match="'flat'; use 'normal', 'truncated_normal', 'uniform'."):
        unwrap(F.draw_fan_in)(key, (3,), fan_in_axes=(0,), distribution="flat")
    with pytest.raises(ValueError, match="'flat'; use"):
        unwrap(F.draw_xavier)(key, (3,), fan_in_axes=(0,), distribution="flat")
    with pytest.raises(ValueError, match="got layers=0, branches=2"):
        F.draw_depth_scaled(key, (3,), layers=0)
    with pytest.raises(ValueError, match="Unknown part 'head'; use 'query', 'key', 'value'"):
        unwrap(F.draw_deepnorm)(key, (3,), part="head", init_gain=1.0, fan_in_axes=(0,))
    with pytest.raises(ValueError, match="floating-point dtype, got dtype=.*int32"):
        F.draw_normal(key, (3,), jnp.int32, deviation=1.0)
    with pytest.raises(TypeError, match="fan_in_axes"):
        F.draw_fan_in(key, (3, 4))
