"""Tests of rows, limits and what is refused."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer.checks import NAMES, Report, Rounding, distance, run_all, stacked
from jtransformer.checks.report import Finding, NotApplicable, row


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (Finding(1.0, "m", 1.0), "pass"),
        (Finding(1.1, "m", 1.0), "fail"),
        (Finding(1.1, "m", 1.0, at_least=True), "pass"),
        (Finding(0.9, "m", 1.0, at_least=True), "fail"),
        (Finding(math.nan, "m", 1.0), "fail"),
        (Finding(math.inf, "m", 1.0, at_least=True), "fail"),
        (NotApplicable("it is none"), "not applicable"),
    ],
)
def test_a_verdict_follows_from_figure_and_limit(finding, verdict):
    found = row("group", "law", finding, 0.5)
    report = Report((found,))
    assert found.verdict == verdict and report.passed == (verdict != "fail")
    # What is no number is null, which every reader of JSON understands.
    (read,) = json.loads(json.dumps(report.to_json(), allow_nan=False))["rows"]
    assert read["verdict"] == verdict and read["seconds"] == 0.5


def test_reach_of_layers_is_the_product_of_their_masks():
    i, j = np.arange(6)[:, None], np.arange(6)[None]
    near = (j <= i) & (i - j < 2)
    np.testing.assert_array_equal(stacked([near]), near)
    np.testing.assert_array_equal(stacked([near, near]), (j <= i) & (i - j < 3))
    np.testing.assert_array_equal(stacked([near, j <= i]), j <= i)
    # A position that a layer hides from itself is there by the residual path.
    np.testing.assert_array_equal(stacked([j < i]), j <= i)


def test_a_limit_grows_with_type_depth_and_terms():
    limits = [
        Rounding(dtype, depth, terms).limit()
        for dtype, depth, terms in (
            (jnp.float64, 4, 256),
            (jnp.float32, 4, 256),
            (jnp.float32, 16, 256),
            (jnp.float32, 16, 4096),
            (jnp.bfloat16, 16, 4096),
        )
    ]
    assert limits == sorted(limits)
    assert limits[0] < 1e-12 and 1e-5 < limits[1] < 3e-5 and limits[4] < 0.5
    # Depth adds up as errors do that know nothing of each other.
    assert limits[2] == pytest.approx(2 * limits[1])


def test_sums_of_float32_differ_by_less_than_the_limit_and_by_no_hundredth_of_it():
    generator = np.random.default_rng(0)
    x, weights = generator.normal(size=(8, 256)), generator.normal(size=(4, 256, 256)) / 16
    found, expected = x.astype(np.float32), x
    for weight in weights:
        found, expected = found @ weight.astype(np.float32), expected @ weight
    limit = Rounding(jnp.float32, 4, 256).limit()
    assert limit / 300 < distance(found, expected) < limit


def test_distance_is_that_of_the_farthest_position():
    expected = np.ones((2, 3, 4))
    found = expected.copy()
    found[1, 2] += 0.5
    assert distance(found, expected) == pytest.approx(0.5)
    assert distance(expected, expected) == 0.0
    assert math.isnan(distance(found[:1], expected))
    found[0, 0, 0] = math.nan
    assert math.isnan(distance(found, expected))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(length=3), "length must be at least 4, got length=3"),
        (dict(rows=1), "rows must be at least 2"),
        (dict(vocabulary=1), "vocabulary must be at least 2"),
        (dict(laws=["order"]), "laws names 'order', which is no law"),
        (dict(reasons={"order": "why"}), "reasons names 'order'"),
        (dict(reach=np.ones((4, 4), bool)), r"bool of shape \(5, 5\)"),
        (dict(reach=np.ones((5, 5))), "got float64"),
    ],
)
def test_what_has_no_meaning_is_refused(change, message):
    given = dict(vocabulary=7, length=5) | change
    with pytest.raises(ValueError, match=message):
        run_all(lambda tokens: tokens, **given)


def test_laws_have_names_of_their_own_and_are_told_one_by_one():
    assert len(set(NAMES)) == len(NAMES)
    told = []

    def apply(tokens):
        return jnp.ones((*tokens.shape, 7))

    report = run_all(apply, vocabulary=7, length=5, laws=NAMES[-2:], told=told.append)
    assert tuple(told) == report.rows and [row.name for row in told] == list(NAMES[-2:])


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        (lambda tokens: np.ones((2, 5)), r"got shape \(2, 5\)"),
        (lambda tokens: np.ones((2, 3, 5)), r"got shape \(2, 3, 5\)"),
        (lambda tokens: {"logits": np.ones((2, 4, 5))}, "got dict; return the array alone"),
    ],
)
def test_what_is_no_array_of_logits_is_told_so(returned, got):
    with pytest.raises(ValueError, match=rf"logits of shape \(2, 4, vocabulary\) .*{got}"):
        run_all(returned, vocabulary=5, length=4, laws=["reach by perturbation"])
