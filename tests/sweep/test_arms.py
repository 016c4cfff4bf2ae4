"""Tests for jtransformer.sweep.arms: zips, named arms, products of both, and scales."""

import json

import pytest
from plan_fixture import (
    ABOUT,
    FFN,
    KJV,
    MATCH,
    PLACEMENT,
    RATES,
    TREE,
    message,
    plan_of,
    tree_with,
)

from jtransformer import accounting
from jtransformer.records import SCHEMA
from jtransformer.spec import SpecError, fingerprint
from jtransformer.sweep import adopt, cell_spec, manifest
from jtransformer.sweep.refusals import refuse_identical, refuse_undeclared

WARMUP = "schedule.warmup_cosine.warmup_steps"
PLACE = "model.norm_placement"
ARMS = {"pre": {}, "post": {PLACE: "post"}, "post-warm": {PLACE: "post", WARMUP: 200}}
HEADS = {("model.heads", "model.key_value_heads"): ((4, 4), (8, 2))}
SCALES = {
    "small": {"model.width": 32},
    "wide": {"model.width": 64, "model.ffn_width": 256, "training.steps": 800},
}


def names(plan):
    return [arm.name for arm in plan.arms]


def test_a_zip_changes_its_settings_together():
    plan = plan_of(HEADS, baseline="heads=4-key_value_heads=4")
    assert names(plan) == ["heads=4-key_value_heads=4", "heads=8-key_value_heads=2"]
    assert [(a.spec.model.heads, a.spec.model.key_value_heads) for a in plan.arms] == [
        (4, 4),
        (8, 2),
    ]
    assert plan.arms[1].factors == {"model.heads": 8, "model.key_value_heads": 2}
    record = manifest(plan, ABOUT)
    assert record["scientific"] == {"model.heads, model.key_value_heads": [[4, 4], [8, 2]]}
    product = plan_of({**HEADS, **FFN}, baseline="heads=4-key_value_heads=4-relu")
    assert len(product.arms) == 6


def test_a_zip_may_be_tuned():
    pairs = {("optimizer.learning_rate", WARMUP): ((1e-3, 10), (4e-3, 40))}
    plan = plan_of(FFN, nuisance=pairs)
    tried = [(c.spec.optimizer.learning_rate, c.spec.schedule.warmup_steps) for c in plan.cells]
    assert tried == [(1e-3, 10), (4e-3, 40)] * 3
    assert "learning_rate=0.004-warmup_steps=40-seed0-" in plan.cells[1].directory


def test_named_arms_are_deltas_on_the_config():
    plan = plan_of({}, arms=ARMS, nuisance=RATES, seeds=(0, 1))
    assert names(plan) == list(ARMS) and plan.baseline == "pre"
    assert len(plan.cells) == 3 * 3 * 2
    placements = [(a.spec.model.norm_placement, a.spec.schedule.warmup_steps) for a in plan.arms]
    assert placements == [("pre", 40), ("post", 40), ("post", 200)]
    # What an arm has, not only what it replaces: an empty field would be read as "not there".
    assert [arm.factors for arm in plan.arms] == [
        {PLACE: "pre", WARMUP: 40},
        {PLACE: "post", WARMUP: 40},
        {PLACE: "post", WARMUP: 200},
    ]


def test_a_named_arm_and_a_grid_make_the_same_runs():
    grid = plan_of(PLACEMENT, nuisance=RATES)
    named = plan_of({}, arms={"pre": {}, "post": {PLACE: "post"}}, nuisance=RATES)
    assert [cell.fingerprint for cell in grid.cells] == [cell.fingerprint for cell in named.cells]


def test_settings_of_a_kind_that_an_arm_lacks_are_no_factor_of_it():
    theta = "model.position.rope.theta"
    arms = {"none": {}, "rope": {"model.position.kind": "rope", theta: 5e5}}
    plan = plan_of({}, arms=arms, tree=tree_with(model__position__kind="none"))
    assert plan.arms[0].factors == {"model.position.kind": "none"}
    assert plan.arms[1].factors == {"model.position.kind": "rope", theta: 5e5}


def test_a_product_has_every_named_arm_at_every_point():
    plan = plan_of(FFN, arms=ARMS)
    assert names(plan) == [f"{ffn}-{name}" for ffn in FFN["model.ffn"] for name in ARMS]
    assert plan.baseline == "gelu-pre"
    assert plan.arms[5].factors == {"model.ffn": "gelu", PLACE: "post", WARMUP: 200}


def test_error_baseline_of_named_arms():
    arms = {"post": {PLACE: "post"}, "branch": {PLACE: "branch"}}
    text = message({}, arms=arms)
    assert text.startswith("baseline is missing: no arm equals get_config(), which has {'model.nor")
    assert "add those values to the arms or name an arm, one of post, branch." in text
    assert plan_of({}, arms=arms, baseline="branch").baseline == "branch"


def test_error_a_difference_that_is_not_declared():
    """The baseline's own warm-up would be a second, unnamed cause of every difference."""
    arms = {"pre": {WARMUP: 200}, "post": {PLACE: "post"}}
    assert message({}, arms=arms, baseline="pre") == (
        f"{WARMUP} is 40 in the arm 'post' and 200 in the baseline 'pre', which is not declared, "
        "so their difference could be due to it; give the arm a value of its own for it, or make "
        "it nuisance."
    )
    arms["post"][WARMUP] = 40
    assert len(plan_of({}, arms=arms, baseline="pre").arms) == 2


def test_a_declared_kind_brings_its_settings_and_no_others():
    one = {"a": {"kind": "x", "x": {"n": 1}}, "akind": 1, "b": 2}
    other = {"a": {"kind": "y", "y": {"m": 1}}, "akind": 1, "b": 2}
    refuse_undeclared("one", one, "other", other, {"a.kind"})
    for changed in ("b", "akind"):
        with pytest.raises(SpecError, match=f"^{changed} is 3 in the arm 'one'"):
            refuse_undeclared("one", {**one, changed: 3}, "other", other, {"a.kind"})
    # One name that begins like another is not declared with it.
    with pytest.raises(SpecError, match="^ffn_width is 3"):
        refuse_undeclared("one", {"ffn": 1, "ffn_width": 3}, "other", {"ffn": 2}, {"ffn"})


def test_error_a_named_arm_that_replaces_what_it_does_not_read():
    theta = "model.position.rope.theta"
    text = message({}, arms={"pre": {}, "long": {PLACE: "post", theta: 10_000.0}})
    assert text.startswith(f"long: {theta} = 10000.0 would do nothing, because model.position.kind")
    kinds = {"model.position.kind": ("sinusoidal", "rope")}
    # At one point of the grid it is read, at the other two arms are one.
    assert "identical, 'sinusoidal-base' and 'sinusoidal-long'" in message(
        kinds, arms={"base": {}, "long": {theta: 5e5}}
    )


def test_error_arms_that_are_one():
    assert "identical, 'a' and 'b'" in message({}, arms={"a": {}, "b": {PLACE: "pre"}})
    with pytest.raises(SpecError, match="identical, 'x-y' and 'x-y'"):
        refuse_identical(["x-y", "x-y"], [1, 2])
    clash = {"a": {"model.width": 32}, "a-b": {}}
    arms = {"b-c": {}, "c": {PLACE: "post"}}
    assert "identical, 'a-b-c' and 'a-b-c'" in message({}, arms=arms, scales=clash)


def test_error_unknown_settings_in_deltas():
    for part in (
        dict(arms={"a": {}, "b": {"model.ffnn": 1}}),
        dict(scales={"a": {"x": 1}, "b": {}}),
    ):
        assert "is not a setting" in message(FFN, **part)


def test_error_overrides_that_named_arms_or_scales_would_undo():
    everywhere = {"pre": {PLACE: "pre"}, "post": {PLACE: "post"}}
    assert message({}, arms=everywhere, baseline="pre", touched=[PLACE]).startswith(PLACE)
    # Without a named baseline it chooses one; and where one arm does not replace it, it is read.
    post = tree_with(model__norm_placement="post")
    assert plan_of({}, arms=everywhere, tree=post, touched=[PLACE]).baseline == "post"
    assert len(plan_of({}, arms=ARMS, baseline="pre", touched=[PLACE]).arms) == 3
    text = message(FFN, scales=SCALES, touched=["model.width"])
    assert text.startswith("model.width = 64 would do nothing, because get_sweep() gives its")
    assert len(plan_of(FFN, scales=SCALES, touched=["training.steps"]).arms) == 6


def test_every_scale_has_all_arms_and_matches_them_within_it():
    plan = plan_of(FFN, scales=SCALES, match=MATCH, nuisance=RATES, seeds=(0, 1))
    assert names(plan) == [f"{s}-{f}" for s in SCALES for f in ("relu", "gelu", "swiglu")]
    assert plan.baseline == "gelu" and len(plan.cells) == 6 * 3 * 2
    sizes = {}
    for arm in plan.arms:
        assert arm.scale == arm.name.split("-")[0] and arm.baseline == f"{arm.scale}-gelu"
        assert arm.factors.keys() == {"model.ffn"} and abs(arm.residual) <= 0.01
        sizes[arm.name] = accounting.parameters(arm.spec.model).total
        assert abs(sizes[arm.name] / sizes.get(arm.baseline, sizes[arm.name]) - 1) <= 0.01
    assert sizes["wide-gelu"] > 2 * sizes["small-gelu"]
    assert {c.spec.training.steps for c in plan.cells if c.arm == "wide-swiglu"} == {800}
    assert {c.spec.training.steps for c in plan.cells if c.arm == "small-relu"} == {400}


def test_a_scale_is_the_sweep_that_asks_at_that_scale_alone():
    ladder = plan_of(FFN, scales=SCALES, match=MATCH, nuisance=RATES)
    tree = tree_with(**{path.replace(".", "__"): v for path, v in SCALES["wide"].items()})
    alone = plan_of(FFN, tree=tree, match=MATCH, nuisance=RATES)
    wide = [cell.fingerprint for cell in ladder.cells if cell.arm.startswith("wide-")]
    assert wide == [cell.fingerprint for cell in alone.cells]


def test_error_scales_that_are_one_or_do_nothing():
    twice = {"a": {"model.width": 32}, "b": {"model.width": 32}}
    assert "identical, 'a-relu' and 'b-relu'" in message(FFN, scales=twice)
    theta = {"a": {}, "b": {"model.position.rope.theta": 5e5}}
    assert message(FFN, scales=theta).startswith("b: model.position.rope.theta = 500000.0 would do")


def test_the_manifest_is_enough_to_train_from():
    """A worker has no config file: every run follows from sweep.json."""
    plans = [
        plan_of(FFN, arms=ARMS, scales=SCALES, nuisance=RATES, seeds=(0, 1), match=MATCH),
        plan_of(FFN, nuisance={"schedule.kind": ("constant", "warmup_cosine")}),
    ]
    for plan in plans:
        record = manifest(plan, ABOUT)
        written = json.loads(json.dumps(record, allow_nan=False))
        assert written == record
        for cell, row in zip(plan.cells, written["cells"], strict=True):
            spec = cell_spec(written, row)
            assert spec == cell.spec and fingerprint(spec, KJV, SCHEMA) == row["fingerprint"]


def test_the_manifest_says_how_arms_and_scales_came_about():
    record = manifest(plan_of({}, arms=ARMS, scales=SCALES), ABOUT)
    assert record["named"] == ARMS and record["scales"] == SCALES and record["baseline"] == "pre"
    last = record["arms"][-1]
    assert (last["name"], last["scale"], last["baseline"]) == ("wide-post-warm", "wide", "wide-pre")
    plain = manifest(plan_of(FFN), ABOUT)
    assert {arm["scale"] for arm in plain["arms"]} == {None}
    assert {arm["baseline"] for arm in plain["arms"]} == {"gelu"}


def test_a_sweep_grows_by_arms_and_scales():
    old = manifest(plan_of({}, arms={"pre": {}, "post": {PLACE: "post"}}), ABOUT)
    grown = adopt(plan_of({}, arms=ARMS, scales={"base": {}, **SCALES}), old)
    kept = {cell["directory"] for cell in old["cells"]}
    assert kept <= {cell.directory for cell in grown.cells} and len(grown.cells) == 9


def test_a_plan_leaves_the_declaration_and_the_tree_alone():
    before = json.dumps([ARMS, SCALES, TREE])
    plan_of({}, arms=ARMS, scales=SCALES)
    assert json.dumps([ARMS, SCALES, TREE]) == before
