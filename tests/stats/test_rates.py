"""How often the words are right, on simulated sweeps whose truth is known.

Every sweep is judged as a whole, by `analyse` on its records. A rate that is measured over n sweeps
may miss a promised rate p by two of its standard errors, 2 sqrt(p (1 - p) / n): that is what a
test allows, and no more.
"""

import math

import numpy as np
import pytest
from sweep_fixture import record_of

from jtransformer.stats import analyse, resolvable_at, seeds_needed

ARMS = ("base", "one", "two", "three")
SD, SHARED_SD = 0.004, 0.02
RATE = 0.004
FEW, MANY = 100, 2_000


def sweeps_and(names, fast, slow):
    """Runs the first case on few sweeps always, and all on many before a release."""
    cases = [pytest.param(FEW, *fast)]
    cases += [pytest.param(MANY, *case, marks=pytest.mark.exhaustive) for case in (fast, *slow)]
    return pytest.mark.parametrize(", ".join(["sweeps", *names]), cases)


def allowance(rate, sweeps):
    return 2 * math.sqrt(rate * (1 - rate) / sweeps)


def simulated(generator, effects, seeds, sd=SD, **rule):
    """Judges one sweep of arms with these effects on the loss; returns its words by arm."""
    shared = generator.normal(0, SHARED_SD, seeds)
    losses = {
        (arm, RATE, seed): float(2 + effect + shared[seed] + generator.normal(0, sd))
        for arm, effect in zip(ARMS, effects, strict=True)
        for seed in range(seeds)
    }
    return words(record_of(losses, verdict=rule))


def words(record):
    return {arm.name: arm.verdict.word for arm in analyse(record).arms}


def rate(sweeps, key, holds, effects, seeds, **rule):
    generator = np.random.default_rng(key)
    found = [simulated(generator, effects, seeds, **rule) for _ in range(sweeps)]
    return sum(bool(holds(one)) for one in found) / sweeps


@sweeps_and(["seeds"], (3,), [(2,), (5,)])
def test_without_an_effect_hardly_any_sweep_names_an_arm(sweeps, seeds):
    named = rate(sweeps, 21, lambda w: {"better", "worse"} & {*w.values()}, (0, 0, 0, 0), seeds)
    assert named <= 0.05 + allowance(0.05, sweeps)


@sweeps_and(["sign", "word"], (-1, "better"), [(1, "worse")])
def test_the_smallest_resolvable_difference_is_told_in_four_of_five(sweeps, sign, word):
    """At Holm's first step.

    Its second tells it more often, where one of the two arms without an effect is told first, which
    happens in at most 2/3 of 5 %.
    """
    effect = sign * resolvable_at(3, residual_sd=SD, arms=4, comparisons=3)
    told = rate(sweeps, 22, lambda w: w["one"] == word, (0, effect, 0, 0), 3)
    assert -allowance(0.8, sweeps) <= told - 0.8 <= 0.05 * 2 / 3 + allowance(0.8, sweeps)


@sweeps_and([], (), [])
def test_at_the_margin_hardly_any_sweep_calls_an_arm_equivalent(sweeps):
    """All three arms lie at the margin, on both sides; the rate is that of any false word."""
    margin = 0.006
    called = rate(
        sweeps,
        23,
        lambda w: "equivalent within margin" in w.values(),
        (0, margin, -margin, margin),
        5,
        margin=margin,
    )
    assert called <= 0.05 + allowance(0.05, sweeps)


@sweeps_and([], (), [])
def test_well_within_the_margin_most_arms_are_equivalent(sweeps):
    margin = 0.01
    within = rate(
        sweeps,
        24,
        lambda w: [*w.values()].count("equivalent within margin") == 3,
        (0, 0.001, -0.001, 0),
        7,
        margin=margin,
    )
    assert within >= 0.9


@pytest.mark.slow
def test_false_discoveries_are_as_few_as_declared():
    """Of what is named, the share that is not there; no named arm counts as none."""
    generator = np.random.default_rng(25)
    shares = []
    for _ in range(MANY):
        found = simulated(generator, (0, -0.012, 0, 0), 3, correction="fdr")
        named = [arm for arm, word in found.items() if word in ("better", "worse")]
        shares.append(sum(arm != "one" for arm in named) / max(len(named), 1))
    # A share lies between 0 and 1, so its variance is at most that of a coin of its mean.
    assert np.mean(shares) <= 0.05 + allowance(0.05, MANY)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_an_arm_that_diverges_more_often_is_called_so_and_no_other(seeds):
    generator = np.random.default_rng(26)
    for _ in range(30):
        lost = generator.permutation(seeds)[: generator.integers(1, seeds + 1)]
        losses = {
            (arm, RATE, seed): "diverged"
            if arm == "two" and seed in lost
            else float(generator.normal(2, SD))
            for arm in ARMS
            for seed in range(seeds)
        }
        found = words(record_of(losses))
        assert found["two"] == "diverges more often"
        assert "diverges more often" not in (found["one"], found["three"])


@pytest.mark.slow
def test_the_seeds_that_are_said_to_be_needed_do_what_is_said():
    """The effect that 3 seeds cannot tell is told with the needed ones in four sweeps of five."""
    effect, sweeps = 0.006, 1_000
    needed = seeds_needed(difference=effect, residual_sd=SD, arms=4, comparisons=3)
    assert needed is not None and needed > 3
    told = rate(sweeps, 27, lambda w: w["one"] == "worse", (0, effect, 0, 0), needed)
    assert told >= 0.8 - allowance(0.8, sweeps)
