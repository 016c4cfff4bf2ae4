"""Tests for jtransformer.training.choice: what is measured, what is not, and what memory allows."""

import json
from typing import Any

import pytest
import tiny_run
from quickly import quickly

from jtransformer import data
from jtransformer.spec import SpecError
from jtransformer.training import LOOP, Execution, Program, Trainer, Wish, parameter_key
from jtransformer.training.choice import (
    TimedRun,
    Timing,
    Workload,
    candidates,
    choose,
    lockstep,
    measure,
)
from jtransformer.training.lanes import lane_programs, numbers_of
from jtransformer.training.machine import peak_flops, usable_memory

PLENTY = 2**40
LONG = Workload(runs=3, updates=10**9, devices=1, memory_bytes=PLENTY)
VMAP = Execution(mode="vmap", runs_at_once=3)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    spec = tiny_run.run_spec(tmp_path_factory.mktemp("choice"))
    program, made = Program(spec, quickly), {}

    def programs(execution):
        if execution not in made:
            made[execution] = lane_programs(program, execution)
        return made[execution]

    batches = data.TrainingBatches(data.load(spec.data), spec)
    state = program.start(parameter_key(0))
    return TimedRun(programs, state, numbers_of(spec), [batches[t] for t in range(4)])


def recorded(choice):
    """What is written to a file and read again says which execution it was."""
    record = json.loads(json.dumps(choice.record))
    assert Execution.from_record(record) == choice.execution
    return record


def test_the_fastest_of_what_was_measured_is_chosen(sample):
    choice = choose(sample, Wish(), LONG)
    record = recorded(choice)
    figures = {one["execution"]: one for one in record["measured"]}
    assert {"loop", "vmap, 3 runs"} <= set(figures) and not record["not_measured"]
    fastest = min(figures, key=lambda name: figures[name]["seconds"])
    is_worthwhile = figures[fastest]["seconds"] < 0.9 * figures["loop"]["seconds"]
    assert choice.execution.label == (fastest if is_worthwhile else "loop")
    for one in figures.values():
        assert one["seconds"] > 0 and one["memory_bytes"] > 0 and one["flops"] > 0


def test_what_would_cost_more_than_it_could_save_is_not_measured(sample):
    record = recorded(choose(sample, Wish(), LONG._replace(updates=1)))
    assert record["mode"] == "loop"
    assert [one["execution"] for one in record["measured"]] == ["loop"]
    for one in record["not_measured"]:
        assert one["could_save_seconds"] < one["cost_seconds"]
    assert "vmap, 3 runs" in [one["execution"] for one in record["not_measured"]]


def figures_of(seconds):
    return [Timing(LOOP, compile_seconds=1.0, seconds=seconds, memory_bytes=1, flops=1.0)]


def test_several_steps_are_tried_where_dispatch_shows_and_nobody_said_how_many():
    def tried(seconds, **wish):
        found = candidates(Wish(**wish), LONG, 4, figures_of(seconds))
        return [one.label for one in found]

    assert tried(0.002) == ["vmap, 3 runs", "loop, 4 steps"]
    assert tried(0.02) == ["vmap, 3 runs"]
    assert tried(0.002, steps_per_dispatch=2) == ["vmap, 3 runs, 2 steps"]
    assert tried(0.02, runs_at_once=2) == ["vmap, 2 runs"] and not tried(0.02, runs_at_once=1)


def test_devices_are_tried_where_there_are_several():
    def tried(**wish):
        work = LONG._replace(devices=2)
        return [one.label for one in candidates(Wish(**wish), work, 1, figures_of(1.0))]

    assert tried() == ["vmap, 3 runs", "spread, 4 runs, 2 devices"]
    assert tried(runs_at_once=2) == ["vmap, 2 runs", "spread, 2 runs, 2 devices"]
    assert tried(runs_at_once=3) == ["vmap, 3 runs"]


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (dict(mode="ring"), "mode.*auto, loop, vmap, map, spread, mesh, pmap, got 'ring'"),
        (dict(runs_at_once=0), "runs_at_once.*at least 1, got 0"),
        (dict(steps_per_dispatch=0), "steps_per_dispatch.*at least 1, got 0"),
    ],
    ids=str,
)
def test_a_wish_without_meaning_is_refused(wish, message):
    with pytest.raises(SpecError, match=message):
        Wish(**wish)


def test_a_group_of_one_is_trained_in_turn(sample):
    record = recorded(choose(sample, Wish(steps_per_dispatch=1), LONG._replace(runs=1)))
    assert [one["execution"] for one in record["measured"]] == ["loop"]


def test_what_is_told_is_done(sample):
    for mode in ("vmap", "map"):
        wish = Wish(mode=mode, runs_at_once=2, steps_per_dispatch=4)
        expected = Execution(mode=mode, runs_at_once=2, steps_per_dispatch=4)
        assert choose(sample, wish, LONG).execution == expected
    assert choose(sample, Wish(mode="loop"), LONG).execution == LOOP
    with pytest.raises(SpecError, match="runs_at_once.* = 2 has no meaning for mode 'loop'"):
        choose(sample, Wish(mode="loop", runs_at_once=2), LONG)


def test_runs_are_no_more_than_memory_holds(sample):
    found = measure(sample, VMAP, PLENTY)
    assert found is not None and found.execution == VMAP
    held = found.memory_bytes
    # What is needed grows by as much with every run, so that this holds two of the three.
    less = measure(sample, VMAP, int(0.8 * held))
    assert less is not None and less.execution.runs_at_once == 2
    assert less.memory_bytes <= 0.8 * held
    assert measure(sample, VMAP, held // 3) is None
    # Whoever asks for three is given three or none.
    told = Wish(runs_at_once=3, steps_per_dispatch=1)
    record = recorded(choose(sample, told, LONG._replace(memory_bytes=int(0.8 * held))))
    assert [one["execution"] for one in record["measured"]] == ["loop"]
    with pytest.raises(SpecError, match="mode.* = 'vmap' needs room for two runs, and 0 MiB"):
        choose(sample, Wish(mode="vmap"), LONG._replace(memory_bytes=1000))


def test_runs_that_are_many_go_in_chunks_of_one_size(sample):
    wish = Wish(mode="spread", runs_at_once=None)
    with pytest.raises(SpecError, match="devices.* = 4 is more than this process has"):
        choose(sample, wish, Workload(runs=300, updates=1, devices=4, memory_bytes=PLENTY))
    for runs, devices, expected in (3, 1, 3), (65, 1, 33), (300, 4, 152), (5, 4, 8):
        work = Workload(runs=runs, updates=1, devices=devices, memory_bytes=PLENTY)
        assert lockstep("spread", wish, work, 1).runs_at_once == expected


def test_the_machine_has_a_speed_and_a_memory():
    assert 1e8 < peak_flops() < 1e16
    assert 2**26 < usable_memory() < 2**50


def test_a_trainer_chooses_and_trains_by_the_programs_it_has_measured(tmp_path):
    spec = tiny_run.run_spec(tmp_path)
    trainer = Trainer()
    tiny_run.program(spec, trainer._programs)
    choice = trainer.choose(spec, Wish(mode="vmap"), runs=2, updates=20)
    assert choice.execution == Execution(mode="vmap", runs_at_once=2)
    cells = [(tiny_run.with_seed(spec, seed), tmp_path / str(seed)) for seed in (0, 1)]
    for one in trainer.train_group(cells, choice.execution):
        assert one.status is not None and one.status["state"] == "done"
    (made,) = trainer._compiled.values()
    advance: Any = made.advance
    assert advance._cache_size() == 1
