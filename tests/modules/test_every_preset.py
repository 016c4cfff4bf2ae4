"""What must hold for every model of the family, by the shrunk presets."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tiny_model
import tiny_presets
from quickly import quickly
from tiny_presets import S, T, V

from jtransformer import functional as F
from jtransformer.modules import build, stack_layers, unstack_layers

B, PREFIX = 2, 3
MODELS = tiny_presets.models()
EVERY_PRESET = pytest.mark.parametrize("name", MODELS)
GENERATOR = np.random.default_rng(5)
TOKENS = GENERATOR.integers(V, size=(B, T)).astype(np.int32)
SOURCE = GENERATOR.integers(V, size=(B, S)).astype(np.int32)
POSITIONS = np.broadcast_to(np.arange(T, dtype=np.int32), (B, T))
ALL = np.full((B, T), True)
ONE = np.ones((B, T), np.int32)
STARTS, PROGRAMS = {}, {}


def usual(spec):
    """Returns the arrays that a model is given where a law says nothing else."""
    given = dict(positions=POSITIONS, valid=ALL, segments=ONE)
    if spec.has_encoder:
        given |= dict(source=SOURCE, source_valid=np.full((B, S), True))
        given["source_segments"] = np.ones((B, S), np.int32)
        given["source_positions"] = np.broadcast_to(np.arange(S, dtype=np.int32), (B, S))
    if spec.stack.kind == "prefix_decoder":
        given["prefix_length"] = np.full(B, PREFIX, np.int32)
    return given


def forward(spec, variables, tokens=TOKENS, **changes):
    """Runs a model with every array given, so that one program serves all laws."""
    given = jax.tree.map(jnp.asarray, usual(spec) | changes)
    return build(spec).apply(variables, jnp.asarray(tokens), **given)


def logits_of(name, tokens=TOKENS, **changes):
    if name not in PROGRAMS:
        spec = MODELS[name]

        def run(variables, tokens, changes):
            return forward(spec, variables, tokens, **changes).logits

        PROGRAMS[name] = quickly(run)
    return np.asarray(PROGRAMS[name](started(name), tokens, usual(MODELS[name]) | changes))


def started(name):
    if name not in STARTS:
        STARTS[name] = tiny_model.drawn(MODELS[name])
    return STARTS[name]


def other_at(tokens, t):
    changed = np.array(tokens)
    changed[:, t] = (changed[:, t] + 1) % V
    return changed


@EVERY_PRESET
def test_a_token_reaches_what_may_see_it_and_nothing_else(name):
    spec, before = MODELS[name], logits_of(name)
    for t in (1, T - 1):
        after = logits_of(name, other_at(TOKENS, t))
        moved = (after != before).any(axis=(0, 2))
        reached = np.arange(T) >= t
        if not spec.causal:
            reached[:] = True
        if spec.stack.kind == "prefix_decoder" and t < PREFIX:
            reached |= np.arange(T) < PREFIX
        np.testing.assert_array_equal(moved, reached)


@EVERY_PRESET
def test_padding_is_invisible(name):
    valid = ALL.copy()
    valid[:, 5:] = False
    changes = dict(valid=valid)
    before = logits_of(name, **changes)
    after = logits_of(name, other_at(other_at(TOKENS, 6), 7), **changes)
    np.testing.assert_array_equal(after[:, :5], before[:, :5])
    if MODELS[name].has_encoder:
        source_valid = np.arange(S)[None] < np.array([[3], [3]])
        before = logits_of(name, source_valid=source_valid)
        after = logits_of(name, source_valid=source_valid, source=other_at(SOURCE, 4))
        np.testing.assert_array_equal(after, before)
        assert (logits_of(name, source=other_at(SOURCE, 4)) != logits_of(name)).any()


@EVERY_PRESET
def test_rows_do_not_see_each_other(name):
    tokens = np.array(TOKENS)
    tokens[1] = (tokens[1] + 1) % V
    np.testing.assert_array_equal(logits_of(name, tokens)[0], logits_of(name)[0])


# A prefix stands at the start of its row, so that rows of a prefix decoder are never packed.
@pytest.mark.parametrize("name", [name for name in MODELS if name != "prefix_lm"])
def test_packed_examples_are_as_examples_alone(name):
    spec = MODELS[name]
    first, second = 5, 3
    segments = np.where(np.arange(T) < first, 1, 2)[None].repeat(B, 0).astype(np.int32)
    positions = np.where(np.arange(T) < first, np.arange(T), np.arange(T) - first)
    changes = dict(segments=segments, positions=positions[None].repeat(B, 0).astype(np.int32))
    alone = np.array(TOKENS)
    alone[1, :second], alone[1, second:] = TOKENS[0, first:], 0
    alone[0, first:] = 0
    valid = np.arange(T)[None] < np.array([[first], [second]])
    changes_alone = dict(valid=valid)
    if spec.has_encoder:
        cut = 3
        source = np.array(SOURCE)
        source[1, : S - cut], source[1, S - cut :] = SOURCE[0, cut:], 0
        source[0, cut:] = 0
        changes_alone |= dict(source=source)
        changes_alone["source_valid"] = np.arange(S)[None] < np.array([[cut], [S - cut]])
        changes["source_segments"] = np.where(np.arange(S) < cut, 1, 2)[None].repeat(B, 0)
        changes["source_segments"] = changes["source_segments"].astype(np.int32)
        places = np.where(np.arange(S) < cut, np.arange(S), np.arange(S) - cut)
        changes["source_positions"] = places[None].repeat(B, 0).astype(np.int32)
    packed = logits_of(name, **changes)[0]
    rows = logits_of(name, alone, **changes_alone)
    np.testing.assert_allclose(packed[:first], rows[0, :first], atol=2e-5)
    np.testing.assert_allclose(packed[first:], rows[1, :second], atol=2e-5)


def loss_and_gradient(spec):
    def loss(variables):
        sums = F.cross_entropy(forward(spec, variables).logits, jnp.asarray(TOKENS))
        return sums.loss_sum

    return quickly(jax.value_and_grad(loss))


def assert_close(found, expected):
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True
    ):
        size = max(1.0, float(jnp.abs(b).max()))
        np.testing.assert_allclose(a, b, atol=2e-5 * size, err_msg=jax.tree_util.keystr(path))


FAST = ("gpt2_small", "llama2_7b", "transformer_base")


@pytest.mark.parametrize(
    "name",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in MODELS],
)
def test_a_scan_that_is_rematerialised_is_the_loop(name):
    spec, variables = MODELS[name], started(name)
    scanned = dataclasses.replace(spec, scan_layers=True, rematerialize="everything")
    stacked = stack_layers(spec, variables)
    loss, gradient = loss_and_gradient(spec)(variables)
    found, stacked_gradient = loss_and_gradient(scanned)(stacked)
    np.testing.assert_allclose(found, loss, rtol=2e-6)
    assert_close(unstack_layers(spec, stacked_gradient), gradient)
    for a, b in zip(
        jax.tree.leaves(unstack_layers(spec, stacked)), jax.tree.leaves(variables), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    if spec.head.kind == "tokens" and spec.head.tied:
        # A token that is never read still moves, through the head.
        unread = sorted(set(range(V)) - set(TOKENS.ravel()) - set(SOURCE.ravel()))
        table = gradient["params"]["embedding"]["table"]
        assert unread and (np.abs(np.asarray(table)[unread]).max(axis=1) > 0).all()


@EVERY_PRESET
def test_a_restored_model_is_the_saved_one(name, tmp_path):
    variables = started(name)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", variables)
        checkpointer.wait_until_finished()
        like = jax.eval_shape(lambda: variables)
        restored = checkpointer.restore(tmp_path / "saved", like)
    before = logits_of(name)
    STARTS[name] = restored
    np.testing.assert_array_equal(logits_of(name), before)
    # One table serves both ends of a tied model, before and after.
    assert jax.tree.structure(restored) == jax.tree.structure(variables)
