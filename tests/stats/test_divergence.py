"""Tests for jtransformer.stats.divergence: published figures, exact enumeration, whole sweeps."""

import json
import math

import numpy as np
import pytest
from sweep_fixture import RATES, noisy_losses, scaled, write_sweep

from jtransformer.records import load_sweep
from jtransformer.stats import analyse, analyse_scales, at_scales, divergence
from jtransformer.stats.divergence import exact_rate, p_of_rates, ranks_within_seeds

LOW, MIDDLE, HIGH = RATES
ARMS = {"pre": 0.0, "post": 0.03, "gate": -0.03}


@pytest.fixture
def losses():
    return noisy_losses(ARMS)


@pytest.fixture
def find(tmp_path):
    def write_and_find(losses, **manifest):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        record = load_sweep(write_sweep(folder, losses, **manifest))
        return divergence(record, analyse(record))

    return write_and_find


def arms_of(found):
    return {arm.name: arm for arm in found.arms}


# Newcombe 1998, Statistics in Medicine 17, 857-872, table I, method 5; the last is Agresti,
# Categorical Data Analysis, 3rd ed., sec. 1.4.3.
@pytest.mark.parametrize(
    "diverged, finished, low, high",
    [
        (81, 263, 0.2527, 0.3676),
        (15, 148, 0.0578, 0.1617),
        (0, 20, 0.0, 0.1684),
        (1, 29, 0.0009, 0.1776),
        (0, 25, 0.0, 0.137),
    ],
)
def test_the_interval_equals_published_ones(diverged, finished, low, high):
    got = exact_rate(diverged, finished)
    np.testing.assert_allclose(got.low, low, atol=5e-5)
    np.testing.assert_allclose(got.high, high, atol=5e-5 if finished != 25 else 5e-4)
    assert got.value == diverged / finished


def binomial(n, p):
    return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])


@pytest.mark.parametrize("diverged, finished", [(1, 3), (3, 9), (8, 9), (5, 54)])
def test_the_interval_cuts_two_and_a_half_percent_off_each_side(diverged, finished):
    got = exact_rate(diverged, finished)
    np.testing.assert_allclose(binomial(finished, got.low)[diverged:].sum(), 0.025, rtol=1e-9)
    np.testing.assert_allclose(binomial(finished, got.high)[: diverged + 1].sum(), 0.025, rtol=1e-9)


def test_none_and_all_of_them_have_closed_forms():
    # SciPy solves for the ends, to 2e-12.
    ends = [exact_rate(0, 54).high, exact_rate(9, 9).low]
    np.testing.assert_allclose(ends, [1 - 0.025 ** (1 / 54), 0.025 ** (1 / 9)], rtol=0, atol=1e-11)
    assert exact_rate(0, 54).low == 0.0 and exact_rate(9, 9).high == 1.0


def mixed(rates):
    """The distribution of how many of independent runs diverge, each with a rate of its own."""
    chances = np.ones(1)
    for rate in rates:
        chances = np.convolve(chances, [1 - rate, rate])
    return chances


SETTINGS = {
    "alike": np.full(9, 0.3),
    "three settings": np.repeat([0.02, 0.3, 0.95], 3),
    "one bad setting": np.repeat([0.0, 0.0, 0.6], 3),
}


@pytest.mark.parametrize("rates", SETTINGS.values(), ids=SETTINGS.keys())
def test_the_interval_covers_the_mean_rate_of_several_settings(rates):
    chances, mean = mixed(rates), rates.mean()
    covered = [exact_rate(k, 9).low <= mean <= exact_rate(k, 9).high for k in range(10)]
    assert chances[covered].sum() >= 0.95


def test_three_of_three_against_none_by_hand():
    # Fisher's one-sided p of this table is 1/20, the least there is, so that its chance is
    # q^3 (1 - q)^3, at most 1/64; two-sided it is doubled. Fisher's own two-sided p is 0.1.
    np.testing.assert_allclose(p_of_rates(exact_rate(3, 3), exact_rate(0, 3)), 1 / 32, rtol=1e-6)


def test_the_p_equals_the_published_example():
    # 74 of 117 professors against 31 of 63 scientists, documentation of scipy.stats
    # .boschloo_exact after Saari and Judge 2004: one-sided p = 0.0355, cut to four places.
    got = p_of_rates(exact_rate(74, 117), exact_rate(31, 63))
    assert math.floor(got / 2 * 1e4) / 1e4 == 0.0355


def boschloo(k, n):
    """The definition: tables ordered by Fisher's one-sided p, the largest chance over a grid."""

    def fisher(a, b):
        total = math.comb(sum(n), a + b)
        ways = [math.comb(n[0], i) * math.comb(n[1], a + b - i) for i in range(a + b + 1)]
        return sum(ways[a:]) / total

    tables = [(a, b) for a in range(n[0] + 1) for b in range(n[1] + 1)]
    q = np.linspace(0, 1, 4001)
    sides = []
    for flipped in (False, True):
        m = [(n[0] - a, n[1] - b) if flipped else (a, b) for a, b in tables]
        here = (n[0] - k[0], n[1] - k[1]) if flipped else k
        extreme = [t for t, u in zip(tables, m, strict=True) if fisher(*u) <= fisher(*here) + 1e-12]
        chance = sum(
            math.comb(n[0], a) * math.comb(n[1], b) * q ** (a + b) * (1 - q) ** (sum(n) - a - b)
            for a, b in extreme
        )
        sides.append(np.max(chance))
    return min(1.0, 2 * min(sides))


@pytest.mark.parametrize("k, n", [((4, 1), (6, 6)), ((3, 0), (9, 9)), ((1, 5), (5, 7))])
def test_the_p_equals_the_definition(k, n):
    got = p_of_rates(exact_rate(k[0], n[0]), exact_rate(k[1], n[1]))
    np.testing.assert_allclose(got, boschloo(k, n), rtol=1e-4)
    swapped = p_of_rates(exact_rate(k[1], n[1]), exact_rate(k[0], n[0]))
    np.testing.assert_allclose(swapped, got, rtol=1e-6)
    assert got == p_of_rates(exact_rate(k[0], n[0]), exact_rate(k[1], n[1]))


def test_all_alike_is_no_evidence():
    assert p_of_rates(exact_rate(0, 9), exact_rate(0, 6)) == 1.0
    assert p_of_rates(exact_rate(9, 9), exact_rate(6, 6)) == 1.0


@pytest.fixture(scope="module")
def found_at_five_percent():
    """Which of the tables of six runs against six are called different."""
    rates = [exact_rate(k, 6) for k in range(7)]
    return np.array([[p_of_rates(one, other) <= 0.05 for other in rates] for one in rates])


@pytest.mark.parametrize("rates", [r[::3].repeat(2) for r in SETTINGS.values()], ids=SETTINGS)
def test_false_findings_stay_under_five_percent(found_at_five_percent, rates):
    chances = np.outer(mixed(rates), mixed(rates))
    assert chances[found_at_five_percent].sum() <= 0.05
    assert found_at_five_percent[6, 0] and not np.diag(found_at_five_percent).any()


def test_ranks_by_hand():
    inf = math.inf
    losses = {"a": {0: 2.0, 1: 2.0, 2: 2.1}, "b": {0: 1.9, 1: 2.0, 2: inf}, "c": {0: inf, 1: inf}}
    got = ranks_within_seeds(losses | {"d": {0: inf, 7: 2.0}})
    assert got == {
        0: {"a": 2.0, "b": 1.0, "c": 3.5, "d": 3.5},
        1: {"a": 1.5, "b": 1.5, "c": 3.0},
        2: {"a": 1.0, "b": 2.0},
    }


def test_rates_and_ranks_of_a_sweep(find, losses):
    losses |= {("post", HIGH, seed): "diverged" for seed in range(3)}
    losses |= {("post", rate, 1): "diverged" for rate in (LOW, MIDDLE)}
    found = find(losses)
    arms = arms_of(found)
    post = arms["post"]
    assert (found.all.diverged, found.all.finished) == (5, 27)
    assert (post.all.diverged, post.all.finished) == (5, 9)
    # Every setting has a diverged run; the middle rate has one, and the lowest mean.
    assert (post.chosen.diverged, post.chosen.finished) == (1, 3)
    by_rate = post.by_value["optimizer.learning_rate"]
    assert {v: (r.diverged, r.finished) for v, r in by_rate.items()} == {
        LOW: (1, 3), MIDDLE: (1, 3), HIGH: (3, 3),
    }  # fmt: skip
    np.testing.assert_allclose(post.p, boschloo((5, 0), (9, 9)), rtol=1e-4)
    assert (arms["gate"].p, arms["pre"].p, found.comparisons) == (1.0, None, 2)
    assert post.p_adjusted == pytest.approx(2 * post.p)
    # gate is 0.03 below pre, post as much above, with noise of 0.004; a diverged run is last.
    assert arms["gate"].ranks == {0: 1.0, 1: 1.0, 2: 1.0} and arms["gate"].median_rank == 1.0
    assert post.ranks == {0: 3.0, 1: 3.0, 2: 3.0} and found.unranked == {}


def test_a_diverged_run_moves_a_rank_and_no_mean(find, losses):
    for rate in (LOW, HIGH):
        losses |= {("gate", rate, seed): "diverged" for seed in range(3)}
    losses["gate", MIDDLE, 1] = "diverged"
    gate = arms_of(find(losses))["gate"]
    assert gate.ranks == {0: 1.0, 1: 3.0, 2: 1.0} and gate.median_rank == 1.0


def test_an_unfinished_arm_is_counted_and_not_tested(find, losses):
    losses |= {("post", HIGH, 0): "diverged", ("post", HIGH, 1): "pending"}
    losses["gate", MIDDLE, 2] = "failed"
    found = find(losses)
    arms = arms_of(found)
    assert (arms["post"].all.finished, arms["post"].p) == (8, None)
    assert (arms["gate"].p, arms["gate"].p_adjusted) == (None, None)
    # Its other settings have more finished runs, so that one of those is its choice for now.
    assert found.unranked == {} and found.comparisons == 2


def test_a_seed_without_a_run_is_left_out_of_its_ranks(find, losses):
    losses |= {(arm, rate, seed): "pending" for arm, rate, seed in losses if rate != MIDDLE}
    losses["post", MIDDLE, 2] = "running"
    found = find(losses)
    assert found.unranked == {"post": (2,)}
    assert arms_of(found)["post"].ranks == {0: 3.0, 1: 3.0}
    assert arms_of(found)["gate"].ranks == {0: 1.0, 1: 1.0, 2: 1.0}


def test_nothing_diverged_has_an_upper_bound(find, losses):
    found = find(losses)
    assert (found.all.diverged, found.all.finished, found.all.low) == (0, 27, 0.0)
    np.testing.assert_allclose(found.all.high, 1 - 0.025 ** (1 / 27), atol=1e-11)
    assert {arm.p for arm in found.arms} == {None, 1.0}


def test_one_seed_has_ranks_and_no_median(find, losses):
    found = find({key: loss for key, loss in losses.items() if key[2] == 0})
    assert arms_of(found)["gate"].ranks == {0: 1.0}
    assert all(arm.median_rank is None for arm in found.arms)


def test_no_run_is_nothing_to_say(find, losses):
    assert find(dict.fromkeys(losses, "pending")) is None


def test_everything_diverged(find, losses):
    found = find(dict.fromkeys(losses, "diverged"))
    assert (found.all.diverged, found.all.high) == (27, 1.0)
    assert {arm.median_rank for arm in found.arms} == {2.0}
    assert {arm.p for arm in found.arms} == {None, 1.0}


def test_drawn_settings_are_not_told_apart_by_value(find, losses):
    search = dict(strategy="random", trials=3, seed=0, rungs=None, keep=None)
    losses["post", HIGH, 0] = "diverged"
    found = find(losses, search=search)
    assert all(arm.by_value == {} for arm in found.arms) and found.all.diverged == 1


def test_only_runs_of_all_steps_count(tmp_path, losses):
    """Of two rungs the first has three rates, and the second the middle one."""
    losses |= {("post", LOW, 0): "diverged", ("post", MIDDLE, 2): "diverged"}
    folder = write_sweep(tmp_path, losses)
    manifest = json.loads((folder / "sweep.json").read_text())
    for cell in manifest["cells"]:
        last = cell["nuisance"]["optimizer.learning_rate"] == MIDDLE
        cell["rung"] = {"number": 1 + last, "of": 2, "steps": 200 * (1 + last)}
    (folder / "sweep.json").write_text(json.dumps(manifest))
    record = load_sweep(folder)
    found = divergence(record, analyse(record))
    assert (found.all.diverged, found.all.finished) == (1, 9)
    assert (found.shorter.diverged, found.shorter.finished) == (1, 18)
    assert arms_of(found)["post"].by_value == {}


def test_the_family_has_the_comparisons_of_every_scale(tmp_path):
    effects = {"small-pre": 0.0, "small-post": 0.1, "large-pre": -0.5, "large-post": -0.4}
    losses = noisy_losses(effects)
    losses |= {("small-post", rate, seed): "diverged" for rate in RATES for seed in range(3)}
    record = load_sweep(write_sweep(tmp_path, losses, **scaled(effects)))
    pairs = zip(at_scales(record), analyse_scales(record), strict=True)
    small, large = (divergence(one, analysis) for one, analysis in pairs)
    post = arms_of(small)["small-post"]
    assert small.comparisons == large.comparisons == 2
    assert post.p_adjusted == pytest.approx(2 * post.p) and post.p < 1e-3
    assert large.all.diverged == 0


def test_live_the_correction_of_the_rule_is_used(find):
    losses = noisy_losses({"pre": 0.0, "a": 0.0, "b": 0.0, "c": 0.0})
    losses |= {(arm, HIGH, seed): "diverged" for arm in "ab" for seed in range(3)}
    losses["a", LOW, 0] = "diverged"
    by = {}
    for correction in ("holm", "fdr"):
        rule = dict(margin=None, correction=correction, intervals="unadjusted")
        by[correction] = arms_of(find(losses, verdict=rule))["b"]
    # p of a < p of b < p of c = 1: Holm takes b times 2, Benjamini and Hochberg times 3 / 2.
    assert by["holm"].p == by["fdr"].p
    assert by["holm"].p_adjusted == pytest.approx(2 * by["holm"].p)
    assert by["fdr"].p_adjusted == pytest.approx(1.5 * by["fdr"].p)
