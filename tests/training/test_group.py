"""Tests that runs trained together are each what they are alone: rows, checkpoints, end, resume."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest
import tiny_run

from jtransformer import records
from jtransformer.spec import Dropout, LossSpec, OptimizerSpec, Patience, SpecError, WarmupCosine
from jtransformer.training import (
    LOOP,
    Checkpoints,
    Execution,
    Hooks,
    Interrupted,
    Trainer,
    parameter_key,
)

PROGRAMS, COMPILED = {}, {}
VMAP = Execution(mode="vmap", runs_at_once=3)
TOGETHER = {
    "vmap": VMAP,
    "map": Execution(mode="map", runs_at_once=3),
    "vmap, 4 steps": Execution(mode="vmap", runs_at_once=3, steps_per_dispatch=4),
    "loop, 4 steps": Execution(steps_per_dispatch=4),
}
EVERY_EXECUTION = pytest.mark.parametrize(
    "execution",
    [
        pytest.param(execution, id=name, marks=[] if name == "vmap, 4 steps" else pytest.mark.slow)
        for name, execution in TOGETHER.items()
    ],
)
LOSSES = ("train_nll", "train_loss", "validation_nll", "gradient_norm")


def trainer(spec, **hooks):
    """A new trainer; what was compiled before is shared, as compiling takes seconds."""
    fresh = Trainer(Hooks(**hooks))
    fresh._programs, fresh._compiled = PROGRAMS, COMPILED
    tiny_run.program(spec, PROGRAMS)
    return fresh


def train(runs, directory, execution, **hooks):
    """Trains runs by name, each in a directory of its name; returns what became of each."""
    cells = [(spec, directory / name) for name, spec in runs.items()]
    ended = trainer(cells[0][0], **hooks).train_group(cells, execution)
    names = list(runs)
    return {names[one.place]: one for one in ended}


def left_by(spec, directory):
    """All that a run leaves without a clock: status, rows, and, if it is done, the last state."""
    status, rows = tiny_run.deterministic(directory)
    if status["state"] == "diverged":
        return status, rows, None, None
    start = tiny_run.program(spec, PROGRAMS).start(parameter_key(spec.seed))
    with Checkpoints(records.RunFiles(directory), status["fingerprint"]) as checkpoints:
        step, state = checkpoints.restore_newest(start)
    return status, rows, step, state


def assert_same(runs, found, expected):
    for name, spec in runs.items():
        ours, theirs = left_by(spec, found / name), left_by(spec, expected / name)
        assert ours[:3] == theirs[:3], name
        jax.tree.map(np.testing.assert_array_equal, ours[3], theirs[3])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of one program that have little else in common, more than there are lanes."""
    base = tiny_run.run_spec(tmp_path_factory.mktemp("text"), average_decay=0.8)
    model = dataclasses.replace(base.model, dropout=Dropout(embedding=0.1, residual=0.2))
    base = dataclasses.replace(base, model=model, loss=LossSpec(label_smoothing=0.1))

    def training(**changes):
        return dataclasses.replace(base.training, **changes)

    gain = Patience(evaluations=1, least_gain=9.0)
    return {
        "base": base,
        "short": dataclasses.replace(
            base, seed=1, training=training(steps=7, log_every=3, checkpoint_every=5)
        ),
        "stops early": dataclasses.replace(
            base, seed=2, training=training(steps=30, evaluate_every=4, early_stopping=gain)
        ),
        "diverges": dataclasses.replace(
            base, optimizer=OptimizerSpec(learning_rate=1e30, weight_decay=1e30)
        ),
        "other numbers": dataclasses.replace(
            base,
            seed=3,
            optimizer=OptimizerSpec(learning_rate=3e-3, weight_decay=0.0),
            loss=LossSpec(label_smoothing=0.2),
            schedule=WarmupCosine(warmup_steps=1),
            model=dataclasses.replace(model, dropout=Dropout(embedding=0.3, residual=0.1)),
        ),
    }


@pytest.fixture(scope="module")
def quiet(runs, tmp_path_factory):
    """Returns the directory in which an execution has trained all runs undisturbed."""
    made = {}

    def directory(execution):
        if execution not in made:
            made[execution] = tmp_path_factory.mktemp("quiet")
            train(runs, made[execution], execution)
        return made[execution]

    return directory


def test_in_turn_runs_are_to_the_bit_what_they_are_alone(runs, quiet, tmp_path):
    for name, spec in runs.items():
        trainer(spec).train(spec, tmp_path / name)
    assert_same(runs, quiet(LOOP), tmp_path)


@EVERY_EXECUTION
def test_every_execution_agrees_with_the_loop(runs, quiet, execution):
    """Losses agree to 1e-4 of their size; parameters need not.

    Adam divides a gradient by its own size, so that one that is all but 0 makes a whole step in a
    direction that rounding decides. Such a parameter hardly moves the loss, which is therefore
    what is compared.
    """
    for name, spec in runs.items():
        ours, theirs = left_by(spec, quiet(execution) / name), left_by(spec, quiet(LOOP) / name)
        assert (
            ours[0]["state"] == theirs[0]["state"] == ("diverged" if name == "diverges" else "done")
        )
        assert ours[0]["pairing"] == theirs[0]["pairing"] and ours[2] == theirs[2]
        for mine, other in zip(ours[1], theirs[1], strict=True):
            assert all(mine[key] == other[key] for key in mine if key not in LOSSES)
            if name != "diverges":
                pairs = [(mine[key], other[key]) for key in LOSSES if other[key] is not None]
                np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-4)
    assert left_by(runs["stops early"], quiet(execution) / "stops early")[2] == 8


@EVERY_EXECUTION
def test_law_company_moves_no_bit(runs, quiet, tmp_path, execution):
    """Neither who is trained beside a run, nor in which lane it is, nor whether any other is."""
    backwards = dict(reversed(runs.items()))
    train(backwards, tmp_path / "backwards", execution)
    assert_same(runs, tmp_path / "backwards", quiet(execution))
    alone = {"short": runs["short"]}
    train(alone, tmp_path / "alone", execution)
    assert_same(alone, tmp_path / "alone", quiet(execution))


@EVERY_EXECUTION
def test_law_stopped_anywhere_and_continued_each_run_ends_at_the_same_bits(
    runs, quiet, tmp_path, execution
):
    for dispatches in (5, 0, 2, 4):
        with pytest.raises(Interrupted, match="stopped at step"):
            train(runs, tmp_path, execution, should_stop=tiny_run.stop_after(dispatches))
    # From where they stand the runs are at different steps, and meet in other lanes.
    last = dict(reversed(runs.items()))
    train(last, tmp_path, execution)
    assert_same(runs, tmp_path, quiet(execution))


@pytest.mark.slow
def test_a_group_is_compiled_once(runs, quiet):
    for execution in TOGETHER.values():
        quiet(execution)
        (advance,) = {made.advance for (_, how), made in COMPILED.items() if how == execution}
        assert advance._cache_size() == 1, execution


def test_what_one_run_raises_ends_that_run_alone(runs, quiet, tmp_path):
    """One's directory cannot be made, one's vanishes, one belongs to another worker by now."""
    (tmp_path / "file").write_text("")

    def on_row(spec, row):
        if spec == runs["other numbers"] and row["step"] == 4:
            shutil.rmtree(tmp_path / "other numbers")

    def guard(spec):
        if spec == runs["short"] and records.read_rows(tmp_path / "short" / "metrics.jsonl"):
            raise KeyboardInterrupt("taken over")

    bad = {"file": tiny_run.with_seed(runs["base"], 7)}
    ended = train(bad | runs, tmp_path, VMAP, on_row=on_row, guard=guard)
    failed = {name: one.error for name, one in ended.items() if one.status is None}
    assert {name: type(error) for name, error in failed.items()} == {
        "file": FileExistsError,
        "other numbers": FileNotFoundError,
        "short": KeyboardInterrupt,
    }
    well = {name: spec for name, spec in runs.items() if name not in failed}
    assert_same(well, tmp_path, quiet(VMAP))
    # What was taken over is whole: whoever has it goes on from there.
    train({"short": runs["short"]}, tmp_path, VMAP)
    assert_same({"short": runs["short"]}, tmp_path, quiet(VMAP))


def test_runs_of_other_programs_are_refused(runs, tmp_path):
    other = dataclasses.replace(runs["base"], loss=LossSpec())
    tiny_run.program(other, PROGRAMS)
    ended = train({"base": runs["base"], "other": other}, tmp_path, VMAP)
    assert ended["base"].status is not None
    with pytest.raises(ValueError, match="other has another program"):
        raise ended["other"].error


def test_the_mode_is_recorded_and_another_is_refused_unless_accepted(runs, quiet, tmp_path):
    one = {"base": runs["base"]}
    found = records.read_json(quiet(VMAP) / "base" / "environment.json")
    assert found["mode"] == "vmap, 3 runs"
    with pytest.raises(Interrupted):
        train(one, tmp_path, VMAP, should_stop=tiny_run.stop_after(4))
    with pytest.raises(SpecError, match="mode vmap, 3 runs -> loop"):
        trainer(runs["base"]).train(runs["base"], tmp_path / "base")
    accepted = trainer(runs["base"], accept_environment=True)
    assert accepted.train(runs["base"], tmp_path / "base")["state"] == "done"


def test_a_complete_run_is_not_touched_and_takes_no_lane(runs, quiet):
    before = {path: path.stat().st_mtime_ns for path in quiet(VMAP).rglob("*")}
    ended = train(runs, quiet(VMAP), VMAP)
    assert all(one.status is not None for one in ended.values())
    assert {path: path.stat().st_mtime_ns for path in quiet(VMAP).rglob("*")} == before


def test_a_run_is_asked_for_when_a_lane_is_free(runs, tmp_path):
    """So that a worker claims no run that it does not begin."""
    asked, seen = [], []

    def cells():
        for name, spec in runs.items():
            asked.append(name)
            yield spec, tmp_path / name

    names = list(runs)
    for one in trainer(runs["base"]).train_group(cells(), VMAP):
        seen.append((names[one.place], len(asked)))
    # Three lanes; the first that is free again is that of the shortest run.
    assert seen[0] == ("short", 3) and {name for name, _ in seen} == set(runs)
