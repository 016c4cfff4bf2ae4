"""Tests for jtransformer.report.text_map."""

import pytest

from jtransformer.report import text_map


def test_each_share_has_its_shade_and_its_place():
    drawn = text_map([[0.0, 0.19, 1.0], [0.2, 0.4, 0.6]], rows=["a", "bc"], columns=["x", 10, 0])
    header, first, second, legend = drawn.splitlines()
    assert header == "    x 10  0"
    assert first == " a       ██"
    assert second == "bc ░░ ▒▒ ▓▓"
    assert legend == "░ from 0.2  ▒ from 0.4  ▓ from 0.6  █ from 0.8"


def test_long_names_widen_all_columns_alike():
    header, row, _ = text_map([[0.9, 0.9]], rows=["q"], columns=["EOS", "b"]).splitlines()
    assert (header, row) == ("  EOS   b", "q ███ ███")


def test_rounding_is_no_fault():
    assert text_map([[1.004, -0.001]], rows=[0], columns=[0, 1]).splitlines()[1] == "0 ██"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[0.5]], "must have 1 rows of 2.*got 1 rows of \\[1\\]"),
        ([[0.5, 0.5]] * 2, "got 2 rows of \\[2\\]"),
        ([[0.5, 1.5]], "shares from 0 to 1, got 1.5"),
        ([[0.5, float("nan")]], "got nan"),
    ],
)
def test_what_cannot_be_drawn_is_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        text_map(weights, rows=["a"], columns=["x", "y"])
