"""Tests for jtransformer.functional.norms."""

from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer.functional import norms

dynamic_tanh, layer_norm = at_once(norms.dynamic_tanh), at_once(norms.layer_norm)
rms_norm, scale_norm = at_once(norms.rms_norm), at_once(norms.scale_norm)

B, T, D = 2, 3, 7
BOTH = pytest.mark.parametrize("norm", [layer_norm, rms_norm])


@pytest.mark.usefixtures("float64")
@BOTH
def test_worked_values(golden, norm):
    cases = golden("norms")["cases"]
    assert len(cases) > 10
    for case in cases:
        out = norm(jnp.array(case["x"], float), epsilon=case["epsilon"])
        np.testing.assert_allclose(out, case[norm.__name__], atol=1e-9, err_msg=str(case))


@BOTH
def test_worked_values_in_float32(golden, norm):
    for case in golden("norms")["cases"]:
        out = norm(jnp.array(case["x"], jnp.float32), epsilon=case["epsilon"])
        np.testing.assert_allclose(out, case[norm.__name__], atol=2e-6, err_msg=str(case))


@pytest.mark.usefixtures("float64")
@BOTH
def test_worked_jacobian_and_gradients(golden, norm):
    figures = golden("norm_jacobians")
    x, scale, upstream = (jnp.array(figures[name]) for name in ("x", "gamma", "upstream"))
    epsilon, name = figures["epsilon"], norm.__name__
    for jacobian in (jax.jacfwd, jax.jacrev):
        found = quickly(jacobian(lambda x: norm(x, scale, epsilon=epsilon)))(x)
        np.testing.assert_allclose(found, figures[f"{name}_jacobian"], atol=1e-12)
    affine = (scale, jnp.zeros(5)) if norm is layer_norm else (scale,)

    @quickly
    def pulled(upstream, *args):
        return jax.vjp(lambda *args: norm(*args, epsilon=epsilon), *args)[1](upstream)

    pull = pulled(upstream, x, *affine)
    gradients = dict(zip(("vjp", "scale_grad", "bias_grad"), pull, strict=False))
    for what, gradient in gradients.items():
        np.testing.assert_allclose(gradient, figures[f"{name}_{what}"], atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_second_derivatives_of_the_own_rule(normal):
    x, direction = normal((D,), (D,), dtype=jnp.float64)

    def squared(x):
        return jnp.sum(layer_norm(x) ** 3)

    step = 1e-5
    slope = quickly(jax.grad(squared))
    ahead, behind = (slope(x + sign * step * direction) for sign in (1, -1))
    along = quickly(lambda *pair: jax.jvp(jax.grad(squared), *pair)[1])((x,), (direction,))
    np.testing.assert_allclose(along, (ahead - behind) / (2 * step), atol=1e-6)


def test_all_ones_is_in_the_kernel_of_the_layer_norm_jacobian(normal):
    (x,) = normal((D,))

    def along_ones(norm):
        return np.abs(quickly(lambda *pair: jax.jvp(norm, *pair)[1])((x,), (jnp.ones(D),)))

    assert along_ones(layer_norm).max() < 1e-6
    assert along_ones(rms_norm).max() > 1e-2


def test_only_layer_norm_ignores_a_shift(normal):
    (x,) = normal((B, T, D))
    np.testing.assert_allclose(layer_norm(x + 8), layer_norm(x), atol=1e-5)
    assert not np.allclose(rms_norm(x + 8), rms_norm(x), atol=0.1)


@BOTH
def test_scale_of_the_input_is_ignored_but_for_its_sign(normal, norm):
    (x,) = normal((B, T, D))
    np.testing.assert_allclose(norm(100 * x), norm(x), atol=1e-4)
    np.testing.assert_array_equal(norm(-x), -norm(x))


def test_variance_of_activations_with_a_large_mean():
    x = jnp.array([40_000.0, 40_001.0, 40_002.0, 40_003.0])
    expected = [-1.341635, -0.447212, 0.447212, 1.341635]
    np.testing.assert_allclose(layer_norm(x, epsilon=1e-5), expected, atol=1e-6)
    noise = np.random.RandomState(0).randn(64)
    out = layer_norm(jnp.array(100 + 0.01 * noise, jnp.float32), epsilon=1e-6)
    np.testing.assert_allclose(jnp.std(out), 0.99558, atol=2e-4)
    np.testing.assert_allclose(layer_norm(jnp.array([10_001.0, 9_999.0])), [1.0, -1.0], atol=1e-5)


@pytest.mark.parametrize(
    ("epsilon", "first"), [(1e-12, -1.341640), (1e-6, -1.0), (1e-5, -0.447214)]
)
def test_live_epsilon_matters_for_small_activations(epsilon, first):
    x = jnp.array([0.0, 1e-3, 2e-3, 3e-3])
    np.testing.assert_allclose(layer_norm(x, epsilon=epsilon)[0], first, atol=1e-5)


def test_epsilon_is_inside_the_root():
    x = jnp.full(4, 1e-3)
    np.testing.assert_allclose(rms_norm(x, epsilon=1e-5), np.full(4, 0.301511), atol=1e-6)


def test_rms_norm_takes_off_no_mean():
    out = rms_norm(jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.ones(4), epsilon=1e-6)
    np.testing.assert_allclose(out, [0.365148, 0.730297, 1.095445, 1.460593], atol=1e-6)


def test_epsilon_cannot_be_taken_for_a_size():
    with pytest.raises(TypeError, match="positional"):
        unwrap(layer_norm)(jnp.ones(4), None, None, 12)
    with pytest.raises(TypeError, match="positional"):
        unwrap(rms_norm)(jnp.ones(4), None, 12)
    # What a library returns in which twelve features are an epsilon of 12.
    x = jnp.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(layer_norm(x, epsilon=12.0)[:2], [-0.412082, -0.137361], atol=1e-6)
    np.testing.assert_allclose(layer_norm(x, epsilon=1e-6)[:2], [-1.341640, -0.447213], atol=1e-6)


@BOTH
def test_constant_and_zero_vectors(norm):
    for epsilon in (1e-12, 1e-5):
        np.testing.assert_array_equal(norm(jnp.zeros(4), epsilon=epsilon), jnp.zeros(4))
    assert jnp.isnan(norm(jnp.zeros(4), epsilon=0.0)).all()
    np.testing.assert_array_equal(layer_norm(jnp.full(4, 5.0)), jnp.zeros(4))
    gradient = quickly(jax.grad(lambda x: norm(x).sum()))(jnp.zeros(4))
    assert jnp.isfinite(gradient).all()


@BOTH
def test_null_identity_parameters(normal, norm):
    (x,) = normal((B, T, D))
    np.testing.assert_array_equal(norm(x, jnp.ones(D)), norm(x))
    np.testing.assert_array_equal(layer_norm(x, jnp.ones(D), jnp.zeros(D)), layer_norm(x))


@pytest.mark.parametrize(
    ("norm", "change"),
    [
        (layer_norm, dict(scale=jnp.full(D, 2.0))),
        (layer_norm, dict(bias=jnp.full(D, 2.0))),
        (layer_norm, dict(epsilon=0.1)),
        (rms_norm, dict(scale=jnp.full(D, 2.0))),
        (rms_norm, dict(epsilon=0.1)),
        (rms_norm, dict(scale=jnp.zeros(D), scale_offset=3.0)),
    ],
)
def test_live_each_knob_changes_the_output(normal, norm, change):
    (x,) = normal((B, T, D))
    assert not np.allclose(norm(x), norm(x, **change))


@BOTH
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_statistics_are_float32(norm, dtype):
    # Squares of 400 overflow float16, and bfloat16 sums of 512 of them stop growing.
    x = jnp.where(jnp.arange(512) % 2 == 0, 400, -400).astype(dtype)
    out = norm(x, jnp.ones(512, dtype))
    assert out.dtype == dtype
    np.testing.assert_array_equal(jnp.abs(out), jnp.ones(512, dtype))


@BOTH
def test_wrong_arguments_are_named(norm):
    x = jnp.ones((B, T, D))
    with pytest.raises(ValueError, match="at least 0, got epsilon=-0.1"):
        norm(x, epsilon=-0.1)
    with pytest.raises(ValueError, match=r"got scale.shape=\(1,\) for x.shape=\(2, 3, 7\)"):
        unwrap(norm)(x, jnp.ones(1))
    with pytest.raises(ValueError, match="dtype=int32"):
        unwrap(norm)(jnp.ones(4, jnp.int32))


def test_an_offset_is_added_to_the_scale_in_float32():
    # In bfloat16 the sums would be 4.125 and 16.75.
    scale = jnp.array([3.140625, 15.8125], jnp.bfloat16)
    out = rms_norm(jnp.ones(2), scale, epsilon=0.0, scale_offset=1.0)
    np.testing.assert_array_equal(out, [4.140625, 16.8125])


def test_null_an_offset_of_one_makes_a_scale_of_zero_neutral(normal):
    (x,) = normal((B, T, D))
    np.testing.assert_array_equal(rms_norm(x, jnp.zeros(D), scale_offset=1.0), rms_norm(x))
    np.testing.assert_array_equal(rms_norm(x, jnp.ones(D), scale_offset=0.0), rms_norm(x))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_live_the_cast_before_the_scale_rounds_twice(normal, dtype):
    x, scale = normal((64, 32), (32,), dtype=dtype)
    plain = np.asarray(rms_norm(x.astype(jnp.float32)))
    wide = np.asarray(scale, np.float32)
    twice = (plain.astype(dtype).astype(np.float32) * wide).astype(dtype)
    once = (plain * wide).astype(dtype)
    for run in (norms.rms_norm, rms_norm):  # step by step, and as one program
        np.testing.assert_array_equal(run(x, scale, cast="before"), twice)
        np.testing.assert_array_equal(run(x, scale, cast="after"), once)
    assert np.mean(once != twice) > 0.1


def test_null_the_cast_does_nothing_in_float32_and_keeps_small_halves(normal):
    x, scale = normal((B, T, D), (D,))
    np.testing.assert_array_equal(rms_norm(x, scale, cast="before"), rms_norm(x, scale))
    small = rms_norm(jnp.array([1e-3, 52], jnp.float16), jnp.ones(2, jnp.float16), cast="before")
    np.testing.assert_allclose(small, [2.72e-5, 1.414], rtol=2e-3)


def test_scale_norm_gives_every_position_the_same_length(normal):
    np.testing.assert_array_equal(
        scale_norm(jnp.array([3.0, -4.0]), jnp.array(10.0), epsilon=0.0), [6, -8]
    )
    (x,) = normal((B, T, D))
    lengths = jnp.linalg.norm(scale_norm(100 * x, jnp.array(2.5)), axis=-1)
    np.testing.assert_allclose(lengths, np.full((B, T), 2.5), rtol=1e-6)


def test_scale_norm_is_rms_norm_with_one_factor(normal):
    (x,) = normal((B, T, D))
    uniform = jnp.full(D, 2 / D**0.5)
    found = scale_norm(x, jnp.array(2.0), epsilon=0.7)
    np.testing.assert_allclose(found, rms_norm(x, uniform, epsilon=0.7 / D), rtol=1e-6)


def test_epsilon_of_scale_norm_is_added_to_the_squared_length():
    x, one = jnp.array([3e-3, 0.0]), jnp.array(1.0)
    # 0.9967 were it added to the length, 1 were it a lower bound of the length.
    np.testing.assert_allclose(scale_norm(x, one, epsilon=1e-5), [0.688247, 0], rtol=1e-5)
    slope = quickly(jax.grad(lambda x: scale_norm(x, one, epsilon=1e-5).sum()))(jnp.zeros(2))
    np.testing.assert_allclose(slope, [1e5**0.5] * 2, rtol=1e-5)
    assert jnp.isnan(scale_norm(jnp.zeros(2), one, epsilon=0.0)).all()


def test_dynamic_tanh_by_hand():
    x, alpha = jnp.array([[-2.0, 0.0, 1.0]]), jnp.array(0.5)
    plain = [[-0.7615942, 0.0, 0.4621172]]
    np.testing.assert_allclose(dynamic_tanh(x, alpha), plain, rtol=1e-6)
    scale, bias = jnp.array([2.0, 2.0, -1.0]), jnp.array([0.0, 3.0, 1.0])
    found = dynamic_tanh(x, alpha, scale, bias)
    np.testing.assert_allclose(found, [[-1.5231884, 3.0, 0.5378828]], rtol=1e-6)
    np.testing.assert_array_equal(
        dynamic_tanh(x, alpha, jnp.ones(3), jnp.zeros(3)), dynamic_tanh(x, alpha)
    )


def test_dynamic_tanh_bounds_and_has_no_statistics(normal):
    (x,) = normal((B, T, D), dtype=jnp.float16)
    one = jnp.array(1.0)
    assert jnp.abs(dynamic_tanh(1000 * x, one)).max() <= 1
    # Unlike a norm it sees the scale of its input, and each entry alone.
    assert not np.allclose(dynamic_tanh(2 * x, one), dynamic_tanh(x, one), atol=0.1)
    np.testing.assert_array_equal(dynamic_tanh(x, one)[..., :2], dynamic_tanh(x[..., :2], one))


def test_squares_overflow_from_a_known_length_on():
    sign = jnp.array([1.0, -1.0, 1.0, -1.0])
    for norm in (layer_norm, rms_norm, lambda x: scale_norm(x, jnp.array(2.0))):
        np.testing.assert_allclose(norm(9.2e18 * sign), sign, rtol=1e-6)  # length 1.84e19
        np.testing.assert_array_equal(norm(9.3e18 * sign), jnp.zeros(4))
    # Layer norm takes the mean off first.
    np.testing.assert_allclose(layer_norm(1e20 + 1e19 * sign[:2]), sign[:2], rtol=1e-5)


def test_wrong_scales_and_casts_are_named():
    x = jnp.ones((B, T, D))
    with pytest.raises(ValueError, match=r"got scale=None, scale_offset=1.0; pass a scale of"):
        rms_norm(x, scale_offset=1.0)
    with pytest.raises(ValueError, match="Unknown cast 'never'; use 'after' or 'before'"):
        unwrap(rms_norm)(x, jnp.ones(D), cast="never")
    with pytest.raises(ValueError, match=r"scale must be a scalar array, got scale.shape=\(7,\)"):
        unwrap(scale_norm)(x, jnp.ones(D))
    with pytest.raises(ValueError, match=r"alpha must be a scalar array, got alpha.shape=\(1,\)"):
        unwrap(dynamic_tanh)(x, jnp.ones(1))
    with pytest.raises(ValueError, match=r"got bias.shape=\(1,\) for x.shape=\(2, 3, 7\)"):
        unwrap(dynamic_tanh)(x, jnp.ones(()), None, jnp.ones(1))
    with pytest.raises(ValueError, match="at least 0, got epsilon=-1.0"):
        scale_norm(x, jnp.ones(()), epsilon=-1.0)
    with pytest.raises(ValueError, match="dtype=int32"):
        unwrap(scale_norm)(jnp.ones(4, jnp.int32), jnp.ones(()))
