"""Tests for jtransformer.functional.losses."""

import functools
import math
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer.functional.losses import cross_entropy

B, T, V = 2, 3, 5
LABELS = jnp.array([[0, 4, 2], [2, 2, 1]])
WEIGHTS = jnp.array([[1.0, 0.5, 0.0], [2.0, 1.0, 0.0]])

summed = at_once(cross_entropy)
REFERENCE = jnp.array([0.5, 0.25, 0.125, 0.125, 0.0])


def smoothed_loss(logits, labels, **options):
    return cross_entropy(logits, labels, WEIGHTS, **options).loss_sum


@pytest.mark.usefixtures("float64")
def test_worked_values(golden):
    figures = golden("losses")
    logits, labels = jnp.array(figures["logits"]), jnp.array(figures["labels"])
    weights = jnp.array(figures["weights"])
    plain = summed(logits, labels, weights)
    np.testing.assert_allclose(plain.loss_sum / plain.weight_sum, figures["nll_mean"], atol=1e-14)
    smoothed = summed(logits, labels, weights, label_smoothing=figures["eta"])
    mean = smoothed.loss_sum / smoothed.weight_sum
    np.testing.assert_allclose(mean, figures["smoothed_uniform_mean"], atol=1e-14)
    assert smoothed.nll_sum == plain.nll_sum
    given = figures["smoothed_reference"]
    options = dict(label_smoothing=given["eta"], reference=jnp.array(given["u"]))
    referred = summed(logits, labels, weights, **options)
    np.testing.assert_allclose(referred.loss_sum / referred.weight_sum, given["mean"], atol=1e-14)
    each = [summed(*pair).nll_sum for pair in zip(logits, labels, strict=True)]
    np.testing.assert_allclose(each, figures["nll_each"], atol=1e-14)
    probabilities = quickly(jax.grad(lambda x: summed(x, jnp.array(2)).loss_sum))(
        jnp.array([2.0, 1.0, 0.0])
    ) + jnp.array([0.0, 0.0, 1.0])
    np.testing.assert_allclose(probabilities, figures["softmax_2_1_0"], atol=1e-14)


def test_definition_of_label_smoothing():
    logits, label = jnp.array([2.0, 0.0, 0.0, 0.0]), jnp.array(0)
    np.testing.assert_allclose(summed(logits, label).loss_sum, 0.340753, atol=1e-6)
    smoothed = summed(logits, label, label_smoothing=0.1)
    np.testing.assert_allclose(smoothed.loss_sum, 0.490753, atol=1e-6)
    np.testing.assert_allclose(smoothed.nll_sum, 0.340753, atol=1e-6)
    # Of the two definitions in circulation the other leaves the label out of what is spread.
    others = jnp.array([0.0, 1 / 3, 1 / 3, 1 / 3])
    spread = summed(logits, label, label_smoothing=0.1, reference=others)
    np.testing.assert_allclose(spread.loss_sum, 0.540753, atol=1e-6)


def test_smoothing_counts_no_padding(normal):
    (logits,) = normal((B, T, V))
    for options in (dict(label_smoothing=0.3), dict(label_smoothing=0.3, reference=REFERENCE)):
        alone = summed(logits[:1], LABELS[:1], **options)
        padded = summed(logits, LABELS, jnp.array([[1, 1, 1], [0, 0, 0]]), **options)
        np.testing.assert_allclose(padded, alone, rtol=1e-6)


def test_a_uniform_reference_is_the_default(normal):
    (logits,) = normal((B, T, V))
    default = summed(logits, LABELS, WEIGHTS, label_smoothing=0.1)
    uniform = dict(label_smoothing=0.1, reference=jnp.full(V, 1 / V))
    np.testing.assert_allclose(summed(logits, LABELS, WEIGHTS, **uniform), default, rtol=1e-6)
    none = summed(logits, LABELS, WEIGHTS, label_smoothing=0.1, reference=None)
    np.testing.assert_array_equal(none, default)


def test_a_label_keeps_its_own_share_of_the_reference():
    logits, certain = jnp.array([0.3, -1.0, 2.0]), jnp.array([0.0, 1.0, 0.0])
    smoothed = summed(logits, jnp.array(1), label_smoothing=0.4, reference=certain)
    np.testing.assert_allclose(smoothed.loss_sum, smoothed.nll_sum, rtol=1e-6)


def test_a_token_ruled_out_on_both_sides_costs_nothing(normal):
    """No share of the target and no probability: 0 times infinity must not become NaN."""
    (logits,) = normal((B, T, V))
    labels, ruled_out = jnp.minimum(LABELS, 3), logits.at[..., 4].set(-jnp.inf)
    options = dict(label_smoothing=0.1, reference=REFERENCE, z_loss=0.1)
    fewer = dict(options, reference=REFERENCE[:4])
    without = summed(logits[..., :4], labels, WEIGHTS, **fewer)
    np.testing.assert_allclose(summed(ruled_out, labels, WEIGHTS, **options), without, rtol=1e-6)
    plain = summed(ruled_out, labels, WEIGHTS)
    np.testing.assert_allclose(plain, summed(logits[..., :4], labels, WEIGHTS), rtol=1e-6)
    for smoothing in (options, {}):
        loss = functools.partial(smoothed_loss, labels=labels, **smoothing)
        gradient = quickly(jax.grad(loss))(ruled_out)
        assert jnp.isfinite(gradient).all()
        np.testing.assert_array_equal(gradient[..., 4], jnp.zeros((B, T)))
    # Uniform smoothing gives it a share, and that is what no probability costs.
    assert summed(ruled_out, labels, label_smoothing=0.1).loss_sum == jnp.inf


def test_derivative_by_the_reference(normal):
    (logits,) = normal((V,))

    def loss(reference):
        return summed(logits, jnp.array(1), label_smoothing=0.5, reference=reference).loss_sum

    expected = -0.5 * jax.nn.log_softmax(logits)
    np.testing.assert_allclose(quickly(jax.grad(loss))(REFERENCE), expected, rtol=1e-6)


@pytest.mark.parametrize("ignored", [-100, -1, 3, 1_000_000])
def test_an_ignored_label_may_be_any_integer(ignored):
    logits = jnp.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    labels = jnp.array([0, ignored])

    def loss(logits):
        return summed(logits, labels, jnp.array([1, 0]), label_smoothing=0.1).loss_sum

    sums = summed(logits, labels, jnp.array([1, 0]))
    np.testing.assert_allclose(sums.loss_sum, 2.407606, atol=1e-6)
    assert sums.weight_sum == 1
    gradient = quickly(jax.grad(loss))(logits)
    assert jnp.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[1], jnp.zeros(3))


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_weight_zero_silences_logits_that_are_no_numbers(normal, bad):
    (logits,) = normal((B, T, V))
    spoilt = jnp.where((WEIGHTS == 0)[..., None], bad, logits)
    options = dict(label_smoothing=0.1, z_loss=0.1)
    clean = summed(logits, LABELS, WEIGHTS, **options)
    np.testing.assert_array_equal(summed(spoilt, LABELS, WEIGHTS, **options), clean)
    loss = functools.partial(smoothed_loss, labels=LABELS, **options)
    gradient = quickly(jax.grad(loss))(spoilt)
    assert jnp.isfinite(gradient).all()
    assert (gradient[WEIGHTS == 0] == 0).all()
    assert (jnp.abs(gradient[WEIGHTS != 0]) > 0).all()


def test_no_supervised_position_is_zero_and_no_nan(normal):
    (logits,) = normal((B, T, V))

    def loss(logits):
        return summed(logits, LABELS, jnp.zeros((B, T)), z_loss=0.1).loss_sum

    np.testing.assert_array_equal(summed(logits, LABELS, jnp.zeros((B, T))), jnp.zeros(4))
    assert loss(logits) == 0
    np.testing.assert_array_equal(quickly(jax.grad(loss))(logits), jnp.zeros((B, T, V)))


@pytest.mark.parametrize("label", [-1, 5])
def test_a_counted_label_beyond_the_vocabulary_is_never_another_token(normal, label):
    (logits,) = normal((V,))
    for weights in (None, jnp.array(1.0)):
        assert jnp.isnan(summed(logits, jnp.array(label), weights).loss_sum)


@pytest.mark.parametrize("dtype", [bool, jnp.int32, jnp.bfloat16])
def test_types_of_weights(normal, dtype):
    (logits,) = normal((B, T, V))
    weights = (WEIGHTS > 0).astype(dtype)
    expected = summed(logits, LABELS, weights.astype(jnp.float32))
    np.testing.assert_array_equal(summed(logits, LABELS, weights), expected)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_logits_have_float32_sums(dtype):
    logits = jnp.zeros((4096, V), dtype)
    sums = summed(logits, jnp.zeros(4096, int))
    assert {each.dtype for each in sums} == {jnp.dtype(jnp.float32)}
    np.testing.assert_allclose(sums.loss_sum, 4096 * math.log(V), rtol=1e-6)


def test_logits_of_any_size_are_stable():
    logits = jnp.array([1e4, 0.0, -1e4])
    np.testing.assert_allclose(summed(logits, jnp.array(1)).loss_sum, 1e4)
    assert summed(logits, jnp.array(0)).loss_sum == 0


def test_null_and_live_options(normal):
    (logits,) = normal((B, T, V))
    plain = summed(logits, LABELS)
    neutral = summed(logits, LABELS, jnp.ones((B, T)), label_smoothing=0.0, z_loss=0.0)
    np.testing.assert_array_equal(neutral, plain)
    assert plain.loss_sum == plain.nll_sum
    changes = [dict(label_smoothing=0.1), dict(z_loss=1e-2), dict(weights=WEIGHTS)]
    for change in changes:
        assert not np.allclose(summed(logits, LABELS, **change).loss_sum, plain.loss_sum)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(labels=LABELS[:1]), r"labels.shape=\(1, 3\) for logits.shape=\(2, 3, 5\)"),
        (dict(weights=WEIGHTS[:, :1]), r"weights.shape=\(2, 1\)"),
        (dict(label_smoothing=1.0), r"label_smoothing must lie in \[0, 1\), got 1.0"),
        (dict(z_loss=-1.0), "z_loss must be at least 0, got -1.0"),
        (dict(reference=jnp.ones(4)), r"reference.shape=\(4,\) for logits.shape=\(2, 3, 5\)"),
        (dict(logits=jnp.ones((B, T, V), int)), "dtype=int32"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    arguments = dict(logits=jnp.ones((B, T, V)), labels=LABELS) | change
    with pytest.raises(ValueError, match=message):
        unwrap(cross_entropy)(**arguments)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.int16])
def test_labels_of_every_width_mean_the_same_tokens(normal, dtype):
    (logits,) = normal((3, 300))
    labels = np.array([5, 20, 40])
    expected = summed(logits, jnp.asarray(labels, jnp.int32)).nll_sum
    np.testing.assert_array_equal(summed(logits, jnp.asarray(labels, dtype)).nll_sum, expected)
    byte = quickly(unwrap(cross_entropy))(logits, jnp.asarray(labels, jnp.uint8))
    np.testing.assert_allclose(byte.nll_sum, expected, rtol=1e-6)


def test_error_labels_that_are_no_integers():
    with pytest.raises(ValueError, match="labels must be integers"):
        unwrap(cross_entropy)(jnp.ones((3, 4)), jnp.array([0.0, 1.0, 2.0]))


def test_factors_that_are_arrays_are_data_to_one_program():
    logits = jax.random.normal(jax.random.key(0), (B, T, V))
    program = quickly(
        lambda smoothing, z: cross_entropy(
            logits, LABELS, WEIGHTS, label_smoothing=smoothing, z_loss=z
        )
    )
    for smoothing, z in (0.1, 0.01), (0.3, 0.01), (0.1, 0.5):
        expected = summed(logits, LABELS, WEIGHTS, label_smoothing=smoothing, z_loss=z)
        found = program(jnp.float32(smoothing), jnp.float32(z))
        np.testing.assert_allclose(found.loss_sum, expected.loss_sum, rtol=1e-6)
        assert found.nll_sum == expected.nll_sum
    assert program._cache_size() == 1
