"""Tests that rules which read the shape of a matrix see it whole, and one layer at a time."""

import descent
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jtransformer.spec import Adafactor, Muon, OptimizerSpec
from jtransformer.training import decayed, layer_matrix

D, N, H, L = 6, 2, 5, 2
SHAPES = {
    "attention": {"query": {"kernel": (D, N, H), "bias": (N, H)}, "out": {"kernel": (N, H, D)}},
    "ffn": {"in": {"kernel": (D, 4)}, "out": {"kernel": (4, D)}},
    "norm": {"scale": (D,)},
}
FLAT = {(D, N, H): (D, N * H), (N, H, D): (N * H, D), (N, H): (N * H,)}


def layers(seed):
    """Parameters of L layers, of different sizes from layer to layer."""
    generator = np.random.default_rng(seed)

    def drawn(shape, layer):
        return jnp.asarray((layer + 1.0) * generator.normal(size=shape), jnp.float32)

    is_shape = lambda x: isinstance(x, tuple)  # noqa: E731
    return {
        f"layer_{i}": jax.tree.map(lambda s, i=i: drawn(s, i), SHAPES, is_leaf=is_shape)
        for i in range(L)
    }


def stacked(tree):
    return {"layers": jax.tree.map(lambda *leaves: jnp.stack(leaves), *tree.values())}


def flat(tree):
    return jax.tree.map(lambda x: x.reshape(FLAT.get(x.shape, x.shape)), tree)


def updated(rule, parameters, gradients):
    return descent.updated(OptimizerSpec(rule=rule, weight_decay=0.1), parameters, gradients)


RULES = [Adafactor(factored_from=4), Adafactor(factored_from=10, decay_rate=0.5), Muon()]
PARAMETERS, GRADIENTS = layers(0), [layers(1), layers(2)]


def assert_equal(found, expected):
    compare = dict(rtol=2e-5, atol=2e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **compare), found, expected)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_law_stacked_layers_are_updated_as_layers_of_a_loop(rule):
    expected = stacked(updated(rule, PARAMETERS, GRADIENTS))
    found = updated(rule, stacked(PARAMETERS), [stacked(tree) for tree in GRADIENTS])
    assert_equal(found, expected)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_law_heads_are_seen_as_one_matrix(rule):
    expected = flat(updated(rule, PARAMETERS, GRADIENTS))
    found = updated(rule, flat(PARAMETERS), [flat(tree) for tree in GRADIENTS])
    assert_equal(found, expected)


def test_value_adafactor_of_matrices_is_that_of_optax():
    """Vectors and flat matrices need none of our reshaping, so optax can be asked directly."""
    rule = Adafactor(factored_from=4)
    parameters, gradients = flat(PARAMETERS), [flat(tree) for tree in GRADIENTS]
    theirs = optax.adafactor(
        0.1, min_dim_size_to_factor=4, weight_decay_rate=0.01, weight_decay_mask=decayed
    )
    theirs = optax.chain(optax.clip_by_global_norm(1.0), theirs)
    expected = descent.updated_by(theirs, parameters, gradients)
    assert_equal(updated(rule, parameters, gradients), expected)


def test_value_muon_makes_every_singular_value_alike():
    """Newton-Schulz with Jordan's coefficients leaves them within about 0.7 and 1.2."""
    moved = updated(Muon(), PARAMETERS, GRADIENTS[:1])["layer_1"]
    before = PARAMETERS["layer_1"]
    for names in (("attention", "query"), ("attention", "out"), ("ffn", "in")):
        old, new = (tree[names[0]][names[1]]["kernel"] for tree in (before, moved))
        # Decay and rate taken off again: -0.1 (0.2 max(rows, columns)^0.5 Q + 0.1 parameter).
        step = np.asarray((old - new) / 0.1 - 0.1 * old, np.float64)
        matrix = step.reshape(FLAT.get(step.shape, step.shape))
        found = np.linalg.svd(matrix, compute_uv=False) / (0.2 * max(matrix.shape) ** 0.5)
        assert found.min() > 0.6 and found.max() < 1.3
    scale = moved["norm"]["scale"] - before["norm"]["scale"]
    np.testing.assert_allclose(np.abs(scale), 0.1, rtol=1e-4)


@pytest.mark.parametrize(
    ("path", "rank", "expected"),
    [
        ("layer_0/attention/query/kernel", 3, ((0,), (1, 2))),
        ("layer_3/cross_attention/out/kernel", 3, ((0, 1), (2,))),
        ("decoder/layer_0/ffn/in/kernel", 2, ((0,), (1,))),
        ("layers/attention/value/kernel", 4, ((1,), (2, 3))),
        ("encoder/layers/attention/out/kernel", 4, ((1, 2), (3,))),
        ("layers/ffn/out/kernel", 3, ((1,), (2,))),
        ("layers/norm/scale", 2, None),
        ("layers/attention/query/bias", 3, None),
        ("layers/attention/relative_key/table", 3, None),
        ("embedding/table", 2, None),
        ("head/kernel", 2, None),
    ],
)
def test_value_which_axes_are_rows_and_columns(path, rank, expected):
    names = tuple(jax.tree_util.DictKey(name) for name in path.split("/"))
    assert layer_matrix(names, rank) == expected
