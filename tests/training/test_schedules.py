"""Tests for jtransformer.training.schedules: rates by update, against figures made by hand."""

import dataclasses
import functools
import math

import jax
import numpy as np
import optax
import pytest

from jtransformer.spec import (
    Constant,
    ModelSpec,
    Noam,
    OptimizerSpec,
    RunSpec,
    TrainingSpec,
    WarmupCosine,
    WarmupInverseSqrt,
    WarmupLinear,
    WarmupStableDecay,
)
from jtransformer.spec.optimizer import Schedule
from jtransformer.training import hyperparameters, learning_rate

PEAK = 0.1
UPDATES = np.arange(1, 11)


def run_of(schedule, steps=10, peak=PEAK, width=64):
    return RunSpec(
        model=ModelSpec(width=width),
        optimizer=OptimizerSpec(learning_rate=peak),
        schedule=schedule,
        training=TrainingSpec(steps=steps),
    )


def rates(schedule, updates=UPDATES, **run):
    """Returns rates; one program a kind, since a program must not depend on its numbers."""
    spec = run_of(schedule, **run)
    found = all_rates(type(schedule)(), updates, hyperparameters(spec), spec.model.width)
    return np.asarray(found, np.float64)


@functools.partial(jax.jit, static_argnums=(0, 3))
def all_rates(kind, updates, hyper, width):
    return jax.vmap(lambda t: learning_rate(kind, t, hyper, width=width))(updates)


BY_HAND = {
    "constant": (Constant(), {1: 0.1, 10: 0.1}),
    "constant, warmed up": (Constant(warmup_steps=4), {1: 0.025, 4: 0.1, 5: 0.1, 10: 0.1}),
    # The cosine is at a half where (t - 4) / 6 is: 0.1 (0.1 + 0.9 / 2).
    "cosine": (
        WarmupCosine(warmup_steps=4, final_fraction=0.1),
        {1: 0.025, 2: 0.05, 4: 0.1, 7: 0.055, 10: 0.01},
    ),
    "cosine from the start": (WarmupCosine(warmup_steps=0, final_fraction=0.0), {5: 0.05, 10: 0}),
    "cosine, all warm-up": (WarmupCosine(warmup_steps=10), {1: 0.01, 9: 0.09, 10: 0.1}),
    "linear": (
        WarmupLinear(warmup_steps=4, final_fraction=0.4),
        {1: 0.025, 4: 0.1, 5: 0.09, 7: 0.07, 10: 0.04},
    ),
    "linear to nothing": (WarmupLinear(warmup_steps=5), {5: 0.1, 6: 0.08, 9: 0.02, 10: 0.0}),
    "inverse root": (
        WarmupInverseSqrt(warmup_steps=4),
        {1: 0.025, 4: 0.1, 5: 0.1 * math.sqrt(0.8), 9: 0.1 * 2 / 3, 10: 0.1 * math.sqrt(0.4)},
    ),
    "stable": (
        WarmupStableDecay(warmup_steps=2, decay_steps=4, final_fraction=0.2),
        {1: 0.05, 2: 0.1, 3: 0.1, 6: 0.1, 7: 0.08, 8: 0.06, 10: 0.02},
    ),
    "stable, no plateau": (
        WarmupStableDecay(warmup_steps=6, decay_steps=4),
        {5: 0.1 * 5 / 6, 6: 0.1, 7: 0.075, 10: 0.0},
    ),
    # 64^-0.5 = 1 / 8, and at the end of the warm-up t^-0.5 = 1 / 2.
    "noam": (Noam(warmup_steps=4), {1: 0.1 / 64, 4: 0.1 / 16, 9: 0.1 / 24}),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_value_first_last_and_every_boundary_by_hand(name):
    schedule, expected = BY_HAND[name]
    found = rates(schedule)[np.array(list(expected)) - 1]
    np.testing.assert_allclose(found, list(expected.values()), rtol=3e-6, atol=1e-9)


def test_every_schedule_is_known_by_hand():
    for names in (BY_HAND, LIVE):
        assert {type(BY_HAND[name][0]) for name in names} == set(Schedule.__args__)


def test_value_noam_at_width_512_and_4000_updates_of_warm_up():
    golden = {
        1: 1.746928107421711e-07,
        100: 1.746928107421711e-05,
        4000: 0.0006987712429686843,
        8000: 0.0004941058844013093,
        100000: 0.00013975424859373687,
    }
    found = rates(
        Noam(warmup_steps=4000), np.array(list(golden)), steps=100000, peak=1.0, width=512
    )
    np.testing.assert_allclose(found, list(golden.values()), rtol=1e-6)


def test_value_warmup_cosine_is_that_of_optax_counted_from_one():
    theirs = optax.warmup_cosine_decay_schedule(0.0, PEAK, 4, 10, 0.01)
    found = rates(WarmupCosine(warmup_steps=4, final_fraction=0.1))
    np.testing.assert_allclose(found, [theirs(t) for t in UPDATES], rtol=1e-5)


@pytest.mark.parametrize("name", BY_HAND)
def test_law_rates_rise_in_the_warm_up_and_never_after_it(name):
    schedule, _ = BY_HAND[name]
    steps = np.diff(rates(schedule))
    assert np.all(steps[: max(schedule.warmup_steps - 1, 0)] > 0)
    assert np.all(steps[max(schedule.warmup_steps - 1, 0) :] <= 1e-9)


LIVE = ("constant, warmed up", "cosine", "linear", "inverse root", "stable", "noam")
CHANGES = {"warmup_steps": 3, "decay_steps": 5, "final_fraction": 0.3}


@pytest.mark.parametrize(
    ("schedule", "field"),
    [
        (schedule, field.name)
        for schedule, _ in (BY_HAND[name] for name in LIVE)
        for field in dataclasses.fields(schedule)
    ],
    ids=str,
)
def test_live_each_number_of_each_schedule_changes_some_rate(schedule, field):
    changed = dataclasses.replace(schedule, **{field: CHANGES[field]})
    assert not np.allclose(rates(schedule), rates(changed), rtol=1e-3)


@pytest.mark.parametrize("name", BY_HAND)
def test_live_peak_multiplies_every_rate(name):
    schedule, _ = BY_HAND[name]
    doubled = rates(schedule, peak=2 * PEAK)
    np.testing.assert_allclose(doubled, 2 * rates(schedule), rtol=1e-6)


def test_live_width_changes_noam_and_nothing_else():
    for schedule, _ in (BY_HAND[name] for name in LIVE):
        narrow, wide = (rates(schedule, width=width) for width in (64, 256))
        expected = narrow / 2 if isinstance(schedule, Noam) else narrow
        np.testing.assert_allclose(wide, expected, rtol=1e-6)


def test_live_a_longer_run_falls_later_where_the_end_is_read():
    for schedule, _ in BY_HAND.values():
        ends = isinstance(schedule, WarmupCosine | WarmupLinear | WarmupStableDecay)
        if schedule.warmup_steps < 10:
            long, short = (rates(schedule, steps=steps)[-1] for steps in (20, 10))
            assert np.allclose(long, short) != ends


def test_null_without_warm_up_the_first_update_has_the_peak_and_is_not_lost():
    np.testing.assert_array_equal(rates(Constant()), np.float32([0.1] * 10))
    assert rates(WarmupStableDecay(warmup_steps=0, decay_steps=1))[0] == np.float32(0.1)
