"""Tests that layers that are alike are drawn once, and stand for those that there are."""

import random

import pytest
from tiny_model import changed

from jtransformer.drawing import boxes_of, describe
from jtransformer.drawing.diagram import boxes_within
from jtransformer.drawing.layers import runs_of
from jtransformer.spec import DotProduct, NTKScaling, Rope


def unrolled(kinds, runs):
    found = []
    for run in runs:
        assert run.first == len(found)
        found += kinds[run.first : run.first + run.length] * run.repeat
    return found


@pytest.mark.parametrize("period", [1, 2, 3])
def test_runs_stand_for_the_layers_that_there_are(period):
    draw = random.Random(period)
    for _ in range(200):
        kinds = [draw.choice("ab") for _ in range(draw.randint(1, 12))]
        assert unrolled(kinds, runs_of(kinds, period)) == kinds


def test_a_pattern_is_one_group_and_what_is_left_another():
    kinds = list("x" + "aaf" * 6 + "a")
    runs = [tuple(run) for run in runs_of(kinds, 3)]
    assert runs == [(0, 1, 1), (1, 3, 6), (19, 1, 1)]
    assert [tuple(run) for run in runs_of(list("aaaa"), 3)] == [(0, 1, 4)]
    assert [tuple(run) for run in runs_of(list("abab"), 1)] == [(n, 1, 1) for n in range(4)]


def groups(spec):
    (stack,) = describe(spec).stacks
    return [node for node in stack.nodes if type(node).__name__ == "Layers"]


def test_layers_of_a_model_are_grouped_by_what_they_compute():
    (all_alike,) = groups(changed(layers=7))
    assert (all_alike.repeat, all_alike.layers, all_alike.is_layer) == (7, 7, True)
    window = DotProduct(window=2, window_pattern="window,window,full")
    pattern, rest = groups(changed(layers=8, attention=window))
    assert (pattern.repeat, pattern.layers, pattern.is_layer) == (2, 6, False)
    assert [(one.repeat, one.first) for one in pattern.nodes] == [(2, 0), (1, 2)]
    assert (rest.repeat, rest.first) == (2, 6)
    off = groups(changed(layers=5, attention=DotProduct(heads_off="2.0,2.1")))
    assert [(one.repeat, one.first) for one in off] == [(2, 0), (1, 2), (2, 3)]
    silent = [any("heads 0, 1 read zeros" in box.facts for box, _ in boxes_within(one.nodes))
              for one in off]  # fmt: skip
    assert silent == [False, True, False]


def test_rotary_positions_are_those_of_their_layer():
    window = DotProduct(window=2, window_pattern="window,full")
    position = Rope(theta=400.0, window_theta=9.0, scaling=NTKScaling(factor=3.0))
    boxes = boxes_of(describe(changed(layers=2, attention=window, position=position)))
    near, far = (" ".join(box.facts) for box, _ in boxes if box.role == "position")
    assert "θ 9," in near and "NTK" not in near
    assert "θ 400," in far and "NTK scaling by 3" in far


def test_a_hundred_thousand_layers_are_drawn_at_once():
    window = DotProduct(window=2, window_pattern="window,full", heads_off="99998.1")
    diagram = describe(changed(layers=100_000, attention=window))
    attentions = [times for box, times in boxes_of(diagram) if box.title == "Self-attention"]
    assert sum(attentions) == 100_000 and len(attentions) < 6
