"""Tests for jtransformer.stats.compare: what is pooled, what is not and why, what counts once."""

import copy
import dataclasses

import numpy as np
import pytest
from sweep_fixture import DATA, RATES, noisy_losses, scaled, write_sweep

from jtransformer.records import SweepRecord, load_sweep
from jtransformer.spec import RunSpec, differences, identity_tree, replace, to_tree
from jtransformer.stats import analyse, compare, fit_additive, obstacles, pool

EFFECTS = {"pre-gelu": 0.0, "pre-swiglu": -0.03, "post-gelu": 0.002}
MIDDLE = RATES[1]
EVERY = noisy_losses(EFFECTS, seeds=6)


def losses_of(*seeds):
    return {key: loss for key, loss in EVERY.items() if key[2] in seeds}


@pytest.fixture
def sweep(tmp_path):
    """Writes and loads a sweep with specs, as manifests have them."""

    def write_and_load(name, losses, base=None, **manifest):
        tree = {"model": {"width": 64, "norm": {"kind": "rms", "rms": {"epsilon": 1e-6}}},
                "data": {"source": {"kind": "kjv"}, "length": 32}, "seed": 0,
                "optimizer": {"learning_rate": 1.0}} | (base or {})  # fmt: skip
        record = load_sweep(write_sweep(tmp_path / name, losses, base=tree, **manifest))
        for arm in record.manifest["arms"]:
            arm["spec"] = copy.deepcopy(tree) | {"arm": arm["factors"]}
        return record

    return write_and_load


def test_other_seeds_are_pooled_into_one_sweep(sweep):
    sweeps = {"a": sweep("a", losses_of(0, 1, 2)), "b": sweep("b", losses_of(3, 4, 5))}
    compared = compare(sweeps)
    assert compared.obstacles == {"b": ()}
    (pooled,) = compared.pools
    assert (pooled.names, pooled.repeated, pooled.contradictions) == (("a", "b"), 0, ())
    (analysis,) = pooled.analyses
    assert analysis.seeds == (0, 1, 2, 3, 4, 5) and analysis.runs.planned == 54
    table = {arm: {s: EVERY[arm, MIDDLE, s] for s in range(6)} for arm in EFFECTS}
    expected = fit_additive(table, "pre-gelu").differences["pre-swiglu"]
    got = analysis.arm("pre-swiglu").comparison.model
    np.testing.assert_allclose([got.value, got.low], [expected.value, expected.low], rtol=1e-12)
    assert got.degrees_of_freedom == 10
    # Each directory beside it stays what it is alone.
    assert compared.analyses["a"] == (analyse(sweeps["a"]),)


def test_a_run_in_both_directories_counts_once(sweep):
    pooled = pool({"a": sweep("a", losses_of(0, 1, 2)), "b": sweep("b", losses_of(1, 2, 3))})
    assert pooled.repeated == 18 and not pooled.contradictions
    assert len(pooled.record.runs) == 36
    table = {arm: {s: EVERY[arm, MIDDLE, s] for s in range(4)} for arm in EFFECTS}
    fit = pooled.analyses[0].fit
    assert (fit.observations, fit.degrees_of_freedom) == (12, 6)
    expected = fit_additive(table, "pre-gelu").residual_sd
    np.testing.assert_allclose(fit.residual_sd, expected, rtol=1e-9)


def test_an_unfinished_copy_gives_way_to_the_finished_one(sweep):
    one = sweep("a", losses_of(0, 1) | {("pre-gelu", MIDDLE, 0): "pending"})
    two = sweep("b", losses_of(0, 1) | {("pre-gelu", MIDDLE, 1): "running"})
    for order in ({"a": one, "b": two}, {"b": two, "a": one}):
        pooled = pool(order)
        assert pooled.analyses[0].runs.complete and not pooled.contradictions
        assert (
            pooled.analyses[0].arm("pre-gelu").choice.validation[0] == EVERY["pre-gelu", MIDDLE, 0]
        )


def test_another_result_of_the_same_run_is_said_and_the_first_counts(sweep):
    other = losses_of(0, 1) | {("pre-gelu", MIDDLE, 0): 2.5, ("post-gelu", MIDDLE, 1): "diverged"}
    pooled = pool({"a": sweep("a", losses_of(0, 1)), "b": sweep("b", other)})
    assert {(c.arm, c.seed, c.kept, c.other) for c in pooled.contradictions} == {
        ("pre-gelu", 0, EVERY["pre-gelu", MIDDLE, 0], 2.5),
        ("post-gelu", 1, EVERY["post-gelu", MIDDLE, 1], None),
    }
    assert pooled.analyses == (analyse(sweep("c", losses_of(0, 1))),)


@pytest.mark.parametrize(
    "base, manifest, what, values",
    [
        ({}, {"data": DATA | {"sha256": "f" * 64}}, "the data (SHA-256)",
         ("fdceb080776e", "f" * 12)),
        ({}, {"data": DATA | {"validation_bytes": 7}}, "validation bytes", ("83720", "7")),
        ({}, {"baseline": "post-gelu"}, "the baseline", ("pre-gelu", "post-gelu")),
        ({}, {"verdict": {"margin": 0.01}}, "the declared margin", ("None", "0.01")),
        ({"training": {"steps": 800}}, {}, "training.steps", ("None", "800")),
        ({"training": {"microbatches": 2}}, {}, "training.microbatches", ("None", "2")),
        ({"model": {"width": 128, "norm": {"kind": "rms", "rms": {"epsilon": 1e-6}}}}, {},
         "model.width", ("64", "128")),
        ({"model": {"width": 64, "norm": {"kind": "rms", "rms": {"epsilon": 1e-5}}}}, {},
         "model.norm.rms.epsilon", ("1e-06", "1e-05")),
    ],
)  # fmt: skip
def test_what_differs_is_named_and_not_pooled(sweep, base, manifest, what, values):
    first, other = sweep("a", losses_of(0, 1)), sweep("b", losses_of(2, 3), base, **manifest)
    assert obstacles(first, other) == [(what, *values)]
    assert obstacles(other, first) == [(what, *reversed(values))]
    compared = compare({"a": first, "b": other})
    assert compared.pools == () and compared.obstacles["b"] == ((what, *values),)


@pytest.mark.parametrize(
    "base",
    [
        {"data": {"source": {"kind": "file", "file": {"path": "/x"}}, "length": 32}},
        {"seed": 9},
        {"optimizer": {"learning_rate": 3.0}},
        {"training": {"probe_steps": [], "microbatches": 1}},
        {
            "model": {
                "width": 64,
                "norm": {"kind": "rms", "rms": {"epsilon": 1e-6}, "layer": {"x": 1}},
            }
        },
    ],
    ids=["place of the data", "seed", "tuned", "later fields at rest", "a kind not chosen"],
)
def test_what_changes_no_run_is_no_obstacle(sweep, base):
    assert obstacles(sweep("a", losses_of(0, 1)), sweep("b", losses_of(2, 3), base)) == []


def test_every_field_that_a_fingerprint_leaves_out_is_no_obstacle_at_rest(sweep):
    full, old = to_tree(RunSpec()), identity_tree(RunSpec())
    assert {"model.precision", "training.microbatches"} <= {*differences(old, full)}
    first, other = (sweep(name, losses_of(0, 1), tree) for name, tree in (("a", full), ("b", old)))
    assert obstacles(first, other) == []
    used = replace(full, {"model.precision.ffn": "bfloat16", "training.microbatches": 2})
    named = {found.what for found in obstacles(sweep("c", losses_of(0, 1), used), other)}
    assert named == {"model.precision.ffn", "training.microbatches"}


def test_arms_tuned_settings_and_specs_of_one_arm_are_obstacles(sweep):
    first = sweep("a", losses_of(0, 1))
    fewer = {key: loss for key, loss in losses_of(2, 3).items() if key[0] != "post-gelu"}
    (found,) = obstacles(first, sweep("b", fewer))
    assert found.what == "the arms" and "post-gelu" in found.first and "post" not in found.other
    untuned = {key: loss for key, loss in losses_of(2, 3).items() if key[1] != RATES[2]}
    (found,) = obstacles(first, sweep("c", untuned))
    assert found.what == "tuned settings of pre-gelu that are tried in one alone"
    assert found[1:] == ("optimizer.learning_rate = 0.016", "none")
    other = sweep("d", losses_of(2, 3))
    other.manifest["arms"][1]["spec"]["data"]["length"] = 48
    assert obstacles(first, other) == [("data.length of pre-swiglu", "32", "48")]
    # Arms may be declared in another order.
    turned = dict(sorted(losses_of(2, 3).items()))
    assert obstacles(first, sweep("e", turned, baseline="pre-gelu")) == []


def test_a_run_with_another_fingerprint_is_no_copy(sweep):
    first, other = sweep("a", losses_of(0, 1)), sweep("b", losses_of(1, 2))
    runs = tuple(
        dataclasses.replace(run, cell=run.cell | {"fingerprint": f"x{index}"})
        for index, run in enumerate(other.runs)
    )
    (found,) = obstacles(first, SweepRecord(other.manifest, runs))
    assert found.what == "the fingerprint of a run"


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"data": DATA | {"loss_unit": "nats/token"}}, "loss unit of a is nats/byte .* nats/token"),
        ({"metric": "test/nll"}, "metric of a is validation/nll and that of b is test/nll"),
    ],
)
def test_losses_of_two_kinds_stand_in_no_table(sweep, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        compare({"a": sweep("a", losses_of(0)), "b": sweep("b", losses_of(1), **change)})


def test_of_three_the_two_that_fit_are_pooled(sweep):
    wide = {"model": {"width": 128}}
    sweeps = {
        "a": sweep("a", losses_of(0, 1)),
        "b": sweep("b", losses_of(2, 3), wide),
        "c": sweep("c", losses_of(4, 5), wide),
    }
    compared = compare(sweeps)
    assert [one.names for one in compared.pools] == [("b", "c")]
    assert all(found for found in compared.obstacles.values())


def test_scales_are_pooled_scale_by_scale(sweep):
    effects = {"small-pre": 0.0, "small-gate": -0.02, "large-pre": -0.5, "large-gate": -0.5}
    every = noisy_losses(effects, seeds=4)
    halves = [{k: v for k, v in every.items() if k[2] in part} for part in ((0, 1), (2, 3))]
    sweeps = {n: sweep(n, half, **scaled(effects)) for n, half in zip("ab", halves, strict=True)}
    compared = compare(sweeps)
    assert [one.scale for one in compared.pools[0].analyses] == ["small", "large"]
    assert all(len(one.seeds) == 4 for one in compared.pools[0].analyses)
    assert compare({"a": sweeps["a"], "c": sweep("c", losses_of(0))}).pools == ()


def test_environments_that_differ_are_listed_by_directory(sweep):
    first, other = sweep("a", losses_of(0, 1)), sweep("b", losses_of(2, 3))
    assert compare({"a": first, "b": other}).environments == {}
    for run in other.runs:
        run.environment["device_kind"] = "H200"
    other.runs[0].environment["jax"] = "0.11.0"
    assert compare({"a": first, "b": other}).environments == {
        "jax": {"a": ["0.10.2"], "b": ["0.11.0", "0.10.2"]},
        "device_kind": {"a": ["cpu"], "b": ["H200"]},
    }


def test_sweeps_that_have_not_begun_are_compared(sweep):
    waiting = dict.fromkeys(losses_of(0, 1), "pending")
    compared = compare({"a": sweep("a", waiting), "b": sweep("b", losses_of(2, 3))})
    assert compared.pools[0].analyses[0].runs.finished == 18
