"""Tests for jtransformer.stats.families: by hand."""

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from jtransformer.stats import Estimate, adjust, simultaneous

RAW = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
FITTED = Estimate(value=-0.02, standard_error=0.004, degrees_of_freedom=10)


def test_holm_by_hand():
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 is 0.02, 0.03, 0.06, 0.04; then cumulative.
    expected = {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    assert adjust(RAW, 4, "holm") == pytest.approx(expected)


def test_holm_is_that_of_statsmodels():
    p_values = np.random.default_rng(1).uniform(0, 0.03, 12)
    expected = multipletests([*p_values, 1.0, 1.0], method="holm")[1][:12]
    got = adjust(dict(enumerate(p_values)), 14, "holm")
    np.testing.assert_allclose(list(got.values()), expected, rtol=1e-12)
    assert len(set(expected)) > 3


def test_false_discovery_by_hand():
    # Times 4/1, 4/2, 4/3, 4/4 is 0.02, 0.02, 0.04, 0.04: already in order.
    expected = {"a": 0.02, "b": 0.04, "c": 0.04, "d": 0.02}
    assert adjust(RAW, 4, "fdr") == pytest.approx(expected)
    # A p takes the smallest figure of those at or above it: 0.08 becomes 0.045.
    assert adjust({"a": 0.04, "b": 0.045}, 2, "fdr") == pytest.approx({"a": 0.045, "b": 0.045})


@pytest.mark.parametrize("correction", ["holm", "fdr"])
def test_what_could_not_be_tested_counts(correction):
    assert adjust({"a": 0.01}, 5, correction) == pytest.approx({"a": 0.05})
    assert adjust({}, 5, correction) == {}


def test_simultaneous_by_hand():
    # t(0.995) with 10 degrees of freedom, from a printed table: five comparisons, two sides.
    half = 3.1693 * 0.004
    np.testing.assert_allclose(simultaneous(FITTED, 5), [-0.02 - half, -0.02 + half], atol=1e-6)
    # One comparison is its own family: t(0.975).
    half = 2.2281 * 0.004
    np.testing.assert_allclose(simultaneous(FITTED, 1), [-0.02 - half, -0.02 + half], atol=1e-6)
    assert simultaneous(Estimate(value=0.1), 5) is None


def test_error_names_the_culprit():
    with pytest.raises(ValueError, match="'holm' or 'fdr', got 'none'"):
        adjust(RAW, 4, "none")
    with pytest.raises(ValueError, match="got comparisons=3 for 4 p values"):
        adjust(RAW, 3, "holm")
