"""Gradients of parts added up, losses in chunks, and dropout that knows no layout."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_run
from quickly import quickly

from jtransformer import functional as F
from jtransformer.data import Batch
from jtransformer.spec import (
    CmuDict,
    Constant,
    DataSpec,
    Dropout,
    EncoderDecoder,
    LossSpec,
    ModelSpec,
    OptimizerSpec,
    Precision,
    RunSpec,
    Seq2Seq,
    Sgd,
    TokenHead,
    TrainingSpec,
)
from jtransformer.training import Program, dropout_key, hyperparameters, parameter_key
from jtransformer.training.gradients import mean_gradient, row_keys, summed_gradient

B, T, V = 8, 6, 256
BF16 = Precision(stream="bfloat16", attention="bfloat16", ffn="bfloat16", head="bfloat16")
# One step of plain gradient descent: the parameters show the gradient, entry by entry.
BASE = RunSpec(
    model=ModelSpec(width=12, layers=1, heads=2, ffn_width=16),
    data=DataSpec(length=T),
    optimizer=OptimizerSpec(
        learning_rate=1.0, weight_decay=0.0, gradient_clip=None, rule=Sgd(momentum=None)
    ),
    schedule=Constant(),
    training=TrainingSpec(batch_size=B),
)
DROPPING = Dropout(embedding=0.2, attention=0.2, ffn=0.2, residual=0.2)
PAIRS = dict(
    objective=Seq2Seq(),
    data=DataSpec(length=T, source_length=T, source=CmuDict(), rows="padded"),
)
PROGRAMS = {}


def changed(run=BASE, *, model=None, **parts):
    model = dataclasses.replace(run.model, **(model or {}))
    return dataclasses.replace(run, model=model, **parts)


def parts_of(run, microbatches):
    return changed(run, training=dataclasses.replace(run.training, microbatches=microbatches))


def batch_of(run, rows=B):
    """Rows that score all of their tokens and rows that score one, in turn."""
    generator = np.random.default_rng(1)
    ids = generator.integers(0, V, (rows, T + 1)).astype(np.int32)
    scored = np.where(np.arange(rows) % 2, 1, T)
    weights = (np.arange(T)[None] < scored[:, None]).astype(np.float32)
    source = ids[:, ::-1][:, :T].copy() if run.model.has_encoder else None
    return Batch(ids[:, :-1], ids[:, 1:], weights, source=source)


def updated(run, batch=None, *, seed=0):
    """Returns what an update makes of the start."""
    program = tiny_run.program(run, PROGRAMS)
    state = program.start(parameter_key(0))
    key = dropout_key(dataclasses.replace(run, seed=seed))
    batch = batch_of(run) if batch is None else batch
    return jax.device_get(program.update(state, batch, hyperparameters(run), key))


def moved(run, batch=None, *, seed=0):
    """Returns the gradient of an update, and its sums."""
    start = tiny_run.program(run, PROGRAMS).start(parameter_key(0)).parameters
    state = updated(run, batch, seed=seed)
    gradient = jax.tree.map(lambda new, old: np.float64(new) - old, state.parameters, start)
    return gradient, state.tally


def assert_one_gradient(found, expected, *, unit):
    """Compares gradients by the size of what differs, and sums by their last digits."""
    ours, theirs = (jax.tree.leaves(gradient) for gradient, _ in (found, expected))
    size = np.sqrt(sum(np.sum(np.square(x)) for x in theirs))
    off = np.sqrt(sum(np.sum(np.square(a - b)) for a, b in zip(ours, theirs, strict=True)))
    assert size > 1e-2 and off < unit * size
    for name in ("loss_sum", "nll_sum", "weight_sum", "gradient_norm_sum"):
        a, b = (getattr(tally, name) for _, tally in (found, expected))
        np.testing.assert_allclose(a, b, rtol=unit)


@pytest.mark.parametrize(
    ("run", "unit"),
    [
        # A thousand sums, each rounded by 2^-24 of its size, and the update itself.
        (BASE, 1e-5),
        (changed(model=dict(dropout=DROPPING)), 1e-5),
        (changed(loss=LossSpec(label_smoothing=0.1, z_loss=1e-2)), 1e-5),
        pytest.param(
            changed(model=dict(stack=EncoderDecoder(), dropout=DROPPING), **PAIRS), 1e-5,
            marks=pytest.mark.slow,
        ),
        # Programs of other shapes may round at other places on the way.
        (changed(model=dict(precision=BF16, dropout=DROPPING)), 2.0**-6),
    ],
    ids=["plain", "dropout", "smoothed", "two stacks", "bfloat16"],
)  # fmt: skip
@pytest.mark.parametrize("microbatches", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_microbatches_are_the_whole_batch_however_many_tokens_each_scores(run, unit, microbatches):
    batch = batch_of(run)
    scored = [batch.weights[part::microbatches].sum() for part in range(microbatches)]
    assert max(scored) == T * min(scored)
    assert_one_gradient(moved(parts_of(run, microbatches), batch), moved(run, batch), unit=unit)


def test_a_microbatch_that_scores_nothing_counts_for_nothing():
    batch = batch_of(BASE)
    batch.weights[1::2] = 0
    assert_one_gradient(moved(parts_of(BASE, 2), batch), moved(BASE, batch), unit=1e-5)
    batch.weights[:] = 0
    gradient, tally = moved(parts_of(BASE, 2), batch)
    assert tally.weight_sum == 0 and all(np.all(x == 0) for x in jax.tree.leaves(gradient))


def test_parts_take_turns_over_the_rows_and_sums_are_never_means():
    """By hand, on a loss whose sums are known."""
    rows = Batch(*(np.arange(24.0).reshape(6, 4).astype(np.float32) for _ in range(2)),
                 np.float32([[1] * 4, [0] * 4] * 3))  # fmt: skip
    seen = []

    def sums_of(x, batch, keys):
        jax.debug.callback(lambda first: seen.append(first.tolist()), batch.tokens[:, 0])
        loss, weight = jnp.sum(x * batch.weights * batch.tokens), jnp.sum(batch.weights)
        assert keys is None
        return F.CrossEntropy(loss, loss, weight, loss)

    sums, gradient = summed_gradient(sums_of, jnp.float32(2), rows, None, parts=3)
    jax.effects_barrier()
    scored = float(np.sum(rows.tokens * rows.weights))
    assert (sums.weight_sum, sums.loss_sum, gradient) == (12, 2 * scored, scored)
    assert sorted({tuple(first) for first in seen}) == [(0, 12), (4, 16), (8, 20)]
    assert mean_gradient(sums_of, jnp.float32(2), rows, None, parts=3)[1] == scored / 12
    assert mean_gradient(sums_of, jnp.float32(2), rows, None, parts=1)[1] == scored / 12


def temporary_bytes(run, what="update"):
    """Returns what XLA sets aside for an update or an evaluation, beside the state."""
    program = Program(run)
    state = jax.eval_shape(program.start, jax.random.key(0))
    rows = (run.training.batch_size, run.data.length)
    ids, weights = (jax.ShapeDtypeStruct(rows, kind) for kind in (jnp.int32, jnp.float32))
    batch = Batch(ids, ids, weights)  # pyright: ignore[reportArgumentType]
    given = (state, batch, hyperparameters(run)) if what == "update" else (state.parameters, batch)
    lowered = getattr(program, what).lower(*given)
    return lowered.compile().memory_analysis().temp_size_in_bytes


def test_microbatches_take_the_memory_of_one():
    large = changed(data=DataSpec(length=64), training=TrainingSpec(batch_size=32))
    whole, parts = temporary_bytes(large), temporary_bytes(parts_of(large, 8))
    # An eighth of the activations; the gradients of the parameters are a small rest.
    assert parts < whole / 5


@pytest.mark.parametrize("what", ["update", "evaluate"])
def test_chunks_take_the_memory_of_one(what):
    large = changed(
        model=dict(vocabulary=4096), data=DataSpec(length=64), training=TrainingSpec(batch_size=8)
    )
    chunked = changed(large, loss=LossSpec(chunk=32))
    logits = 4 * 8 * 64 * 4096
    # A sixteenth of them with their gradient, and the gradient of the table beside.
    whole, parts = temporary_bytes(large, what), temporary_bytes(chunked, what)
    assert whole > logits and parts < logits / 3


@pytest.mark.parametrize(
    ("run", "unit"),
    [
        (BASE, 1e-5),
        (changed(model=dict(head=TokenHead(tied=False, bias=True), dropout=DROPPING)), 1e-5),
        (changed(model=dict(head=TokenHead(
            bias=True, scale_down=True, soft_cap=3.0, transform=True
        )), loss=LossSpec(label_smoothing=0.1, z_loss=1e-2)), 1e-5),
        (changed(model=dict(precision=BF16)), 2.0**-6),
    ],
    ids=["tied", "untied", "everything", "bfloat16"],
)  # fmt: skip
def test_a_loss_in_chunks_is_that_of_all_positions(run, unit):
    # Two chunks of 20 positions, and 8 that are left over.
    chunked = changed(run, loss=dataclasses.replace(run.loss, chunk=20))
    batch = batch_of(run)
    assert_one_gradient(moved(chunked, batch), moved(run, batch), unit=unit)
    sums = []
    for one in (chunked, run):
        program = tiny_run.program(one, PROGRAMS)
        sums.append(program.evaluate(program.start(parameter_key(0)).parameters, batch))
    np.testing.assert_allclose(*np.asarray(sums), rtol=unit)


def test_chunks_and_microbatches_together_are_the_whole_batch():
    run = changed(model=dict(dropout=DROPPING), loss=LossSpec(chunk=7))
    expected = moved(changed(model=dict(dropout=DROPPING)))
    assert_one_gradient(moved(parts_of(run, 2)), expected, unit=1e-5)


def test_dropout_depends_on_seed_step_and_row_and_not_on_what_is_beside():
    run = changed(model=dict(dropout=DROPPING))
    batch = batch_of(run)
    batch.weights[2:] = 0
    whole = moved(run, batch)
    # Two rows alone, with the numbers that they have in the whole batch.
    two = jax.tree.map(lambda x: x[:2], batch)
    alone = changed(run, training=TrainingSpec(batch_size=2))
    assert_one_gradient(moved(alone, two), whole, unit=1e-5)
    # The keys of an update are those of its rows' numbers, so other rows lose other entries.
    program = tiny_run.program(alone, PROGRAMS)
    start = program.start(parameter_key(0)).parameters
    sums_of = functools.partial(program._sums, hyper=hyperparameters(alone))

    @quickly
    def at(rows):
        keys = row_keys(jax.random.fold_in(dropout_key(run), 0), rows)
        return mean_gradient(sums_of, start, two, keys, parts=1)

    sums, gradient = at(jnp.arange(2))
    # A step of plain gradient descent at a learning rate of 1 is the gradient, turned.
    turned = jax.tree.map(lambda x: -np.float64(x), gradient)
    tally = whole[1]._replace(loss_sum=sums.loss_sum, gradient_norm_sum=optax.tree.norm(gradient))
    assert_one_gradient((turned, tally), whole, unit=1e-5)
    # Another run drops others too.
    others = at(jnp.array([5, 6]))[0].loss_sum
    seeded = moved(run, batch, seed=1)[1].loss_sum
    for other in (others, seeded):
        assert abs(other - whole[1].loss_sum) > 1e-3


def test_rows_of_one_text_lose_other_entries():
    keys = row_keys(jax.random.key(0), jnp.arange(3))
    assert len({tuple(x) for x in np.asarray(jax.random.key_data(keys)).tolist()}) == 3
    run = changed(model=dict(dropout=DROPPING))
    batch = jax.tree.map(lambda x: np.repeat(x[:1], B, axis=0), batch_of(run))
    program = tiny_run.program(run, PROGRAMS)
    start = program.start(parameter_key(0)).parameters

    def losses(parameters):
        def of_row(row):
            weights = jnp.where(jnp.arange(B)[:, None] == row, batch.weights, 0)
            own = batch._replace(weights=weights)
            keys = row_keys(jax.random.key(0), jnp.arange(B))
            return program._sums(parameters, own, keys, hyper=hyperparameters(run)).loss_sum

        return jnp.stack([of_row(row) for row in range(3)])

    found = np.asarray(quickly(losses)(start))
    assert len(set(found.tolist())) == 3
