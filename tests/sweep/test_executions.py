"""Tests for jtransformer.sweep.executions: chosen once, and not changed by who comes later."""

import pytest

from jtransformer import records
from jtransformer.spec import SpecError
from jtransformer.sweep import Launch, executions
from jtransformer.sweep.executions import Executions

LOOP = {"mode": "loop", "runs_at_once": 1, "steps_per_dispatch": 1}
VMAP = {"mode": "vmap", "runs_at_once": 3, "steps_per_dispatch": 1}


def chosen(workdir, execution, **wishes):
    return Executions(workdir, Launch(**wishes)).of("one", lambda: execution)


def test_who_comes_first_chooses(tmp_path):
    assert executions(tmp_path) == {}
    assert chosen(tmp_path, VMAP) == VMAP
    assert chosen(tmp_path, LOOP) == VMAP
    assert executions(tmp_path) == {"one": VMAP}


@pytest.mark.parametrize(
    "wish", [dict(mode="loop"), dict(runs_at_once=2), dict(steps_per_dispatch=5)], ids=str
)
def test_another_wish_is_refused_unless_another_environment_is_accepted(tmp_path, wish):
    chosen(tmp_path, VMAP)
    with pytest.raises(SpecError, match="^--.* runs of the same program were begun with"):
        chosen(tmp_path, LOOP, **wish)
    assert chosen(tmp_path, LOOP, accept_environment=True, **wish) == LOOP
    assert executions(tmp_path) == {"one": LOOP}


def test_runs_at_once_say_nothing_where_the_fastest_mode_is_the_loop(tmp_path):
    assert chosen(tmp_path, LOOP, runs_at_once=4) == LOOP
    with pytest.raises(SpecError, match="^--mode = 'vmap'"):
        chosen(tmp_path, LOOP, mode="vmap", runs_at_once=4)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"mode": "vmap"'])
def test_error_a_damaged_file(tmp_path, text):
    (tmp_path / "executions").mkdir()
    (tmp_path / "executions" / "one.json").write_text(text)
    with pytest.raises(records.DamagedRecord, match=r"one\.json is damaged .* delete it"):
        chosen(tmp_path, LOOP)
    with pytest.raises(records.DamagedRecord, match=r"one\.json is damaged .* delete it"):
        executions(tmp_path)
