"""Laws of the cross-entropy as sums: how batches are added up, and who owns shift and weights."""

import jax
import jax.numpy as jnp
import numpy as np
from quickly import quickly

from jtransformer.functional.losses import cross_entropy

summed = quickly(cross_entropy)


def of_losses(losses):
    """Logits for two tokens whose first one costs so much."""
    return jnp.asarray(np.stack([np.zeros(len(losses)), np.log(np.expm1(losses))], -1), jnp.float32)


def test_sums_of_batches_add_up(normal):
    (logits,) = normal((2, 3, 5))
    labels, weights = jnp.array([[0, 4, 2], [2, 2, 1]]), jnp.array([[1.0, 0.5, 0], [2.0, 1.0, 0]])
    parts = [summed(*row) for row in zip(logits, labels, weights, strict=True)]
    np.testing.assert_allclose(np.sum(parts, axis=0), summed(logits, labels, weights), rtol=1e-6)


def test_micro_batches_of_unequal_size_give_the_mean_over_their_tokens():
    """A mean of their means would be 2.5."""
    batches = [of_losses([4.0]), of_losses([1.0, 1.0, 1.0])]

    def mean(batches):
        sums = [cross_entropy(logits, jnp.zeros(len(logits), int)) for logits in batches]
        return sum(s.loss_sum for s in sums) / sum(s.weight_sum for s in sums)

    value, parts = quickly(jax.value_and_grad(mean))(batches)
    np.testing.assert_allclose(value, 7 / 4, rtol=1e-6)
    (whole,) = quickly(jax.grad(mean))([np.concatenate(batches)])
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-6)


def test_devices_of_unequal_share_give_the_mean_over_their_tokens():
    """A mean over devices of their means would be 1.5."""
    logits = of_losses([2.0, 1.0, 1.0, 1.0, 1.0, 1.0]).reshape(2, 3, 2)
    weights = jnp.array([[1, 0, 0], [1, 1, 1]])

    def mean(logits, weights):
        sums = cross_entropy(logits, jnp.zeros(3, int), weights)
        return jax.lax.psum(sums.loss_sum, "devices") / jax.lax.psum(sums.weight_sum, "devices")

    both = quickly(jax.vmap(mean, axis_name="devices"))(logits, weights)
    np.testing.assert_allclose(both, [5 / 4, 5 / 4], rtol=1e-6)


def peaks(tokens, size):
    """Logits that expect these tokens."""
    return jnp.asarray(20 * np.eye(size)[np.asarray(tokens)], jnp.float32)


def test_labels_are_not_shifted():
    """The data shift them, once; a model that copies its input must not get a low loss."""
    tokens = np.array([5, 6, 7, 8])
    inputs, targets = tokens[:-1], jnp.asarray(tokens[1:])
    assert summed(peaks(inputs + 1, 9), targets).nll_sum < 1e-6
    assert summed(peaks(inputs + 1, 9), targets).weight_sum == 3
    assert summed(peaks(inputs, 9), targets).nll_sum > 50


def test_a_position_is_judged_by_its_own_logits_alone(normal):
    (logits,) = normal((3, 5))
    labels = jnp.array([4, 0, 2])
    slopes = quickly(jax.jacrev(lambda x: jax.vmap(cross_entropy)(x, labels).nll_sum))(logits)
    moves = np.abs(slopes).max(-1) > 0
    np.testing.assert_array_equal(moves, np.eye(3, dtype=bool))


def test_the_final_end_token_is_scored_where_it_also_pads():
    """Weights come from lengths; taken from the values, both end tokens would be lost."""
    tokens = np.array([[5, 2, 7, 2, 2, 2]])
    lengths = np.array([[4]])
    targets, weights = jnp.asarray(tokens[:, 1:]), jnp.asarray(np.arange(1, 6)[None] < lengths)
    # Only the last real target, an end token, is not the one that is expected.
    sums = summed(peaks([[2, 7, 5, 2, 2]], 9), targets, weights)
    assert sums.weight_sum == 3
    np.testing.assert_allclose(sums.nll_sum, 20, rtol=1e-5)
