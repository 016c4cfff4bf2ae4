"""Tests for jtransformer.functional.losses.chunked_cross_entropy."""

import functools
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer.functional.losses import chunked_cross_entropy, cross_entropy

B, T, D, V = 2, 5, 4, 7
LABELS = jnp.asarray(np.arange(B * T).reshape(B, T) % V)
WEIGHTS = jnp.array([[1.0, 0.5, 0.0, 2.0, 1.0], [0.0, 1.0, 1.0, 1.0, 0.25]])
OPTIONS = dict(label_smoothing=0.1, z_loss=0.2, reference=jnp.arange(V) / jnp.sum(jnp.arange(V)))


def affine(hidden, kernel, bias):
    return hidden @ kernel + jnp.expand_dims(bias, tuple(range(hidden.ndim - 1)))


def whole(hidden, kernel, bias, labels=LABELS, weights=WEIGHTS, **options):
    return cross_entropy(affine(hidden, kernel, bias), labels, weights, **options)


def chunked(hidden, kernel, bias, labels=LABELS, weights=WEIGHTS, **options):
    head = functools.partial(affine, kernel=kernel, bias=bias)
    return chunked_cross_entropy(hidden, labels, weights, head=head, **options)


def loss_of(form, **options):
    return lambda *arrays: form(*arrays, **options).loss_sum


@pytest.fixture
def arrays(normal):
    return tuple(normal((B, T, D), (D, V), (V,)))


# One piece, a ragged end, whole chunks, more than there are.
@pytest.mark.parametrize("chunk_size", [10, 3, 5, 1024])
def test_equals_the_whole_in_value_and_gradient(arrays, chunk_size):
    both = [
        quickly(jax.value_and_grad(lambda *x, f=f: (f(*x).loss_sum, f(*x)), (0, 1, 2), True))
        for f in (
            functools.partial(whole, **OPTIONS),
            functools.partial(chunked, chunk_size=chunk_size, **OPTIONS),
        )
    ]
    expected, found = (f(*arrays) for f in both)
    for e, f in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-6)


def test_one_piece_has_the_bits_of_the_whole(arrays):
    np.testing.assert_array_equal(quickly(chunked)(*arrays), quickly(whole)(*arrays))


def test_without_weights_all_positions_count(arrays):
    found = quickly(functools.partial(chunked, weights=None, chunk_size=4))(*arrays)
    expected = quickly(functools.partial(whole, weights=None))(*arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found.weight_sum == B * T


@pytest.mark.parametrize("shape", [(), (2, 0), (2, 2, 3)])
def test_leading_axes_of_any_number(normal, shape):
    hidden, kernel, bias = normal((*shape, D), (D, V), (V,))
    labels = jnp.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % V)
    found = quickly(functools.partial(chunked, weights=None, chunk_size=4))(
        hidden, kernel, bias, labels
    )
    expected = quickly(functools.partial(whole, weights=None))(hidden, kernel, bias, labels)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_forward_mode(arrays):
    along = tuple(jnp.cos(x) for x in arrays)
    forward, expected = (
        quickly(functools.partial(jax.jvp, loss))(arrays, along)
        for loss in (loss_of(chunked, chunk_size=4), loss_of(whole))
    )
    np.testing.assert_allclose(forward, expected, rtol=1e-5)


def test_gradients_for_several_kernels_at_once(arrays):
    hidden, kernel, bias = arrays
    kernels = jnp.stack([kernel, 2 * kernel, -kernel])
    gradients = [
        quickly(jax.vmap(jax.grad(lambda k, loss=loss: loss(hidden, k, bias))))(kernels)
        for loss in (loss_of(chunked, chunk_size=4), loss_of(whole))
    ]
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-5)


def unit(x):
    """A norm without any guard: zeros have no direction."""
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("norm", [lambda x: x, unit])
def test_weight_zero_silences_states_that_are_no_numbers(arrays, norm):
    hidden, kernel, bias = arrays
    spoilt = jnp.where((WEIGHTS == 0)[..., None], jnp.nan, hidden)

    def loss(hidden, kernel):
        head = functools.partial(affine, kernel=kernel, bias=bias)
        return chunked_cross_entropy(
            hidden, LABELS, WEIGHTS, head=lambda x: head(norm(x)), chunk_size=4, **OPTIONS
        ).loss_sum

    run = quickly(jax.value_and_grad(loss, (0, 1)))
    for found, clean in zip(
        jax.tree.leaves(run(spoilt, kernel)), jax.tree.leaves(run(hidden, kernel)), strict=True
    ):
        assert jnp.isfinite(found).all()
        np.testing.assert_array_equal(found, clean)


def test_no_supervised_position_is_zero_and_no_nan(arrays):
    run = quickly(jax.grad(loss_of(chunked, weights=jnp.zeros((B, T)), chunk_size=4), (0, 1, 2)))
    for gradient in run(*arrays):
        np.testing.assert_array_equal(gradient, jnp.zeros_like(gradient))


def temporary_bytes(form, positions, vocabulary, **options):
    shapes = [(positions, D), (D, vocabulary), (vocabulary,)]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    labels = jax.ShapeDtypeStruct((positions,), jnp.int32)

    def loss(*arrays):
        return form(*arrays, weights=None, **options).loss_sum

    # The code that users run is looked at here.
    compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*arrays, labels).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_live_the_chunk_bounds_the_memory():
    """What the compiler sets aside, exactly: no more logits than those of two chunks."""
    positions, vocabulary = 2048, 4096
    logits = 4 * positions * vocabulary
    assert temporary_bytes(whole, positions, vocabulary) >= logits
    small, large, longer = (
        temporary_bytes(chunked, *sizes, chunk_size=chunk_size)
        for *sizes, chunk_size in (
            (positions, vocabulary, 32),
            (positions, vocabulary, 64),
            (2 * positions, vocabulary, 64),
        )
    )
    parameters = 4 * (D + 1) * vocabulary
    assert small < large < 2 * 4 * 64 * vocabulary + 2 * parameters < logits / 12
    # Twice the positions bring their states and labels, and no logits.
    assert longer - large <= 4 * (2 * D + 2) * positions


def test_gradients_of_low_precision_parameters_are_summed_in_float32(normal):
    """Summed in bfloat16 over 128 chunks this gradient is off by 1.5 %."""
    hidden, kernel = normal((2048, D), (D, V), dtype=jnp.bfloat16)
    labels = jnp.asarray(np.arange(2048) % V)

    def loss(kernel, hidden, chunk_size):
        head = functools.partial(jnp.matmul, b=kernel)
        return chunked_cross_entropy(hidden, labels, head=head, chunk_size=chunk_size).loss_sum

    gradient = quickly(jax.grad(loss), static_argnums=2)
    exact = gradient(kernel.astype(jnp.float32), hidden.astype(jnp.float32), 2048)
    found = gradient(kernel, hidden, 16)
    assert found.dtype == jnp.bfloat16
    error = np.linalg.norm(found.astype(jnp.float32) - exact) / np.linalg.norm(exact)
    assert error < 0.004


def test_a_head_with_a_state_of_its_own_is_read_anew(arrays):
    """A head that is the same object with another content must not be taken for its old self."""
    hidden, kernel, bias = arrays

    class Head:
        factor = 1.0

        def __call__(self, rows):
            return self.factor * affine(rows, kernel, bias)

    head = Head()
    expected = quickly(cross_entropy)(3 * affine(hidden, kernel, bias), LABELS).nll_sum
    found = []
    for head.factor in (1.0, 3.0):
        form = functools.partial(chunked_cross_entropy, head=head, chunk_size=4)
        found.append(quickly(lambda hidden, form=form: form(hidden, LABELS).nll_sum)(hidden))
    assert not np.allclose(found[0], found[1])
    np.testing.assert_allclose(found[1], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(chunk_size=0), "chunk_size must be at least 1, got chunk_size=0"),
        (dict(labels=LABELS[:1]), r"labels.shape=\(1, 5\) for hidden.shape=\(2, 5, 4\)"),
        (dict(weights=WEIGHTS[:, :1]), r"weights.shape=\(2, 1\)"),
        (dict(label_smoothing=1.0), r"label_smoothing must lie in \[0, 1\), got 1.0"),
        (dict(z_loss=-1.0), "z_loss must be at least 0, got -1.0"),
        (dict(head=lambda x: (x, x)), "head must make one array of logits R V"),
        (dict(head=lambda x: x[0]), r"got the shapes \[\(4,\)\] for states.shape=\(10, 4\)"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    arguments = dict(hidden=jnp.ones((B, T, D)), labels=LABELS, head=lambda x: x) | change
    with pytest.raises(ValueError, match=message):
        unwrap(chunked_cross_entropy)(**arguments)
