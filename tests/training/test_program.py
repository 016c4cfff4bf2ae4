"""Tests for jtransformer.training.program: what is minimised, what is random, what is compiled."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_run
from quickly import quickly

from jtransformer import data
from jtransformer.modules import build
from jtransformer.spec import (
    Constant,
    Dropout,
    LossSpec,
    OptimizerSpec,
    Patience,
    Precision,
    Sgd,
    WarmupCosine,
    WarmupLinear,
)
from jtransformer.training import (
    dropout_key,
    hyperparameters,
    mean_nll,
    parameter_key,
    program_key,
)
from jtransformer.training.gradients import mean_loss

PROGRAMS = {}
PLAIN_SGD = OptimizerSpec(
    learning_rate=0.1, weight_decay=0.0, gradient_clip=None, rule=Sgd(momentum=None)
)


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    base = tiny_run.run_spec(tmp_path_factory.mktemp("program"))
    return dataclasses.replace(base, optimizer=PLAIN_SGD, schedule=Constant())


@pytest.fixture(scope="module")
def batch(spec):
    return data.TrainingBatches(data.load(spec.data), spec)[0]


def with_loss(spec, **loss):
    return dataclasses.replace(spec, loss=LossSpec(**loss))


def with_dropout(spec, **rates):
    return dataclasses.replace(
        spec, model=dataclasses.replace(spec.model, dropout=Dropout(**rates))
    )


def after(spec, batch, updates=1, *, seed=0):
    """Returns a program and its state after some updates on one batch."""
    program = tiny_run.program(spec, PROGRAMS)
    state = program.start(parameter_key(0))
    key = dropout_key(dataclasses.replace(spec, seed=seed))
    for _ in range(updates):
        state = program.update(state, batch, hyperparameters(spec), key)
    return program, state


def by_numpy(spec, batch, *, label_smoothing=0.0, z_loss=0.0):
    """The mean losses of the untrained model, plain and as minimised, in float64."""
    start = tiny_run.program(spec, PROGRAMS).start(parameter_key(0))
    apply = quickly(build(spec.model).apply)
    logits = apply({"params": start.parameters}, jnp.asarray(batch.tokens)).logits
    logits = np.asarray(logits, np.float64)
    log_z = np.log(np.exp(logits).sum(-1))
    nll = log_z - np.take_along_axis(logits, batch.labels[..., None], -1)[..., 0]
    smooth = (log_z[..., None] - logits).mean(-1)
    loss = (1 - label_smoothing) * nll + label_smoothing * smooth + z_loss * log_z**2
    return nll.mean(), loss.mean()


@pytest.mark.parametrize("loss", [{}, dict(label_smoothing=0.2), dict(z_loss=0.05)], ids=str)
def test_value_loss_is_what_is_minimised_and_nll_is_plain(spec, batch, loss):
    changed = with_loss(spec, **loss)
    program, state = after(changed, batch)
    nll, minimised = by_numpy(spec, batch, **loss)
    tally = jax.device_get(state.tally)
    np.testing.assert_allclose(tally.nll_sum / tally.weight_sum, nll, rtol=1e-5)
    np.testing.assert_allclose(tally.loss_sum / tally.weight_sum, minimised, rtol=1e-5)
    # What is reported of an evaluation is plain, whatever is minimised.
    start = program.start(parameter_key(0))
    np.testing.assert_allclose(mean_nll(program, start.parameters, [batch]), nll, rtol=1e-5)


def test_live_each_number_of_the_loss_changes_the_update(spec, batch):
    changes = {"label_smoothing": 0.2, "z_loss": 0.05}
    # Chunks change how sums are taken and not what they are: see test_gradients.py.
    assert {*changes, "chunk"} == {field.name for field in dataclasses.fields(LossSpec)}
    base = after(spec, batch)[1].parameters["embedding"]["table"]
    for name, value in changes.items():
        found = after(with_loss(spec, **{name: value}), batch)[1].parameters["embedding"]["table"]
        assert not np.allclose(base, found, atol=1e-6)


def test_a_batch_that_scores_nothing_has_loss_0_and_moves_nothing(spec, batch):
    silent = batch._replace(weights=np.zeros_like(batch.weights))
    program, state = after(spec, silent)
    tally = jax.device_get(state.tally)
    assert (tally.loss_sum, tally.nll_sum, tally.weight_sum, tally.gradient_norm_sum) == (0,) * 4
    start = program.start(parameter_key(0)).parameters
    jax.tree.map(np.testing.assert_array_equal, state.parameters, start)
    assert quickly(lambda x: mean_loss(program._sums(x, silent)))(start) == 0
    with pytest.raises(ValueError, match="1 batches score no token"):
        mean_nll(program, start, [silent])


def test_the_first_update_is_made_at_the_first_rate_of_the_warm_up(spec, batch):
    """OPT-01: counted from 0, the rate of the first update would be 0, and it would be lost."""
    warmed_up = dataclasses.replace(spec, schedule=Constant(warmup_steps=4))
    start = tiny_run.program(spec, PROGRAMS).start(parameter_key(0)).parameters
    (_, whole), (program, quarter) = after(spec, batch), after(warmed_up, batch)
    moved, less = (
        jax.tree.map(lambda new, old: np.asarray(new - old, np.float64), x.parameters, start)
        for x in (whole, quarter)
    )
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(moved)) > 1e-3
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(b, a / 4, rtol=1e-3, atol=2e-7), moved, less
    )
    told = program.rate(quarter.step, hyperparameters(warmed_up))
    np.testing.assert_allclose(told, 0.1 / 4, rtol=1e-6)


def test_null_without_rates_there_is_no_key(spec):
    assert dropout_key(spec) is None
    assert dropout_key(with_dropout(spec, residual=0.1)) is not None


def test_live_dropout_is_new_at_every_step_and_seed_and_off_in_evaluation(spec, batch):
    # A rate of 0 keeps the parameters, so that the losses of two updates can be compared.
    still = dataclasses.replace(
        with_dropout(spec, residual=0.5, embedding=0.2),
        optimizer=dataclasses.replace(PLAIN_SGD, learning_rate=1e-30),
    )
    program = tiny_run.program(still, PROGRAMS)

    def losses(seed):
        state, found = program.start(parameter_key(0)), []
        for _ in range(3):
            before = float(state.tally.nll_sum)
            key = dropout_key(dataclasses.replace(still, seed=seed))
            state = program.update(state, batch, hyperparameters(still), key)
            found.append(float(state.tally.nll_sum) - before)
        return found

    first = losses(0)
    assert len({round(loss, 2) for loss in first}) == 3
    assert losses(0) == first
    assert not np.allclose(losses(1), first, rtol=1e-4)
    plain = by_numpy(spec, batch)[0]
    start = program.start(parameter_key(0)).parameters
    np.testing.assert_allclose(mean_nll(program, start, [batch]), plain, rtol=1e-5)


SHARED = {
    "seed": lambda s: dataclasses.replace(s, seed=3),
    "rate": lambda s: _optimizer(s, learning_rate=0.5),
    "decay": lambda s: _optimizer(s, weight_decay=0.7),
    "clip": lambda s: _optimizer(s, gradient_clip=0.3),
    "warm-up": lambda s: dataclasses.replace(s, schedule=WarmupCosine(warmup_steps=3)),
    "end": lambda s: dataclasses.replace(s, schedule=WarmupCosine(final_fraction=0.3,
                                                                  warmup_steps=2)),
    "steps": lambda s: _training(s, steps=20),
    "average": lambda s: _training(s, average_decay=0.3),
    "patience": lambda s: _training(s, early_stopping=Patience()),
    "rows": lambda s: _training(s, log_every=3, evaluate_every=4, checkpoint_every=2),
}  # fmt: skip
OTHERS = {
    "rule": lambda s: _optimizer(s, rule=Sgd()),
    "no clip": lambda s: _optimizer(s, gradient_clip=None),
    "schedule": lambda s: dataclasses.replace(s, schedule=WarmupLinear(warmup_steps=2)),
    "no average": lambda s: _training(s, average_decay=None),
    "smoothing": lambda s: with_loss(s, label_smoothing=0.1),
    "dropout": lambda s: with_dropout(s, ffn=0.1),
    "batch": lambda s: _training(s, batch_size=5),
    "microbatches": lambda s: _training(s, microbatches=2),
    "chunk": lambda s: with_loss(s, chunk=8),
    "precision": lambda s: dataclasses.replace(
        s, model=dataclasses.replace(s.model, precision=Precision(ffn="bfloat16"))
    ),
}


def _optimizer(spec, **changes):
    return dataclasses.replace(spec, optimizer=dataclasses.replace(spec.optimizer, **changes))


def _training(spec, **changes):
    return dataclasses.replace(spec, training=dataclasses.replace(spec.training, **changes))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    spec = tiny_run.run_spec(tmp_path_factory.mktemp("shared"), average_decay=0.9)
    program = tiny_run.program(spec, PROGRAMS)
    batch = data.TrainingBatches(data.load(spec.data), spec)[0]
    return spec, program, batch


@pytest.mark.parametrize("name", SHARED)
def test_what_is_data_to_a_program_shares_it_and_still_counts(shared, name):
    spec, program, batch = shared
    changed = SHARED[name](spec)
    assert program_key(changed) == program_key(spec) != spec
    found = []
    for run in (spec, changed):
        state = program.start(parameter_key(run.seed))
        for _ in range(4):  # Behind the warm-up, where the end of a schedule counts.
            state = program.update(state, batch, hyperparameters(run), dropout_key(run))
        found.append(np.asarray(state.evaluated["embedding"]["table"]))
    assert program.update._cache_size() == 1
    if name not in ("patience", "rows"):
        assert not np.array_equal(*found)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_written_into_a_program_has_its_own(shared, name):
    spec, _, _ = shared
    assert program_key(OTHERS[name](spec)) != program_key(spec)


def test_every_schedule_is_blanked_to_one_that_fits_any_run(shared):
    spec, _, _ = shared
    for kind in type(spec).__dataclass_fields__["schedule"].type.__args__:
        one = dataclasses.replace(_training(spec, steps=500), schedule=kind())
        assert program_key(one) == program_key(_training(one, steps=900))


def test_average_is_its_own_buffer_and_begins_as_the_parameters(shared):
    _, program, _ = shared
    state = program.start(parameter_key(0))
    jax.tree.map(np.testing.assert_array_equal, state.average, state.parameters)
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state)]
    assert len(set(pointers)) == len(pointers)
