"""The statistics agree with published examples, figure by figure.

Printed figures are rounded, and a tolerance is half of the last digit that was printed.
"""

import math

import numpy as np
import pytest

from jtransformer.stats import (
    Estimate,
    adjust,
    effect_size,
    fit_additive,
    p_equivalent,
    paired_t,
    seeds_needed,
    sign_flip,
)

# Student 1908, Biometrika 6, 1-25: additional hours of sleep by two drugs; R's data set "sleep".
SLEEP = (
    [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
    [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
)
# Darwin 1876: heights of crossed less those of self-fertilised maize, in eighths of an inch; from
# Fisher 1935, The Design of Experiments, table 3.
MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
# Montgomery, Design and Analysis of Experiments, table 4.3: yield of vascular grafts by extrusion
# pressure (rows) and batch of resin (the blocks, columns).
GRAFTS = np.array(
    [
        [90.3, 89.2, 98.2, 93.9, 87.4, 97.9],
        [92.5, 89.5, 90.6, 94.7, 87.0, 95.8],
        [85.5, 90.8, 89.6, 86.2, 88.0, 93.4],
        [82.5, 89.5, 85.6, 87.4, 78.9, 90.7],
    ]
)
PRESSURES = ("8500", "8700", "8900", "9100")
# Benjamini and Hochberg 1995, J. R. Statist. Soc. B 57, sec. 3.2: fifteen comparisons of two
# treatments of infarction, by Neuhaus et al. 1992.
INFARCTION = {
    str(number): p
    for number, p in enumerate(
        [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459]
        + [0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000],
        start=1,
    )
}


def by_pressure(missing=()):
    return {
        pressure: {
            block: float(y)
            for block, y in enumerate(row, start=1)
            if (pressure, block) not in missing
        }
        for pressure, row in zip(PRESSURES, GRAFTS, strict=True)
    }


def test_paired_t_of_student():
    """R: t.test(Pair(extra.1, extra.2) ~ 1, data = sleep2), in the manual's page of t.test."""
    first, second = SLEEP
    got = paired_t(np.subtract(first, second))
    np.testing.assert_allclose(got.value / got.standard_error, -4.0621, atol=5e-5)
    assert got.degrees_of_freedom == 9
    np.testing.assert_allclose(got.p, 0.002833, atol=5e-7)
    np.testing.assert_allclose([got.low, got.high], [-2.4598858, -0.7001142], atol=5e-8)
    np.testing.assert_allclose(got.value, -1.58, atol=1e-12)
    # Two arms over ten blocks are the same test.
    arms = {"1": dict(enumerate(first)), "2": dict(enumerate(second))}
    np.testing.assert_allclose(fit_additive(arms, "2").differences["1"].p, 0.002833, atol=5e-7)


def test_paired_t_of_darwin():
    """Fisher, sec. 17: t = 2.148 on 14 degrees of freedom, 4.970 % in both tails."""
    got = paired_t(MAIZE)
    np.testing.assert_allclose(got.value / got.standard_error, 2.148, atol=5e-4)
    np.testing.assert_allclose(got.p, 0.0497, atol=5e-6)


def test_sign_flip_of_darwin():
    """Fisher, sec. 21: of 32,768 totals 863 are at least 314, and as many at most -314."""
    assert sum(MAIZE) == 314
    np.testing.assert_allclose(sign_flip(MAIZE), 2 * 863 / 2**15, rtol=1e-12)


def test_randomised_complete_blocks():
    """Montgomery, table 4.4 (error mean square 7.33 on 15) and the comparisons below it."""
    printed = {
        ("8500", "8700"): (1.13, 0.73),
        ("8500", "8900"): (3.90, 2.50),
        ("8500", "9100"): (7.05, 4.51),
        ("8700", "8900"): (2.77, 1.77),
        ("8700", "9100"): (5.92, 3.79),
        ("8900", "9100"): (3.15, 2.02),
    }
    for (arm, baseline), (difference, t) in printed.items():
        fit = fit_additive(by_pressure(), baseline)
        assert fit.degrees_of_freedom == 15 and fit.residual_sd is not None
        np.testing.assert_allclose(fit.residual_sd**2, 7.33, atol=5e-3)
        got = fit.differences[arm]
        np.testing.assert_allclose(got.value, difference, atol=0.0051)
        np.testing.assert_allclose(got.standard_error, 1.56, atol=5e-3)
        np.testing.assert_allclose(got.value / got.standard_error, t, atol=5e-3)


def test_a_missing_block():
    """Montgomery, sec. 4.1.3: without 8700 in batch 4, the error is 101.70 on 14."""
    fit = fit_additive(by_pressure(missing={("8700", 4)}), "8500")
    assert (fit.degrees_of_freedom, fit.balanced, fit.observations) == (14, False, 23)
    np.testing.assert_allclose(fit.residual_sd**2 * 14, 101.70, atol=5e-3)
    # The estimate of the missing value that the book gives, 91.08, changes no arm's mean.
    filled = (GRAFTS[1].sum() - 94.7 + 91.08) / 6
    got = filled - GRAFTS[0].mean()
    np.testing.assert_allclose(fit.differences["8700"].value, got, atol=1e-3)


def test_holm_and_false_discovery_of_benjamini_and_hochberg():
    """Their example: at 5 % control of the family finds three, and of false discoveries four."""
    holm, fdr = (adjust(INFARCTION, 15, correction) for correction in ("holm", "fdr"))
    assert [name for name, p in holm.items() if p <= 0.05] == ["1", "2", "3"]
    assert [name for name, p in fdr.items() if p <= 0.05] == ["1", "2", "3", "4"]
    # 0.0095 is compared with 4 / 15 of 5 %.
    np.testing.assert_allclose(fdr["4"], 0.0095 * 15 / 4, rtol=1e-12)


def test_adjusted_p_of_r():
    """R 4: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm"), and "BH"."""
    raw = dict(zip("abcde", (0.01, 0.02, 0.03, 0.04, 0.05), strict=True))
    assert list(adjust(raw, 5, "holm").values()) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert list(adjust(raw, 5, "fdr").values()) == pytest.approx([0.05] * 5)
    # p.adjust(c(0.01, 0.02), "holm", n = 5) counts three tests that gave no p.
    few = adjust({"a": 0.01, "b": 0.02}, 5, "holm")
    assert list(few.values()) == pytest.approx([0.05, 0.08])


def test_two_one_sided_tests_of_lakens():
    """Lakens 2017, Soc. Psychol. Pers. Sci. 8, 355-362, on Eskine 2013: t(182) = -2.69, p = .004.

    Means 5.25 and 5.22, sds 0.95 and 0.83, of 95 and 89 people; the margin is 0.43 average sds.
    """
    error = math.sqrt(0.95**2 / 95 + 0.83**2 / 89)
    margin = 0.43 * math.sqrt((0.95**2 + 0.83**2) / 2)
    difference = Estimate(value=5.25 - 5.22, standard_error=error, degrees_of_freedom=182)
    np.testing.assert_allclose((difference.value - margin) / error, -2.69, atol=5e-3)
    np.testing.assert_allclose(p_equivalent(difference, margin), 0.004, atol=5e-4)


def test_noncentrality_of_mbess():
    """R, package MBESS: conf.limits.nct(ncp = 2.83, df = 126) gives 0.8337502 and 4.815359."""
    estimate = Estimate(value=2.83, standard_error=1.0, degrees_of_freedom=126)
    got = effect_size(estimate, 1.0)
    np.testing.assert_allclose([got.low, got.high], [0.8337502, 4.815359], atol=1e-6)


@pytest.mark.parametrize("effect, pairs", [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_pairs_needed_of_cohen(effect, pairs):
    """R: power.t.test(delta = d, power = 0.8, type = "paired"); G*Power 3 says the same.

    With two arms the sd of a paired difference is the residual sd times the root of 2.
    """
    got = seeds_needed(difference=effect, residual_sd=math.sqrt(0.5), arms=2, comparisons=1)
    assert got == pairs
