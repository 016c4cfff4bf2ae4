"""Tests for jtransformer.training.execution: what may be said, and what it is called."""

import pytest

from jtransformer.spec import Layout, SpecError
from jtransformer.training import LOOP, MODES, Execution

LABELS = {
    "loop": LOOP,
    "loop, 8 steps": Execution(steps_per_dispatch=8),
    "vmap, 6 runs": Execution(mode="vmap", runs_at_once=6),
    "map, 6 runs, 2 steps": Execution(mode="map", runs_at_once=6, steps_per_dispatch=2),
    "spread, 6 runs, 3 devices": Execution(mode="spread", runs_at_once=6, devices=3),
    "spread, 4 runs, 2 devices, 2 steps": Execution(
        mode="spread", runs_at_once=4, devices=2, steps_per_dispatch=2
    ),
    "mesh, data=1": Execution(mode="mesh", layout=Layout()),
    "mesh, fsdp=4, tensor=2": Execution(mode="mesh", layout=Layout(fsdp=4, tensor=2)),
    "mesh, data=2, shard_optimizer=true": Execution(
        mode="mesh", layout=Layout(data=2, shard_optimizer=True)
    ),
    "pmap, 8 devices": Execution(mode="pmap", devices=8),
}
REFUSED = {
    "mode.*one of loop, vmap, map, spread, mesh, pmap, got 'pjit'": dict(mode="pjit"),
    "runs_at_once.*at least 1, got 0": dict(mode="vmap", runs_at_once=0),
    "steps_per_dispatch.*at least 1, got 0": dict(steps_per_dispatch=0),
    "runs_at_once.* = 2 has no meaning for mode 'loop'": dict(runs_at_once=2),
    "devices.* = 2 has no meaning for mode 'vmap'": dict(mode="vmap", runs_at_once=2, devices=2),
    "runs_at_once=3, devices=2; use 2 per device": dict(mode="spread", runs_at_once=3, devices=2),
    "runs_at_once.* = 2 has no meaning for mode 'mesh'": dict(
        mode="mesh", layout=Layout(), runs_at_once=2
    ),
    "devices.* = 2 has no meaning for mode 'mesh'": dict(mode="mesh", layout=Layout(), devices=2),
    "steps_per_dispatch.* = 2 has no meaning for mode 'pmap'": dict(
        mode="pmap", devices=2, steps_per_dispatch=2
    ),
    "layout.* got none with mode 'mesh'": dict(mode="mesh"),
    "layout.* got fsdp=2 with mode 'loop'": dict(layout=Layout(fsdp=2)),
    "devices.* = 1 has nothing to divide": dict(mode="pmap"),
}


@pytest.mark.parametrize("label", LABELS)
def test_an_execution_has_a_label_and_a_record(label):
    execution = LABELS[label]
    assert execution.label == label and Execution.from_label(label) == execution
    assert Execution.from_record(execution.to_record()) == execution
    assert label.split(",")[0] in MODES


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_meaning_is_refused(message):
    with pytest.raises(SpecError, match=message):
        Execution(**REFUSED[message])


NO_LABELS = (
    "a mode, of another version",
    "pmap",
    "mesh",
    "mesh, data=2, planes=3",
    "mesh, tensor=1",
    "loop, data=2",
    "loop, 2 runs",
    "None",
)


@pytest.mark.parametrize("label", NO_LABELS)
def test_a_label_of_no_execution_is_refused(label):
    with pytest.raises(SpecError, match="^(mode|runs_at_once|devices|layout|planes) "):
        Execution.from_label(label)


def test_a_record_of_an_earlier_version_is_read():
    record = LABELS["spread, 6 runs, 3 devices"].to_record()
    del record["mesh"]
    assert Execution.from_record(record) == LABELS["spread, 6 runs, 3 devices"]


def test_one_run_is_spread_over_what_is_asked_or_over_all_devices():
    over = Execution.over_devices
    assert over("mesh", None, 8).label == "mesh, fsdp=8"
    assert over("mesh", Layout(tensor=2), 8).label == "mesh, tensor=2"
    assert over("pmap", None, 8).label == "pmap, 8 devices"
    assert over("pmap", Layout(data=4), 8).label == "pmap, 4 devices"
    with pytest.raises(SpecError, match="'data=2, tensor=2' divides more than rows.*data=4"):
        over("pmap", Layout(data=2, tensor=2), 8)
