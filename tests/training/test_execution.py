"""Tests for jtransformer.training.execution: what may be said, and what it is called."""

import pytest

from jtransformer.spec import SpecError
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
}
REFUSED = {
    "mode.*one of loop, vmap, map, spread, got 'pmap'": dict(mode="pmap"),
    "runs_at_once.*at least 1, got 0": dict(mode="vmap", runs_at_once=0),
    "steps_per_dispatch.*at least 1, got 0": dict(steps_per_dispatch=0),
    "runs_at_once.* = 2 has no meaning for mode 'loop'": dict(runs_at_once=2),
    "devices.* = 2 has no meaning for mode 'vmap'": dict(mode="vmap", runs_at_once=2, devices=2),
    "runs_at_once=3, devices=2; use 2 per device": dict(mode="spread", runs_at_once=3, devices=2),
}


@pytest.mark.parametrize("label", LABELS)
def test_an_execution_has_a_label_and_a_record(label):
    execution = LABELS[label]
    assert execution.label == label and Execution.from_label(label) == execution
    assert Execution(**execution.to_record()) == execution
    assert label.split(",")[0] in MODES


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_meaning_is_refused(message):
    with pytest.raises(SpecError, match=message):
        Execution(**REFUSED[message])


@pytest.mark.parametrize("label", ["a mode, of another version", "pmap", "loop, 2 runs", "None"])
def test_a_label_of_no_execution_is_refused(label):
    with pytest.raises(SpecError, match="^mode|^runs_at_once"):
        Execution.from_label(label)
