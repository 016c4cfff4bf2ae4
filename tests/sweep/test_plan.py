"""Tests for jtransformer.sweep.plan: what is planned."""

import dataclasses
import itertools
import json
import re
import time

import pytest
from plan_fixture import (
    ABOUT,
    FFN,
    KJV,
    MATCH,
    PLACEMENT,
    POSITION,
    RATES,
    TREE,
    message,
    plan_of,
    tree_with,
    whole,
)

from jtransformer import accounting
from jtransformer.records import SCHEMA
from jtransformer.spec import (
    RunSpec,
    differences,
    fingerprint,
    from_tree,
    get,
    to_tree,
)
from jtransformer.sweep import adopt, manifest
from jtransformer.sweep.plan import file_name


def test_arms_are_the_grid_in_order():
    plan = whole()
    expected = [f"{norm}-{ffn}" for norm in ("pre", "post") for ffn in ("relu", "gelu", "swiglu")]
    assert [arm.name for arm in plan.arms] == expected
    assert plan.baseline == "pre-gelu" and plan.base == RunSpec()
    for arm, name in zip(plan.arms, expected, strict=True):
        norm, ffn = name.split("-")
        assert arm.factors == {"model.norm_placement": norm, "model.ffn": ffn}
        assert (arm.spec.model.norm_placement, arm.spec.model.ffn) == (norm, ffn)


def test_cells_stand_arm_by_arm_and_hold_what_they_say():
    plan = whole()
    assert len(plan.cells) == 6 * 3 * 3
    grid = itertools.product(
        [a.name for a in plan.arms], RATES["optimizer.learning_rate"], range(3)
    )
    for cell, (arm, rate, seed) in zip(plan.cells, grid, strict=True):
        assert (cell.arm, cell.nuisance, cell.spec.seed) == (
            arm,
            {"optimizer.learning_rate": rate},
            seed,
        )
        assert cell.spec.optimizer.learning_rate == rate
        assert cell.fingerprint == fingerprint(cell.spec, KJV, SCHEMA)
        (own,) = (one for one in plan.arms if one.name == arm)
        changed = differences(to_tree(own.spec), to_tree(cell.spec)).keys()
        assert changed <= {"optimizer.learning_rate", "seed"}


def test_order_of_values_and_factors_changes_no_run():
    def identities(plan):
        return {cell.fingerprint for cell in plan.cells}

    def backwards(factors):
        return {path: tuple(reversed(values)) for path, values in reversed(factors.items())}

    plan = whole()
    turned = plan_of(
        backwards({**PLACEMENT, **FFN}), nuisance=backwards(RATES), seeds=(2, 0, 1), match=MATCH
    )
    assert identities(plan) == identities(turned) and len(identities(plan)) == 54
    assert {cell.spec for cell in plan.cells} == {cell.spec for cell in turned.cells}
    assert identities(whole()) == identities(plan)


def test_matched_arms_are_equal_to_the_baseline():
    plan = whole()
    target = accounting.parameters(RunSpec().model).total
    for arm in plan.arms:
        counted = accounting.parameters(arm.spec.model).total
        assert arm.residual == (counted - target) / target and abs(arm.residual) <= 0.01
        if arm.name == plan.baseline:
            assert arm.matched == {} and arm.residual == 0
        else:
            assert arm.matched == {"model.ffn_width": arm.spec.model.ffn_width}
            assert arm.spec.model.ffn_width % 2 == 0
    widths = {arm.name: arm.spec.model.ffn_width for arm in plan.arms}
    assert widths["pre-relu"] == widths["pre-gelu"] == 256 and widths["pre-swiglu"] == 170
    for cell in plan.cells:
        assert cell.spec.model.ffn_width == widths[cell.arm]


def test_unmatched_arms_state_their_mismatch():
    plan = plan_of(FFN)
    swiglu = plan.arms[2]
    assert swiglu.matched == {} and swiglu.spec.model.ffn_width == 256
    dense, gated = (accounting.parameters(arm.spec.model).total for arm in plan.arms[1:])
    assert swiglu.residual == (gated - dense) / dense > 0.2
    assert [arm.residual for arm in plan.arms[:2]] == [0, 0]


def test_baseline_is_the_arm_of_the_config_or_named():
    assert plan_of(FFN).baseline == "gelu"
    assert plan_of(FFN, tree=tree_with(model__ffn="relu")).baseline == "relu"
    named = whole(baseline="post-swiglu")
    assert named.baseline == "post-swiglu"
    (arm,) = (arm for arm in named.arms if arm.name == "post-swiglu")
    assert (arm.matched, arm.residual, arm.spec.model.ffn_width) == ({}, 0, 256)


def test_names_tell_values_apart():
    plan = plan_of(
        {"optimizer.gradient_clip": (None, 1.0), "model.head.tokens.tied": (True, False)}
    )
    assert [arm.name for arm in plan.arms] == [
        "gradient_clip=None-tied=True", "gradient_clip=None-tied=False",
        "gradient_clip=1.0-tied=True", "gradient_clip=1.0-tied=False",
    ]  # fmt: skip
    plan = plan_of({**POSITION, "model.norm.kind": ("layer_norm", "rms_norm")})
    assert [arm.name for arm in plan.arms][:2] == ["sinusoidal-layer_norm", "sinusoidal-rms_norm"]


def test_directories_of_close_numbers_are_distinct():
    """SWEEP-02: rounded to one digit, 3e-4 and 3.4e-4 are one number."""
    rates = (3e-4, 3.4e-4, 0.3000001, 0.3, 1e-3, 3e-3)
    for plan in (
        plan_of({"optimizer.learning_rate": rates}),
        plan_of(PLACEMENT, nuisance={"optimizer.learning_rate": rates}),
    ):
        directories = [cell.directory for cell in plan.cells]
        assert (
            len(set(directories)) == len(directories) and len({arm.name for arm in plan.arms}) > 1
        )
    assert "learning_rate=0.00034-seed0-" in plan.cells[1].directory


def test_directories_say_arm_nuisance_seed_and_identity():
    for cell in whole().cells:
        rate = cell.spec.optimizer.learning_rate
        run = f"learning_rate={rate}-seed{cell.spec.seed}-{cell.fingerprint[:8]}"
        assert cell.directory == f"runs/{cell.arm}/{run}"


@pytest.mark.parametrize(
    "paths",
    [
        ("a/b", "a_b"), ("/etc/text", "../text", "..", "."), ("ü ö", "ä ß", "日本"),
        ("a\nb", "a\tb"), ("x" * 300, "x" * 300 + "y"), (".hidden", "~/text"),
        ("-rf", "a b;c|d*?"), ("A", "a"),
    ],
)  # fmt: skip
def test_directories_are_file_names_whatever_the_values_are(paths):
    for part in map(file_name, paths):
        assert re.fullmatch(r"[A-Za-z0-9_=+-][A-Za-z0-9_.=+-]*", part) and len(part) <= 100


def test_seeds():
    assert plan_of(FFN, seeds=(5, 3)).declaration.seeds == (5, 3)
    assert [cell.spec.seed for cell in plan_of(FFN, seeds=(5, 3)).cells[:2]] == [5, 3]
    own = plan_of(FFN, tree=tree_with(seed=9), touched=["seed"])
    assert {cell.spec.seed for cell in own.cells} == {9} and own.declaration.seeds == (9,)
    assert message(FFN, seeds=(2**31,)).startswith("seed must be at most 2147483647")


def test_a_plan_leaves_the_tree_alone():
    before = json.dumps(TREE)
    whole()
    assert json.dumps(TREE) == before


def test_manifest():
    plan = whole()
    record = manifest(plan, ABOUT)
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert {key: record[key] for key in ABOUT} == ABOUT
    assert record["schema"] == SCHEMA and record["metric"] == "validation/nll"
    assert record["scientific"] == {
        "model.norm_placement": ["pre", "post"],
        "model.ffn": ["relu", "gelu", "swiglu"],
    }
    assert record["nuisance"] == {"optimizer.learning_rate": [1e-3, 4e-3, 1.6e-2]}
    assert (record["seeds"], record["match"], record["baseline"]) == ([0, 1, 2], MATCH, "pre-gelu")
    assert from_tree(record["base"]) == plan.base
    for arm, written in zip(plan.arms, record["arms"], strict=True):
        assert (written["name"], written["factors"], written["matched"]) == (
            arm.name,
            arm.factors,
            arm.matched,
        )
        assert written["parameters"] == sum(written["components"].values())
        assert written["parameters"] == accounting.parameters(arm.spec.model).total
        assert written["residual"] == arm.residual
        assert (
            written["training_flops_per_token"]
            == accounting.flops(arm.spec.model, length=64).training
        )
    for cell, written in zip(plan.cells, record["cells"], strict=True):
        assert list(written) == ["arm", "nuisance", "seed", "fingerprint", "directory"]
        assert written["seed"] == cell.spec.seed and written["fingerprint"] == cell.fingerprint
    assert manifest(plan_of(FFN), ABOUT)["match"] is None


def test_a_sweep_that_grows_keeps_its_directories():
    old = plan_of(FFN, seeds=(0, 1))
    record = manifest(old, ABOUT)
    grown = plan_of({**FFN, **PLACEMENT}, seeds=(0, 1, 2))
    adopted = adopt(grown, record)
    kept = {cell.fingerprint: cell.directory for cell in old.cells}
    assert sum(cell.fingerprint in kept for cell in grown.cells) == len(old.cells) == 6
    for before, after in zip(grown.cells, adopted.cells, strict=True):
        assert after.directory == kept.get(before.fingerprint, before.directory)
        assert dataclasses.replace(after, directory=before.directory) == before
    assert len({cell.directory for cell in adopted.cells}) == len(adopted.cells)
    assert adopt(grown, manifest(adopted, ABOUT)) == adopted
    assert adopt(old, record) == old


def test_a_large_sweep_is_planned_in_seconds():
    rates = tuple(1e-3 * 1.5**k for k in range(10))
    began = time.monotonic()
    plan = whole(nuisance={"optimizer.learning_rate": rates}, seeds=tuple(range(10)))
    assert len({cell.directory for cell in plan.cells}) == 600
    assert time.monotonic() - began < 5
    assert get(to_tree(plan.cells[-1].spec), "seed") == 9
