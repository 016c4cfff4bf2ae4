"""Tests of attention over blocks of queries: equal to the plain path, with memory for one block."""

import functools
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr
from quickly import quickly

from jtransformer.functional import Visibility, attention, causal_mask, dot_product_attention
from jtransformer.functional._blockwise import BLOCK_SCORES, FEWEST_ROWS, ROWS, block_rows

B, T, S, N, K, H, Hv = 2, 7, 5, 6, 2, 4, 3
RANDOM = np.random.default_rng(0)
LINE = jnp.arange(T)[None]
CASES = {
    "plain": {},
    "two axes": dict(mask=jnp.array(RANDOM.random((T, S)) < 0.5)),
    "full": dict(
        mask=jnp.array(RANDOM.random((B, N, T, S)) < 0.5),
        bias=jnp.array(RANDOM.normal(size=(B, N, T, S)), jnp.float32),
    ),
    "broadcast": dict(
        mask=jnp.array(RANDOM.random((B, 1, 1, S)) < 0.7),
        bias=jnp.array(RANDOM.normal(size=(1, N, 1, S)), jnp.float32),
        soft_cap=2.0,
        scale=0.3,
    ),
    "visibility": dict(
        mask=Visibility(LINE, LINE[:, :S], window=3, key_valid=jnp.ones((B, S), bool))
    ),
    "heads": dict(heads_on=jnp.arange(N) % 2 == 0, bias=jnp.ones((T, 1))),
}


@pytest.fixture
def make(normal):
    """Draws queries, keys and values."""
    return lambda: normal((B, T, N, H), (B, S, K, H), (B, S, K, Hv))


@pytest.fixture
def rows(monkeypatch):
    """Sets how many queries form a block."""
    return lambda count: monkeypatch.setattr(attention, "block_rows", lambda shape: count)


def in_blocks(q, k, v, **options):
    return dot_product_attention(q, k, v, backend="blockwise", **options)


def plainly(q, k, v, **options):
    return dot_product_attention(q, k, v, backend="plain", **options)


# 7 queries: seven blocks; two blocks and a rest; one block; less than one block.
@pytest.mark.parametrize(
    ("name", "count"), [(name, 3) for name in CASES] + [("full", count) for count in (1, 7, 8)]
)
def test_equals_the_plain_path(make, rows, name, count):
    rows(count)
    arrays = make()
    found, expected = (
        quickly(functools.partial(path, **CASES[name]))(*arrays) for path in (in_blocks, plainly)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["full", "broadcast", "visibility"])
def test_derivatives_equal_those_of_the_plain_path(make, rows, name):
    rows(3)
    options = dict(CASES[name])
    arrays = (*make(), options.pop("bias", jnp.zeros((1, 1, 1, 1))))

    def derivatives(function):
        @quickly
        def both(*arrays):
            def out(q, k, v, bias):
                return function(q, k, v, bias=bias, **options)

            primal, forward = jax.jvp(out, arrays, arrays)
            return forward, jax.vjp(out, *arrays)[1](jnp.cos(primal))

        return both(*arrays)

    for pair in zip(*map(jax.tree.leaves, map(derivatives, (in_blocks, plainly))), strict=True):
        np.testing.assert_allclose(*pair, atol=1e-5)


def test_a_blind_query_gets_exact_zeros_in_every_block(make, rows):
    rows(2)
    mask = jnp.ones((T, S), bool).at[jnp.array([0, 3, 6])].set(False)
    blind_T = np.array([True, False, False, True, False, False, True])

    @quickly
    def both(*arrays):
        out, pull = jax.vjp(functools.partial(in_blocks, mask=mask), *arrays)
        of_blind = jnp.where(blind_T[:, None, None], jnp.ones(out.shape[1:]), 0)[None]
        return out, pull(jnp.ones_like(out)), pull(jnp.repeat(of_blind, B, axis=0))

    out, of_all, of_blind = both(*make())
    assert (out[:, blind_T] == 0).all()
    assert (out[:, ~blind_T] != 0).all()
    assert (of_all[0][:, blind_T] == 0).all()
    assert all((pulled == 0).all() for pulled in of_blind)


def test_mapped_over_masks_equals_a_loop(make, rows):
    rows(3)
    q, k, v = make()
    masks = jnp.array(RANDOM.random((4, T, S)) < 0.6)
    found = quickly(jax.vmap(lambda mask: in_blocks(q, k, v, mask=mask)))(masks)
    one_by_one = quickly(lambda mask: plainly(q, k, v, mask=mask))
    np.testing.assert_allclose(found, [one_by_one(mask) for mask in masks], atol=1e-6)


def test_the_future_moves_no_bit_of_the_past(make, rows):
    rows(3)
    q, _, _ = make()
    attend = quickly(lambda x: in_blocks(x, x, x, mask=causal_mask(T)))
    out, after = attend(q), attend(q.at[:, 4].add(5.0))
    np.testing.assert_array_equal(after[:, :4], out[:, :4])
    assert not np.allclose(after[:, 4:], out[:, 4:])


def test_block_sizes():
    assert block_rows((1, 8, 4096, 4096)) == ROWS == 128
    assert block_rows((1, 8, 4096, 8192)) == FEWEST_ROWS == 64
    assert block_rows((64, 16, 4096, 8192)) == FEWEST_ROWS
    assert block_rows((1, 8, 1000, 1000)) == 125  # divides 1000, so nothing is left over
    assert block_rows((1, 1, 1009, 100)) == ROWS  # a prime: a rest is left
    assert block_rows((0, 1, 0, 0)) == ROWS
    for S in (100, 5000, 70_000):
        assert S * block_rows((1, 1, 5000, S)) <= max(BLOCK_SCORES, FEWEST_ROWS * S)


def test_long_enough_for_blocks_of_the_real_size(normal):
    q, k, v = normal((1, 1009, 2, 4), (1, 1009, 1, 4), (1, 1009, 1, 3))
    mask = Visibility(jnp.arange(1009)[None], jnp.arange(1009)[None], window=200)
    assert block_rows((1, 2, 1009, 1009)) == 128
    found, expected = (
        quickly(functools.partial(path, mask=mask))(q, k, v) for path in (in_blocks, plainly)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


def compiled(backend, T):
    """Forward and backward of causal attention; compiled, not run."""
    heads = jax.ShapeDtypeStruct((1, T, 8, 64), jnp.float32)

    def step(q, k, v, upstream):
        line = jnp.arange(T)[None]
        attend = functools.partial(
            dot_product_attention, mask=Visibility(line, line), backend=backend
        )
        out, pull = jax.vjp(attend, q, k, v)
        return out, pull(upstream)

    return jax.jit(step).lower(heads, heads, heads, heads)


def test_a_quarter_of_the_memory_at_length_4096():
    plain, lean = (
        compiled(backend, 4096).compile().memory_analysis().temp_size_in_bytes
        for backend in ("plain", "blockwise")
    )
    assert 0 < 4 * lean < plain


def sizes(program):
    """Sizes of every array of a program, those inside its loops too."""
    for equation in program.eqns:
        yield from (variable.aval.size for variable in equation.outvars)
        for inner in jax.tree.leaves(list(equation.params.values())):
            if isinstance(inner, Jaxpr | ClosedJaxpr):
                yield from sizes(inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner)


@pytest.mark.parametrize(("backend", "holds_all"), [("plain", True), ("blockwise", False)])
def test_a_visibility_is_never_drawn_whole(backend, holds_all):
    T = 2048
    line = jnp.arange(T)[None]

    def loss(x):
        mask = Visibility(line, line)
        return dot_product_attention(x, x, x, mask=mask, backend=backend).sum()

    x = jax.ShapeDtypeStruct((1, T, 1, 8), jnp.float32)
    largest = max(sizes(jax.make_jaxpr(jax.grad(loss))(x).jaxpr))
    assert (largest >= T * T) == holds_all
    assert holds_all or largest <= ROWS * T


def test_dropout_is_refused_since_it_would_drop_other_weights(make, key):
    q, k, v = make()
    with pytest.raises(ValueError, match="backend='blockwise' would drop other weights.*'plain'"):
        in_blocks(q, k, v, dropout_rate=0.1, key=key)
    out = in_blocks(q, k, v)
    np.testing.assert_array_equal(in_blocks(q, k, v, dropout_rate=0.1), out)
    np.testing.assert_array_equal(in_blocks(q, k, v, key=key), out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(mask=jnp.ones((T, 2), bool)), r"mask.shape=\(7, 2\)"),
        (dict(bias=jnp.ones((2, S))), r"bias.shape=\(2, 5\)"),
        (dict(dropout_rate=1.0), "dropout_rate=1.0"),
        (dict(soft_cap=-1.0), "soft_cap must be positive"),
    ],
)
def test_wrong_arguments_are_named_as_on_the_plain_path(make, options, message):
    for backend in ("plain", "blockwise"):
        with pytest.raises(ValueError, match=message):
            unwrap(dot_product_attention)(*make(), backend=backend, **options)
