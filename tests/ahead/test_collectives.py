"""Tests for jtransformer.ahead.collectives."""

import pytest
from ahead.hlo_texts import FORMS, NESTED

from jtransformer.ahead.collectives import Collective, collectives, sent
from jtransformer.ahead.hlo import parse


def test_a_collective_in_a_loop_counts_for_each_turn():
    # 15 turns of 4 x 8 float32 among 4; each device sends twice 3 / 4 of them.
    assert collectives(parse(NESTED)) == [Collective("all-reduce", 4, 15, 1920, 2880)]


def test_every_form_is_read():
    """Counted by hand: 16 x 4 float32 are 256 bytes, 8 are 32, and 8 x 4 bfloat16 are 64."""
    assert collectives(parse(FORMS)) == [
        Collective("all-reduce", 8, 1, 256, 448),
        Collective("all-reduce", 2, 1, 256, 256),
        Collective("collective-permute", 8, 1, 256, 256),
        Collective("reduce-scatter", 4, 1, 288, 216),
        Collective("all-to-all", 2, 1, 256, 128),
        # In two fusions of one channel: where it begins and where it ends.
        Collective("all-gather", 4, 1, 64, 48),
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("all-gather", 700),
        ("reduce-scatter", 700),
        ("all-reduce", 1400),
        ("all-to-all", 700),
        ("collective-permute", 800),
    ],
)
def test_a_ring_of_eight_sends(kind, expected):
    assert sent(kind, 800, 8) == expected
