"""Tests of attention in steps: equal to the plain path, without the products that are hidden."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr
from quickly import quickly

from jtransformer.functional import (
    Visibility,
    _blockwise,
    attention_backend,
    dot_product_attention,
)

B, T, N, K, H, Hv = 2, 7, 6, 2, 4, 3
RANDOM = np.random.default_rng(0)
DOCUMENTS = jnp.array([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 2, 2]])
REAL = jnp.arange(T)[None] < jnp.array([[7], [4]])
CASES = {
    "causal": dict(mask=Visibility.of_places(T)),
    "documents": dict(mask=Visibility.of_places(T, segments=DOCUMENTS, valid=REAL)),
    "window": dict(mask=Visibility.of_places(T, window=2), soft_cap=2.0, scale=0.3),
    "both ways": dict(mask=Visibility.of_places(T, window=3, causal=False)),
    "bias": dict(
        mask=Visibility.of_places(T),
        bias=jnp.array(RANDOM.normal(size=(B, N, T, T)), jnp.float32),
    ),
    "broadcast bias": dict(
        mask=Visibility.of_places(T, window=4),
        bias=jnp.array(RANDOM.normal(size=(1, N, 1, T)), jnp.float32),
        heads_on=jnp.arange(N) % 2 == 0,
    ),
}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Makes steps of 2, 2, 2 queries and a rest."""
    monkeypatch.setattr(_blockwise, "FEWEST_ROWS", 1)


@pytest.fixture
def make(normal):
    """Draws queries, keys and values."""
    return lambda: normal((B, T, N, H), (B, T, K, H), (B, T, K, Hv))


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_equal_those_of_the_plain_path(make, name):
    options = dict(CASES[name])
    arrays = (*make(), options.pop("bias", jnp.zeros((1, 1, 1, 1))))

    def derivatives(backend):
        @quickly
        def both(*arrays):
            def out(q, k, v, bias):
                return dot_product_attention(q, k, v, bias=bias, **options, backend=backend)

            primal, forward = jax.jvp(out, arrays, arrays)
            return primal, forward, jax.vjp(out, *arrays)[1](jnp.cos(primal))

        return both(*arrays)

    for pair in zip(*map(jax.tree.leaves, map(derivatives, ("stepped", "plain"))), strict=True):
        np.testing.assert_allclose(*pair, atol=1e-5)


def products(function, *arrays):
    """Counts the multiplications of the products of matrices in a function."""
    jaxpr: ClosedJaxpr = jax.make_jaxpr(function)(*arrays)
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            depth = [equation.invars[0].aval.shape[axis] for axis in contracted]
            total += int(np.prod([*equation.outvars[0].aval.shape, *depth]))
    return total


@pytest.mark.parametrize(
    ("mask", "seen"),
    [
        # Of 8 queries in 4 steps: 2 + 4 + 6 + 8 keys of 4 times 8; with a window 2 + 3 + 3 + 3.
        (Visibility.of_places(8), 20 / 32),
        (Visibility.of_places(8, window=2), 11 / 32),
        (Visibility.of_places(8, window=2, causal=False), 14 / 32),
    ],
)
def test_products_with_hidden_keys_are_left_out(normal, mask, seen):
    arrays = normal((B, 8, N, H), (B, 8, K, H), (B, 8, K, H))
    counts = [
        products(functools.partial(dot_product_attention, mask=mask, backend=backend), *arrays)
        for backend in ("stepped", "plain")
    ]
    assert counts[0] == seen * counts[1] > 0


def shapes(T=128, S=None, B=1):
    return [
        jax.ShapeDtypeStruct((B, length, 2, 8), jnp.float32)
        for length in (T, T if S is None else S, T if S is None else S)
    ]


LINE = jnp.arange(128)[None]


@pytest.mark.parametrize(
    ("expected", "arrays", "mask", "options"),
    [
        ("stepped", shapes(), Visibility.of_places(128), {}),
        ("stepped", shapes(), Visibility.of_places(128, window=5, causal=False), {}),
        ("stepped", shapes(), Visibility.of_places(128), dict(soft_cap=2.0)),
        ("plain", shapes(), Visibility.of_places(128), dict(platform="rocm")),
        ("plain", shapes(T=127), Visibility.of_places(127), {}),
        ("plain", shapes(S=256), Visibility.of_places(256), {}),
        ("plain", shapes(), Visibility.of_places(128, causal=False), {}),
        ("plain", shapes(), Visibility.of_places(128, prefix_length=3), {}),
        ("plain", shapes(), Visibility(LINE, LINE), {}),
        ("plain", shapes(), None, {}),
        ("plain", shapes(), Visibility.of_places(128), dict(dropout_rate=0.1)),
        ("blockwise", shapes(B=512), Visibility.of_places(128), {}),
    ],
)
def test_chosen_where_hidden_keys_are_known_on_a_cpu(expected, arrays, mask, options):
    given = {"platform": "cpu", "key": jax.random.key(0)} | options
    assert attention_backend(*arrays, mask=mask, **given) == expected


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (Visibility(LINE[:, :T], LINE[:, :T]), "the same tokens"),
        (Visibility.of_places(T, causal=False), "hidden by place"),
        (Visibility.of_places(T, prefix_length=2), "hidden by place"),
    ],
)
def test_what_hides_no_key_by_place_is_refused(make, mask, message):
    with pytest.raises(ValueError, match=f"backend='stepped' .*{message}.*; use 'auto' or 'plain'"):
        dot_product_attention(*make(), mask=mask, backend="stepped")


def test_dropout_is_refused(make):
    with pytest.raises(ValueError, match="would drop other weights"):
        dot_product_attention(
            *make(),
            mask=Visibility.of_places(T),
            dropout_rate=0.1,
            key=jax.random.key(0),
            backend="stepped",
        )
