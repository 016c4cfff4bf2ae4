"""Tests of what is left out of a picture, and of what never is."""

import numpy as np
import pandas
import pytest

from jtransformer.report import thinning


@pytest.fixture
def curves():
    """Forty lines of 2,000 points with one spike up and one down each, and a short line."""
    generator = np.random.default_rng(0)
    lines = []
    for arm in range(8):
        for seed in range(5):
            nll = 2 + np.exp(-np.arange(2000) / 300) + generator.normal(0, 0.01, 2000)
            nll[137 + arm], nll[1500 + seed] = 9.0, 0.5
            lines.append(pandas.DataFrame({"arm": arm, "seed": seed, "step": range(2000),
                                           "nll": nll}))  # fmt: skip
    short = pandas.DataFrame({"arm": 8, "seed": 0, "step": range(20), "nll": 2.0})
    return pandas.concat([*lines, short], ignore_index=True)


def test_ends_and_extremes_stay_and_the_rest_is_bounded(curves):
    drawn = thinning.thin(curves, by=["arm", "seed"], y="nll")
    assert len(drawn) <= 1.2 * thinning.MOST_POINTS
    assert drawn.index.is_monotonic_increasing
    pandas.testing.assert_frame_equal(drawn, curves.loc[drawn.index])
    whole, kept = (t.groupby(["arm", "seed"]) for t in (curves, drawn))
    for one in ("first", "last", "min", "max"):
        pandas.testing.assert_frame_equal(getattr(whole, one)(), getattr(kept, one)())
    assert len(drawn.query("arm == 8")) == 20
    # No stretch of a line goes undrawn.
    gaps = kept["step"].diff()
    assert gaps.max() <= 2 * 2000 / (thinning.MOST_POINTS // 41 // 2)


def test_few_points_are_all_drawn_and_nothing_is_said(curves):
    few = curves.iloc[: thinning.MOST_POINTS]
    assert thinning.thin(few, by=["arm", "seed"], y="nll") is few
    assert thinning.said(few, few) == ""


def test_what_is_left_out_is_declared(curves):
    drawn = thinning.thin(curves, by=["arm", "seed"], y="nll")
    assert f"Drawn are {len(drawn):,} of 80,020 points" in thinning.said(drawn, curves)


def test_many_lines_keep_a_shape_each():
    lines = pandas.DataFrame({"line": np.repeat(range(600), 100), "y": np.tile(range(100), 600)})
    drawn = thinning.thin(lines, by=["line"], y="y")
    assert drawn.groupby("line").size().min() >= thinning.FEWEST_POINTS - 2
