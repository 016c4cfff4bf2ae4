"""Tests for jtransformer.spec.spans."""

import pytest

from jtransformer.spec import SpecError, presets
from jtransformer.spec.spans import span_counts, span_lengths


def test_worked_figures_of_the_paper():
    """568 tokens at 15 % in spans of 3 fill 512 inputs and 114 targets, EOS of both counted.

    Here the source has no EOS, and the target ends with one more sentinel.
    """
    assert span_lengths(568, 0.15, 3.0) == (568 - 85 + 28, 85 + 28 + 2, 28)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((10, 0.3, 1.5), (3, 2)),
        ((10, 0.01, 3.0), (1, 1)),
        ((10, 0.9, 1.0), (9, 1)),
        ((10, 0.5, 1.0), (5, 5)),
        ((3, 0.9, 3.0), (2, 1)),
        ((2, 0.15, 3.0), (1, 1)),
        ((1, 0.15, 3.0), (0, 0)),
        ((0, 0.15, 3.0), (0, 0)),
    ],
)
def test_counts(settings, expected):
    assert span_counts(*settings) == expected


@pytest.mark.parametrize("density", [0.01, 0.15, 0.5, 0.8])
@pytest.mark.parametrize("mean_length", [1.0, 1.7, 3.0, 50.0])
def test_law_every_shorter_text_fits(density, mean_length):
    widest = span_lengths(60, density, mean_length)
    for length in range(61):
        dropped, spans = span_counts(length, density, mean_length)
        assert length - dropped + spans <= widest.source_length
        assert dropped + spans + 2 <= widest.target_length and spans <= widest.spans
        # Every span holds a token and has a kept one before it.
        assert spans <= min(dropped, length - dropped) and (dropped > 0) == (length > 1)


def test_row_lengths():
    assert presets.decoder_lm().row_lengths == (64, None)
    assert presets.translation().row_lengths == (16, 16)
    # 64 tokens lose 10 in 3 spans: 10 + 4 sentinels and the end, 54 + 3 sentinels.
    assert presets.span_corruption().row_lengths == (15, 57)


def test_live_each_knob_changes_the_lengths():
    base = span_lengths(60, 0.15, 3.0)
    others = [span_lengths(60, 0.15, 1.0), span_lengths(60, 0.5, 3.0), span_lengths(61, 0.15, 3.0)]
    assert len({base, *others}) == 4


@pytest.mark.parametrize(("length", "density"), [(1, 0.15), (1, 0.9), (3, 0.9), (100, 0.999)])
def test_error_nothing_is_left(length, density):
    with pytest.raises(SpecError) as caught:
        span_lengths(length, density, 3.0)
    assert str(caught.value) == (
        f"objective.span_corruption.density = {density} drops all of data.length={length} tokens, "
        "so no sentinel would stand between kept ones; use a smaller density or a longer row."
    )
