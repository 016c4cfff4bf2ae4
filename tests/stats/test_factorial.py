"""Tests for jtransformer.stats.factorial on whole work directories with known losses."""

import numpy as np
from sweep_fixture import RATES, noisy_losses, scaled, write_sweep

from jtransformer.records import SweepRecord, load_sweep
from jtransformer.stats import analyse, analyse_scales, at_scales, factorial

ARMS = {"pre-relu": 0.0, "pre-gelu": -0.01, "post-relu": 0.03, "post-gelu": 0.02}


def found_in(workdir, losses, **manifest):
    record = load_sweep(write_sweep(workdir, losses, **manifest))
    return factorial(record, analyse(record))


def test_a_sweep_is_a_grid_at_its_chosen_settings(tmp_path):
    losses = noisy_losses(ARMS)
    found = found_in(tmp_path, losses)
    assert [(f.label, f.levels) for f in found.factors] == [
        ("norm_placement", ("pre", "post")),
        ("ffn", ("relu", "gelu")),
    ]
    mean = {a: np.mean([losses[a, RATES[1], s] for s in range(3)]) for a in ARMS}
    expected = (mean["post-relu"] + mean["post-gelu"] - mean["pre-relu"] - mean["pre-gelu"]) / 2
    np.testing.assert_allclose(found.fit.terms[0].difference.value, expected, atol=1e-12)
    record = load_sweep(tmp_path)
    fit = analyse(record).fit
    assert found.fit.degrees_of_freedom == fit.degrees_of_freedom == 6
    np.testing.assert_allclose(found.fit.residual_sd, fit.residual_sd, rtol=1e-9)
    assert found.absent == found.gaps == {} and found.provisional == ()


def test_a_diverged_arm_is_left_out_with_its_reason(tmp_path):
    losses = noisy_losses(ARMS) | {("post-gelu", rate, 1): "diverged" for rate in RATES}
    found = found_in(tmp_path, losses)
    assert found.absent == {"post-gelu": "diverges in 1 of 3 runs"}
    assert ("post", "gelu") not in found.fit.terms[2].means and found.fit.terms[2].p is None


def test_a_sweep_under_way_is_provisional_and_names_its_gaps(tmp_path):
    losses = noisy_losses(ARMS)
    losses |= {key: "pending" for key in losses if key[0] == "pre-gelu" and key[2] == 2}
    losses |= {key: "pending" for key in losses if key[0] == "post-gelu"}
    found = found_in(tmp_path, losses)
    assert found.provisional == ("pre-gelu", "post-gelu") and found.gaps == {"pre-gelu": (2,)}
    assert found.absent == {"post-gelu": "has no loss yet"}
    assert found_in(tmp_path / "none", dict.fromkeys(losses, "pending")) is None
    diverged = found_in(tmp_path / "diverged", dict.fromkeys(losses, "diverged"))
    assert diverged.fit is None and len(diverged.absent) == 4


def test_arms_that_are_no_grid_have_no_factorial(tmp_path):
    losses = noisy_losses(ARMS)
    assert found_in(tmp_path / "named", losses, named={"x": {}, "y": {}}) is None
    assert found_in(tmp_path / "one", losses, scientific={"model.ffn": ["relu", "gelu"]}) is None
    three = {key: loss for key, loss in losses.items() if key[0] != "post-gelu"}
    assert found_in(tmp_path / "three", three) is None
    row = {key: loss for key, loss in losses.items() if key[0].startswith("pre")}
    assert found_in(tmp_path / "row", row) is None


def test_settings_that_are_set_together_are_one_factor(tmp_path):
    workdir = write_sweep(tmp_path, noisy_losses(ARMS))
    record = load_sweep(workdir)
    heads = {"relu": (8, 2), "gelu": (4, 4)}
    for arm in record.manifest["arms"]:
        own = heads[arm["factors"].pop("model.ffn")]
        arm["factors"] |= dict(zip(("model.heads", "model.key_value_heads"), own, strict=True))
    names = {"model.norm_placement": [], "model.heads, model.key_value_heads": []}
    record = SweepRecord(record.manifest | {"scientific": names}, record.runs)
    joint = factorial(record, analyse(record)).factors[1]
    assert (joint.label, joint.levels) == ("heads, key_value_heads", ("8, 2", "4, 4"))
    assert joint.settings == ["model.heads", "model.key_value_heads"]


def test_labels_stay_clear_and_kinds_are_named_by_their_choice(tmp_path):
    record = load_sweep(write_sweep(tmp_path, noisy_losses(ARMS)))
    for arm in record.manifest["arms"]:
        placement, ffn = arm["factors"].values()
        arm["factors"] = {"model.position.kind": placement, "a.width": ffn, "b.width": ffn}
    names = dict.fromkeys(("model.position.kind", "a.width"))
    two = SweepRecord(record.manifest | {"scientific": names}, record.runs)
    assert [f.label for f in factorial(two, analyse(two)).factors] == ["position", "width"]
    names = dict.fromkeys(("model.position.kind", "a.width", "b.width"))
    three = SweepRecord(record.manifest | {"scientific": names}, record.runs)
    assert factorial(three, analyse(three)) is None, "two factors that never part are no grid"


def test_every_scale_is_a_grid_of_its_own(tmp_path):
    effects = {f"{size}-{arm}": e for size in ("small", "large") for arm, e in ARMS.items()}
    record = load_sweep(write_sweep(tmp_path, noisy_losses(effects), **scaled(effects)))
    for part, analysis in zip(at_scales(record), analyse_scales(record), strict=True):
        found = factorial(part, analysis)
        assert found.fit.observations == 12 and not found.absent
