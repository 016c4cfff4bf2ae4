"""Tests that runs are probed at declared steps: once each, and without a trace in their figures."""

import dataclasses
import itertools
import json

import jax
import numpy as np
import pytest
import tiny_run

from jtransformer import data, probes, records
from jtransformer.spec import LossSpec, OptimizerSpec
from jtransformer.training import (
    LOOP,
    Checkpoints,
    Execution,
    Hooks,
    Interrupted,
    Trainer,
    hyperparameters,
    mean_nll,
    parameter_key,
    probe_batch,
)
from jtransformer.training.probing import MOST_PLACES, pooled

PROGRAMS, COMPILED = {}, {}
PROBED = (0, 3, 7, 10)
"""Step 7 has neither a row nor a checkpoint, step 3 a checkpoint, step 10 both."""
TOGETHER = [
    pytest.param(Execution(mode="vmap", runs_at_once=2, steps_per_dispatch=4), id="vmap, 4 steps"),
    pytest.param(Execution(steps_per_dispatch=4), id="loop, 4 steps"),
    pytest.param(Execution(mode="vmap", runs_at_once=2), id="vmap", marks=pytest.mark.slow),
    pytest.param(Execution(mode="map", runs_at_once=2), id="map", marks=pytest.mark.slow),
]


class Killed(BaseException):
    """The process is gone."""


def train(runs, directory, execution=LOOP, **hooks):
    """Trains runs by name, each in a directory of its name."""
    trainer = Trainer(Hooks(**hooks))
    trainer._programs, trainer._compiled = PROGRAMS, COMPILED
    for spec in runs.values():
        tiny_run.program(spec, PROGRAMS)
    cells = [(spec, directory / name) for name, spec in runs.items()]
    for one in trainer.train_group(cells, execution):
        if one.error is not None:
            raise one.error


def probing(spec, steps, **training):
    return dataclasses.replace(
        spec, training=dataclasses.replace(spec.training, probe_steps=steps, **training)
    )


def probes_of(directory):
    """What was measured, by step."""
    paths = records.RunFiles(directory).probed()
    return {found["step"]: found for found in map(records.read_probe, paths)}


def left_by(spec, directory):
    """All that a run leaves without a clock and without its probes."""
    status, rows = tiny_run.deterministic(directory)
    identity = status.pop("fingerprint")
    start = tiny_run.program(spec, PROGRAMS).start(parameter_key(spec.seed))
    with Checkpoints(records.RunFiles(directory), identity) as checkpoints:
        return status, rows, *checkpoints.restore_newest(start)


def assert_same(found, expected):
    assert found[:3] == expected[:3]
    jax.tree.map(np.testing.assert_array_equal, found[3], expected[3])


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A run that is not probed; its loss is smoothed, so that it is not the plain one."""
    spec = tiny_run.run_spec(tmp_path_factory.mktemp("text"))
    return dataclasses.replace(spec, loss=LossSpec(label_smoothing=0.1))


@pytest.fixture(scope="module")
def quiet(bare, tmp_path_factory):
    """The same run, probed, that nothing disturbed."""
    spec, root = probing(bare, PROBED), tmp_path_factory.mktemp("quiet")
    train({"run": spec}, root)
    return spec, root / "run"


def test_live_a_run_is_probed_at_the_declared_steps_alone(quiet):
    spec, directory = quiet
    assert sorted(path.name for path in (directory / "probes").iterdir()) == [
        "step_000000.json",
        "step_000003.json",
        "step_000007.json",
        "step_000010.json",
    ]
    found = probes_of(directory)
    assert tuple(found) == PROBED
    norms = [one["stacks"]["decoder"]["gradient_norm"]["layer"][0] for one in found.values()]
    assert len(set(norms)) == len(PROBED) and min(norms) > 0
    assert {one["rows"] for one in found.values()} == {spec.training.batch_size}
    assert found[0]["caveat"] == probes.CAVEAT


def test_null_probes_move_no_bit_of_a_run(bare, quiet, tmp_path):
    spec, directory = quiet
    train({"run": bare}, tmp_path)
    assert not (tmp_path / "run" / "probes").exists()
    assert_same(left_by(bare, tmp_path / "run"), left_by(spec, directory))


def test_what_is_measured_is_the_run_s_loss_and_update_on_rows_of_validation(quiet):
    """Loss: that of the run, smoothed; update: the one that these rows would cause."""
    spec, directory = quiet
    program, corpus = tiny_run.program(spec, PROGRAMS), data.load(spec.data)
    batch = probe_batch(corpus, spec)
    first = next(data.evaluation_batches(corpus, "validation", spec))
    rows = spec.training.batch_size
    np.testing.assert_array_equal(batch.tokens, first.tokens[:rows])
    before = program.start(parameter_key(spec.seed))
    found = probes_of(directory)[0]
    plain = mean_nll(program, before.parameters, [batch])
    assert found["loss"] != pytest.approx(plain, rel=1e-4)
    after = program.update(before, batch, hyperparameters(spec))
    assert found["loss"] == pytest.approx(
        float(after.tally.loss_sum / after.tally.weight_sum), rel=1e-5
    )
    start = program.start(parameter_key(spec.seed)).parameters["embedding"]["table"]
    moved = np.linalg.norm(after.parameters["embedding"]["table"] - start)
    expected = moved / np.linalg.norm(start)
    assert found["outside"]["embedding"]["update_ratio"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("stops", [(0, 4), (3, 1), (7,), (9, 0)], ids=str)
def test_law_stopped_and_continued_no_probe_is_lost_or_made_again(quiet, tmp_path, stops):
    spec, directory = quiet
    times: dict[str, int] = {}
    for updates in stops:
        with pytest.raises(Interrupted):
            train({"run": spec}, tmp_path, should_stop=tiny_run.stop_after(updates))
        made = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run/probes").iterdir()}
        assert times.items() <= made.items()
        times = made
    train({"run": spec}, tmp_path)
    assert probes_of(tmp_path / "run") == probes_of(directory)
    made = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run/probes").iterdir()}
    assert times.items() <= made.items()
    assert_same(left_by(spec, tmp_path / "run"), left_by(spec, directory))


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_law_killed_before_a_write_and_continued_a_run_has_all_its_probes(quiet, tmp_path, stride):
    """What guards a write raises: that is before each update, row, checkpoint, probe and status."""
    spec, directory = quiet
    for moment in itertools.count(0, stride):
        calls = itertools.count()

        def guard(_, calls=calls, moment=moment):
            if next(calls) == moment:
                raise Killed

        root = tmp_path / str(moment)
        try:
            train({"run": spec}, root, guard=guard)
        except Killed:
            train({"run": spec}, root)
            assert probes_of(root / "run") == probes_of(directory), moment
            assert tiny_run.deterministic(root / "run") == tiny_run.deterministic(directory), moment
        else:
            break
    # Ten updates, seven rows and their like, four probes, a status: every one was a moment.
    assert moment > 20


def test_a_probe_that_is_gone_at_the_step_of_a_checkpoint_is_made_again(quiet, tmp_path):
    spec, directory = quiet
    with pytest.raises(Interrupted):
        train({"run": spec}, tmp_path, should_stop=tiny_run.stop_after(3))
    records.RunFiles(tmp_path / "run").probe(3).unlink()
    train({"run": spec}, tmp_path)
    assert probes_of(tmp_path / "run") == probes_of(directory)


@pytest.fixture(scope="module")
def three(bare, tmp_path_factory):
    """Runs of one program without probes, with probes, and where the latter were trained alone."""
    other = dataclasses.replace(bare, optimizer=OptimizerSpec(learning_rate=3e-3), seed=1)
    plain = {"a": bare, "b": other, "c": tiny_run.with_seed(bare, 2)}
    probed = {
        "a": probing(bare, PROBED),
        "b": probing(other, (2, 7)),
        "c": probing(plain["c"], (0, 9)),
    }
    alone = tmp_path_factory.mktemp("alone")
    train(probed, alone)
    return plain, probed, alone


@pytest.mark.parametrize("execution", TOGETHER)
def test_in_every_mode_each_run_is_probed_and_moved_by_no_bit(three, tmp_path, execution):
    plain, probed, alone = three
    train(plain, tmp_path / "plain", execution)
    train(probed, tmp_path / "probed", execution)
    for name, spec in probed.items():
        found = left_by(spec, tmp_path / "probed" / name)
        assert_same(found, left_by(plain[name], tmp_path / "plain" / name))
        assert tuple(probes_of(tmp_path / "probed" / name)) == spec.training.probe_steps
    # Each is the probe of its own run and not of a neighbour.
    for name in probed:
        ours, theirs = (probes_of(root / name) for root in (tmp_path / "probed", alone))
        for step in ours:
            norms = [
                one[step]["stacks"]["decoder"]["gradient_norm"]["layer"] for one in (ours, theirs)
            ]
            np.testing.assert_allclose(*norms, rtol=1e-3)


def test_runs_of_one_program_compile_their_probe_once(quiet):
    spec, _ = quiet
    program = tiny_run.program(spec, PROGRAMS)
    assert program.probe._cache_size() == 1


def test_a_diverged_state_is_probed_and_has_no_numbers(bare, tmp_path):
    wild = dataclasses.replace(
        probing(bare, (0, 2, 10)),
        optimizer=OptimizerSpec(learning_rate=1e30, weight_decay=1e30),
    )
    train({"run": wild}, tmp_path)
    found = probes_of(tmp_path / "run")
    diverged_at = records.read_json(tmp_path / "run" / "status.json")["result"]["diverged_at"]
    assert tuple(found) == (0, 2) and diverged_at == 2
    assert found[0]["loss"] > 0 and found[2]["loss"] is None
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("shape", [(3, 5), (64, 64), (65, 64), (130, 257)], ids=str)
def test_law_a_map_whose_neighbours_are_one_still_shares_out_each_query(shape):
    weights = np.random.default_rng(0).dirichlet(np.ones(shape[1]), shape[0])
    found = pooled(weights)
    assert max(found.weights.shape) <= MOST_PLACES
    np.testing.assert_allclose(found.weights.sum(axis=1), 1, rtol=1e-12)
    first = weights[: found.queries, : found.keys].sum(axis=1).mean()
    np.testing.assert_allclose(found.weights[0, 0], first, rtol=1e-12)
    if max(shape) <= MOST_PLACES:
        np.testing.assert_array_equal(found.weights, weights)
