"""Tests for jtransformer.stats on whole work directories with known losses."""

import numpy as np
import pytest
from sweep_fixture import DATA, RATES, noisy_losses, write_sweep

from jtransformer.records import load_sweep
from jtransformer.stats import (
    analyse,
    difference_curves,
    fairness,
    learning_curves,
    mean_learning_curves,
    mean_nuisance_curves,
    nuisance_curves,
    results_table,
    timings_table,
)

EFFECTS = {"pre-gelu": 0.0, "pre-relu": 0.001, "pre-swiglu": -0.03, "post-gelu": 0.03}
LOW, MIDDLE, HIGH = RATES


@pytest.fixture
def losses():
    return noisy_losses(EFFECTS)


@pytest.fixture
def load(tmp_path):
    def write_and_load(losses, **manifest):
        return load_sweep(write_sweep(tmp_path, losses, **manifest))

    return write_and_load


def words(analysis):
    return {arm.name: arm.verdict.word for arm in analysis.arms}


def test_known_effects_get_their_words(load, losses):
    analysis = analyse(load(losses))
    assert words(analysis) == {
        "pre-gelu": "baseline",
        "pre-relu": "cannot tell",
        "pre-swiglu": "better",
        "post-gelu": "worse",
    }
    assert analysis.fit is not None
    assert (analysis.fit.degrees_of_freedom, analysis.fit.balanced) == (6, True)
    resolvable = analysis.arm("pre-relu").comparison.resolvable
    assert f"seeds for the observed difference; smallest resolvable: {resolvable:.4f}" in (
        analysis.arm("pre-relu").verdict.text
    )
    assert analysis.runs.complete


def test_figures_equal_numpy_on_the_losses(load, losses):
    arm = analyse(load(losses)).arm("pre-swiglu")
    own = np.array([losses["pre-swiglu", MIDDLE, seed] for seed in range(3)])
    base = np.array([losses["pre-gelu", MIDDLE, seed] for seed in range(3)])
    assert arm.choice.nuisance == {"optimizer.learning_rate": MIDDLE}
    np.testing.assert_allclose(arm.mean.value, own.mean(), rtol=1e-12)
    half = 4.302653 * own.std(ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(arm.mean.half_width, half, rtol=1e-6)
    np.testing.assert_allclose(arm.comparison.model.value, (own - base).mean(), rtol=1e-9)
    np.testing.assert_allclose(list(arm.comparison.by_seed.values()), own - base, rtol=1e-9)
    np.testing.assert_allclose(arm.test_mean.value, own.mean() + 0.011, rtol=1e-12)
    np.testing.assert_allclose(arm.comparison.test.value, (own - base).mean(), rtol=1e-9)


@pytest.mark.parametrize("rate, side", [(LOW, "lowest"), (HIGH, "highest")])
def test_an_optimum_at_the_edge_is_flagged(load, losses, rate, side):
    for seed in range(3):
        losses["pre-swiglu", rate, seed] = 1.9 + 0.001 * seed
    arm = analyse(load(losses)).arm("pre-swiglu")
    (edge,) = arm.choice.edges
    assert (edge.side, edge.value) == (side, rate)
    text = f" — at the edge of the learning-rate grid ({side} value tried, {rate:g})"
    assert arm.verdict.text == "better" + text


def test_an_optimum_inside_or_alone_is_not_flagged(load, losses):
    only = {key: loss for key, loss in losses.items() if key[1] == MIDDLE}
    assert all(arm.choice.edges == () for arm in analyse(load(only)).arms)


def test_a_setting_with_a_diverged_run_is_not_chosen(load, losses):
    losses["pre-swiglu", MIDDLE, 1] = "diverged"
    arm = analyse(load(losses)).arm("pre-swiglu")
    assert arm.choice.nuisance == {"optimizer.learning_rate": HIGH}
    assert arm.runs.diverged == 1
    assert "diverge" not in arm.verdict.word


def test_an_arm_that_diverges_everywhere_has_a_rate_and_no_mean(load, losses):
    for rate, seeds in ((LOW, (0, 1)), (MIDDLE, (2,)), (HIGH, (0, 1, 2))):
        for seed in seeds:
            losses["pre-swiglu", rate, seed] = "diverged"
    analysis = analyse(load(losses))
    arm = analysis.arm("pre-swiglu")
    assert arm.verdict.word == "diverges more often"
    assert arm.verdict.text == (
        "diverges in 1 of 3 runs at its best setting (95 %: 1 to 91 %), the baseline in 0 of 3 "
        "(0 to 71 %), which may be chance"
    )
    assert arm.mean is arm.test_mean is arm.comparison is None
    # It leaves the model but stays in the family of comparisons.
    assert analysis.fit is not None
    assert "pre-swiglu" not in analysis.fit.arms
    assert analysis.fit.comparisons == 3


def test_a_diverging_baseline_compares_nothing(load, losses):
    losses |= {("pre-gelu", rate, 0): "diverged" for rate in RATES}
    analysis = analyse(load(losses))
    assert analysis.fit is None
    assert words(analysis)["pre-swiglu"] == "not compared"
    assert analysis.arm("pre-gelu").verdict.text.startswith("baseline, diverges in 1 of 3 runs")


def test_a_sweep_where_everything_diverges(load, losses):
    analysis = analyse(load(dict.fromkeys(losses, "diverged")))
    assert set(words(analysis).values()) == {"baseline", "not compared"}
    for arm, start in zip(analysis.arms, ["baseline, ", *3 * ["not compared: "]], strict=True):
        assert arm.verdict.text.startswith(f"{start}diverges in 3 of 3 runs at its best setting")


def test_one_seed_has_no_interval(load, losses):
    analysis = analyse(load({key: loss for key, loss in losses.items() if key[2] == 0}))
    arm = analysis.arm("pre-swiglu")
    assert arm.verdict.text == "no interval from one seed"
    assert arm.mean.low is arm.comparison.model.low is arm.comparison.p_adjusted is None
    assert arm.comparison.model.value < 0


def test_equal_runs_have_no_interval(load, losses):
    arm = analyse(load(dict.fromkeys(losses, 2.0))).arm("pre-swiglu")
    assert arm.verdict.word == "no interval"


@pytest.mark.parametrize(
    "state, note", [("pending", ""), ("running", ""), ("failed", " (1 failed)")]
)
def test_an_unfinished_arm_is_not_judged(load, losses, state, note):
    losses["pre-swiglu", HIGH, 2] = state
    analysis = analyse(load(losses))
    arm = analysis.arm("pre-swiglu")
    assert arm.verdict.text == f"incomplete: 8 of 9 runs{note}"
    # Its choice may still change, so the test split stays closed.
    assert arm.test_mean is None and arm.comparison.test is None
    assert analysis.arm("post-gelu").verdict.word == "worse"


def test_a_missing_seed_at_the_choice_is_said(load, losses):
    losses["pre-swiglu", MIDDLE, 2] = "failed"
    for rate in (LOW, HIGH):
        for seed in range(3):
            losses["pre-swiglu", rate, seed] = "pending"
    fit = analyse(load(losses)).fit
    assert fit is not None
    assert not fit.balanced
    assert (fit.observations, fit.degrees_of_freedom) == (11, 5)


def test_an_unfinished_baseline_leaves_all_open(load, losses):
    losses["pre-gelu", LOW, 0] = "pending"
    analysis = analyse(load(losses))
    assert set(words(analysis).values()) == {"incomplete"}
    text = analysis.arm("post-gelu").verdict.text
    assert text == "incomplete: the baseline has 8 of 9 runs"


def test_no_run_at_all(load, losses):
    record = load(dict.fromkeys(losses, "pending"))
    analysis = analyse(record)
    assert analysis.fit is None and analysis.runs.finished == 0
    assert analysis.arm("pre-gelu").verdict.text == "incomplete: 0 of 9 runs"
    assert len(results_table(record)) == 36
    assert learning_curves(record, analysis).empty and nuisance_curves(record, analysis).empty


def test_an_unknown_arm_is_named(load, losses):
    with pytest.raises(ValueError, match="'typo'; the arms are pre-gelu, pre-relu"):
        analyse(load(losses)).arm("typo")


def test_results_table_has_one_row_per_cell_and_hides_other_test_losses(load, losses):
    table = results_table(load(losses))
    assert list(table["arm"]) == [arm for arm, _, _ in losses]
    assert list(table.columns[:5]) == ["arm", "norm_placement", "ffn", "learning_rate", "seed"]
    np.testing.assert_array_equal(table["validation_nll"], list(losses.values()))
    bits = table["validation_nll"] / np.log(2)
    np.testing.assert_allclose(table["validation_bits_per_byte"], bits, rtol=1e-15)
    assert (table["selected"] == (table["learning_rate"] == MIDDLE)).all()
    assert (table["test_nll"].notna() == table["selected"]).all()
    assert not [name for name in table.columns if "second" in name]


def test_bits_are_called_by_the_unit_of_the_loss(load, losses):
    """A token is no byte: sweeps on words or spans were told in bits per byte."""
    table = results_table(load(losses, data=DATA | {"loss_unit": "nats/token"}))
    assert [name for name in table.columns if "bits" in name] == ["validation_bits_per_token"]


def test_results_csv_has_all_digits_and_whole_counts(load, losses):
    losses["post-gelu", HIGH, 2] = "diverged"
    record = load(losses)
    lines = results_table(record).to_csv(index=False).splitlines()
    assert f",{losses['pre-gelu', LOW, 0]!r}," in lines[1]
    assert ",400,204800," in lines[1]
    assert ",diverged,False," in lines[-1] and ",120," in lines[-1]
    assert "wall_seconds" in timings_table(record).columns


def test_a_factor_named_like_a_column_keeps_its_path(load, losses):
    arms = {"pre-gelu": 400, "pre-relu": 800}
    losses = {key: loss for key, loss in losses.items() if key[0] in arms}
    record = load(losses)
    for arm in record.manifest["arms"]:
        arm["factors"] = {"training.steps": arms[arm["name"]]}
    table = results_table(record)
    assert set(table["training.steps"]) == {400, 800} and set(table["steps"]) == {400}


def test_curves_average_only_where_every_seed_is_there(load, losses):
    losses["post-gelu", MIDDLE, 1] = losses["post-gelu", LOW, 0] = "diverged"
    losses["post-gelu", HIGH, 0] = losses["post-gelu", HIGH, 1] = "diverged"
    record = load(losses)
    analysis = analyse(record)
    curves = learning_curves(record, analysis)
    assert set(curves["split"]) == {"train", "validation"}
    means = mean_learning_curves(curves, 3).query("split == 'train'")
    last = means.groupby("arm")["step"].max()
    assert last["pre-gelu"] == 400 and last["post-gelu"] == 120
    tuned = nuisance_curves(record, analysis)
    assert tuned["nll"].isna().sum() == 4
    averaged = mean_nuisance_curves(tuned, 3)
    assert set(averaged.query("arm == 'post-gelu'")["value"]) == set()
    own = [losses["pre-gelu", LOW, seed] for seed in range(3)]
    got = averaged.query("arm == 'pre-gelu' and value == @LOW")["nll"].item()
    np.testing.assert_allclose(got, np.mean(own))


def test_difference_curves_pair_by_seed_and_step(load, losses):
    record = load(losses)
    curves = difference_curves(learning_curves(record, analyse(record)), "pre-gelu")
    assert "pre-gelu" not in set(curves["arm"])
    last = curves.query(
        "arm == 'pre-swiglu' and split == 'validation' and step == 400 and seed == 1"
    )
    expected = losses["pre-swiglu", MIDDLE, 1] - losses["pre-gelu", MIDDLE, 1]
    np.testing.assert_allclose(last["nll"].item(), expected)


def test_fairness_of_equal_starts(load, losses):
    losses["post-gelu", HIGH, 2] = "diverged"
    audit = fairness(load(losses))
    assert (audit.runs, audit.budgets) == (36, ((400, 204800),))
    assert audit.unequal_batches == audit.unequal_values == ()
    assert audit.shared_parameters == 2 and audit.environments == {} and audit.samplings == 1


@pytest.mark.parametrize("which", ["first_batch", "last_batch"])
def test_fairness_sees_another_batch(load, losses, which):
    record = load(losses)
    record.runs[4].status["pairing"][which] = "another"
    assert fairness(record).unequal_batches == (record.runs[4].cell["seed"],)


def test_fairness_counts_the_ways_in_which_batches_are_made(load, losses):
    """Runs of other batch sizes have other batches, and nobody may say that they are equal."""
    record = load(losses)
    for run in record.runs:
        if run.cell["arm"] == "post-gelu":
            other = {"sampling": "another", "first_batch": "another", "last_batch": "another"}
            run.status["pairing"] |= other
    audit = fairness(record)
    assert audit.samplings == 2 and audit.unequal_batches == ()


def test_fairness_sees_another_start_and_another_machine(load, losses):
    record = load(losses)
    record.runs[4].status["pairing"]["initial"]["embedding/table"]["hash"] = "another"
    record.runs[5].environment["jax"] = "0.12.0"
    audit = fairness(record)
    assert audit.unequal_values == ("1: embedding/table",)
    assert audit.environments == {"jax": ["0.10.2", "0.12.0"]}
