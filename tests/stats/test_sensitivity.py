"""Tests for jtransformer.stats.sensitivity: by hand, against NumPy, on whole sweeps."""

import json
import math

import numpy as np
import pytest
import scipy.stats
from sweep_fixture import RATES, noisy_losses, write_sweep

from jtransformer.records import load_sweep
from jtransformer.stats import analyse, sensitivity
from jtransformer.stats.sensitivity import deviation

LOW, MIDDLE, HIGH = RATES
ARMS = {"pre": 0.0, "post": 0.03, "gate": -0.03}
BASE = {"model": {"width": 64, "vocabulary": 256}, "training": {"steps": 400, "batch_size": 8}}
LN_V = math.log(256)


@pytest.fixture
def losses():
    return noisy_losses(ARMS)


@pytest.fixture
def find(tmp_path):
    def write_and_find(losses, **manifest):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        record = load_sweep(write_sweep(folder, losses, **({"base": BASE} | manifest)))
        return sensitivity(record, analyse(record))

    return write_and_find


def arms_of(found):
    (factor,) = found.factors
    return {arm.name: arm for arm in factor.arms}


def test_by_hand():
    # Best 2; the others are 0.5 and 1 above it, the last is cut at 4: (0 + 0.5 + 1 + 2) / 4.
    assert deviation([2.5, 2.0, 3.0, 7.0], 4.0) == pytest.approx(3.5 / 4)
    assert deviation([2.5, 2.0, 3.0, math.inf], 4.0) == pytest.approx(3.5 / 4)
    assert deviation([2.0, 2.0, 2.0], 4.0) == 0.0
    assert deviation([2.5, 2.0], None) == pytest.approx(0.25)


def test_what_has_no_best_or_no_cap_has_no_figure():
    assert deviation([math.inf, math.inf], 4.0) is None
    assert deviation([2.0, math.inf], None) is None


def test_a_sweep_equals_numpy(find, losses):
    arms = arms_of(find(losses))
    figures = {}
    for arm in ARMS:
        table = np.array([[losses[arm, rate, seed] for rate in RATES] for seed in range(3)])
        figures[arm] = (table - table.min(axis=1, keepdims=True)).mean(axis=1)
        got = arms[arm]
        assert got.values == RATES and got.untrained == pytest.approx(LN_V)
        np.testing.assert_allclose(list(got.by_seed.values()), figures[arm], rtol=1e-12)
        np.testing.assert_allclose(got.mean.value, figures[arm].mean(), rtol=1e-12)
        # t(0.975) on 2 degrees of freedom, from a printed table.
        half = 4.302653 * figures[arm].std(ddof=1) / np.sqrt(3)
        np.testing.assert_allclose(got.mean.half_width, half, rtol=1e-6)
    difference = arms["gate"].difference
    paired = figures["gate"] - figures["pre"]
    np.testing.assert_allclose(difference.value, paired.mean(), rtol=1e-9)
    np.testing.assert_allclose(difference.p, scipy.stats.ttest_1samp(paired, 0).pvalue, rtol=1e-9)
    assert arms["pre"].difference is None


def test_a_diverged_run_counts_as_untrained(find, losses):
    losses["gate", HIGH, 1] = "diverged"
    by_seed = arms_of(find(losses))["gate"].by_seed
    low, best = losses["gate", LOW, 1], losses["gate", MIDDLE, 1]
    np.testing.assert_allclose(by_seed[1], (low - best + LN_V - best) / 3, rtol=1e-12)
    assert len(by_seed) == 3


def test_the_vocabulary_of_the_arm_is_its_own(tmp_path, losses):
    losses["gate", HIGH, 1] = "diverged"
    folder = write_sweep(tmp_path, losses, base=BASE)
    manifest = json.loads((folder / "sweep.json").read_text())
    for arm in manifest["arms"]:
        size = 1000 if arm["name"] == "gate" else 256
        arm["spec"] = {"model": {"vocabulary": size}}
    (folder / "sweep.json").write_text(json.dumps(manifest))
    record = load_sweep(folder)
    arms = arms_of(sensitivity(record, analyse(record)))
    assert arms["gate"].untrained == pytest.approx(math.log(1000))
    assert arms["pre"].untrained == pytest.approx(LN_V)


def test_without_a_vocabulary_a_seed_that_diverged_is_left_out(find, losses):
    losses["gate", HIGH, 1] = "diverged"
    arms = arms_of(find(losses, base={"model": {}}))
    assert list(arms["gate"].by_seed) == [0, 2] and list(arms["pre"].by_seed) == [0, 1, 2]


def test_an_unfinished_grid_waits(find, losses):
    losses |= {("gate", HIGH, 1): "pending", ("post", LOW, 2): "running"}
    arms = arms_of(find(losses))
    assert list(arms["gate"].by_seed) == [0, 2] and list(arms["post"].by_seed) == [0, 1]
    assert arms["gate"].difference.degrees_of_freedom == 1


def test_one_seed_has_a_figure_and_no_interval(find, losses):
    found = find({key: loss for key, loss in losses.items() if key[2] == 0})
    gate = arms_of(found)["gate"]
    assert gate.mean.low is None and gate.difference.p is None
    assert found.arms == ()


def test_what_was_not_tuned_has_nothing_to_say(find, losses):
    assert find({key: loss for key, loss in losses.items() if key[1] == MIDDLE}) is None
    assert find(dict.fromkeys(losses, "pending")) is None
    assert find(dict.fromkeys(losses, "diverged")) is None


def test_draws_have_no_grid_to_average_over(find, losses):
    search = dict(strategy="random", trials=3, seed=0, rungs=None, keep=None)
    found = find(losses, search=search)
    assert found.factors == () and [arm.name for arm in found.arms] == list(ARMS)


def test_another_grid_is_not_compared(find, losses):
    wider = losses | {("gate", 0.05, seed): 2.9 for seed in range(3)}
    arms = arms_of(find(wider))
    assert arms["gate"].values == (*RATES, 0.05) and arms["gate"].difference is None
    assert arms["post"].difference is not None


def two_factors(folder, losses, joined):
    """Writes a sweep with a second tuned factor: half of the rates at 0.1, twice them at 0.2."""
    folder = write_sweep(folder, losses, base=BASE)
    manifest = json.loads((folder / "sweep.json").read_text())
    rate, decay = "optimizer.learning_rate", "optimizer.weight_decay"
    manifest["nuisance"] = {f"{rate}, {decay}": []} if joined else {rate: [], decay: []}
    for cell in manifest["cells"]:
        own = cell["nuisance"][rate]
        if joined:
            cell["nuisance"][decay] = own * 10
        else:
            cell["nuisance"] = {rate: LOW if own == LOW else MIDDLE, decay: own}
    (folder / "sweep.json").write_text(json.dumps(manifest))
    record = load_sweep(folder)
    return sensitivity(record, analyse(record))


def test_factors_that_change_together_are_one(tmp_path, losses):
    found = two_factors(tmp_path, losses, joined=True)
    (factor,) = found.factors
    assert factor.paths == ("optimizer.learning_rate", "optimizer.weight_decay")
    assert factor.arms[0].values == RATES


def test_the_others_stand_at_the_choice(tmp_path, losses):
    """The best is rate MIDDLE with decay MIDDLE; decay HIGH has that rate too, LOW has another."""
    found = two_factors(tmp_path, losses, joined=False)
    (factor,) = found.factors
    assert factor.paths == ("optimizer.weight_decay",)
    assert factor.arms[0].values == (MIDDLE, HIGH)
