"""Tests for jtransformer.sweep.plan: what is refused, and what is not although it looks like it."""

import json

import numpy as np
import pytest
from plan_fixture import (
    DEPTH,
    FFN,
    KJV,
    MATCH,
    PLACEMENT,
    POSITION,
    RATES,
    SCHEDULE,
    TREE,
    message,
    plan_of,
    tree_with,
)

from jtransformer.records import SCHEMA
from jtransformer.spec import (
    Constant,
    Learned,
    NoPosition,
    fingerprint,
    from_tree,
    replace,
    to_tree,
)


def test_error_matching_names_the_arm_and_what_can_be_reached():
    text = message(FFN, match=dict(MATCH, multiple_of=64, tolerance=0.001))
    assert text.startswith(
        "The arm 'swiglu' cannot be matched: match.by = 'ffn_width' cannot make "
    )
    assert "the best multiple of 64 of ffn_width is 192, which misses by +" in text


def test_error_baseline():
    assert message(FFN, baseline="gleu").startswith(
        "baseline = 'gleu' is not an arm; did you mean 'gelu'? allowed: gelu, relu, swiglu"
    )
    for wrong in (5, ("gelu",), True, {}):
        assert "is not an arm" in message(FFN, baseline=wrong)
    text = message(FFN, tree=tree_with(model__ffn="silu"))
    assert text.startswith(
        "baseline is missing: no arm equals get_config(), which has {'model.ffn': 'silu'}"
    )
    assert text.endswith("name an arm, one of relu, gelu, swiglu.")


@pytest.mark.parametrize(
    ("scientific", "text"),
    [
        ({"model.fnn": ("relu", "gelu")}, "model.fnn is not a setting; did you mean 'ffn'?"),
        ({"modle.ffn": ("relu", "gelu")}, "modle is not a setting; did you mean 'model'?"),
        ({"model.position": ("learned", "none")}, "model.position is a group of settings"),
        (
            {"model.ffn.kind": ("relu", "gelu")},
            "model.ffn.kind is not a setting; model.ffn has a value",
        ),
        ({"": (1, 2)}, "'' is not a setting"),
        ({"model.ffn": ("relu", "gleu")}, "model.ffn must be one of relu, "),
        ({"model.heads": (4, 5)}, "model.heads must divide the width, got heads=5, width=64"),
        ({"model.layers": (2, True)}, "model.layers must be an integer, got True"),
        ({"model.layers": (2, 2.5)}, "model.layers must be an integer, got 2.5"),
        ({"model.layers": (2, None)}, "model.layers must be an integer, got None"),
        (
            {"model.head.tokens.tied": (True, "False")},
            "model.head.tokens.tied must be True or False",
        ),
        ({"optimizer.learning_rate": (3e-3, "3e-3")}, "optimizer.learning_rate must be a number"),
        (
            {"model.position.kind": ("sinusoidal", "ropes")},
            "model.position.kind must be one of none,",
        ),
        ({"training.steps": (400, 10**30)}, "training.steps must not exceed"),
        ({"training.steps": (400, 10)}, "schedule.warmup_cosine.warmup_steps must not exceed"),
    ],
)
def test_error_bad_values_in_either_role(scientific, text):
    assert message(scientific).startswith(text)
    assert message(PLACEMENT, nuisance=scientific).startswith(text)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("model.width", np.int64(64), "model.width must be an integer, got np.int64(64)"),
        ("optimizer.learning_rate", np.float64(1e-3), "optimizer.learning_rate must be a number"),
        ("model", 5, "model must hold the settings of ModelSpec"),
        ("model.position", None, "model.position must hold a kind"),
        ("model.position.learned", 5, "model.position.learned must hold the settings of Learned"),
        ("model.position.max_length", 64, "model.position.max_length is not a setting"),
        (
            "model.position.learned.max_lenght",
            64,
            "model.position.learned.max_lenght is not a setting",
        ),
        ("model.widht", 64, "model.widht is not a setting; did you mean 'width'?"),
        (5, 64, "5 is not a setting"),
    ],
)
def test_error_bad_values_in_the_config(path, value, text):
    tree = json.loads(json.dumps(TREE))
    *above, name = path.split(".") if isinstance(path, str) else (path,)
    node = tree
    for part in above:
        node = node[part]
    node[name] = value
    assert message(FFN, tree=tree).startswith(text)


def test_error_identical_arms():
    text = message({**POSITION, **DEPTH})
    assert text == (
        "scientific makes two arms that are identical, 'sinusoidal-max_length=64' and "
        "'sinusoidal-max_length=128'; drop one of them."
    )
    assert (
        len(
            plan_of(
                {"model.position.kind": ("learned",), **DEPTH}, baseline="learned-max_length=64"
            ).arms
        )
        == 2
    )


def test_error_identical_runs():
    """A nuisance setting that no more than one schedule reads makes the other's runs alike."""
    tree = tree_with(schedule__kind="constant")
    nuisance = {"schedule.warmup_cosine.warmup_steps": (10, 20)}
    text = message(SCHEDULE, tree=tree, nuisance=nuisance)
    assert text.startswith(
        "Two runs of the sweep are identical: runs/constant/warmup_steps=10-seed0-"
    )


def test_error_nuisance_that_changes_the_size():
    for nuisance in ({"model.layers": (2, 3)}, {"model.ffn": ("gelu", "swiglu")}):
        text = message(PLACEMENT, nuisance=nuisance)
        assert text.startswith("nuisance changes the size of the model in the arm 'pre'")
    assert len(plan_of(PLACEMENT, nuisance={"model.heads": (2, 4)}).cells) == 4


def test_a_setting_is_unread_only_if_no_arm_reads_it():
    path = "model.position.learned.max_length"
    tree = tree_with(model__position__learned__max_length=64)
    assert "would do nothing" in message(FFN, tree=tree)
    plan = plan_of(POSITION, tree=tree, touched=[path])
    assert [arm.spec.model.position for arm in plan.arms][1] == Learned(max_length=64)
    assert "would do nothing" in message(FFN, touched=[path])
    assert "would do nothing" in message(
        {"model.position.kind": ("none", "sinusoidal")}, touched=[path]
    )


def test_a_setting_of_a_preset_may_be_unread_but_none_that_the_sweep_varies():
    path = "model.position.learned.max_length"
    tree = tree_with(model__position__learned__max_length=64)
    assert len(plan_of(FFN, tree=tree, inherited=[path]).arms) == 3
    assert "would do nothing" in message(FFN, tree=tree, inherited=[path], touched=[path])
    assert "would do nothing" in message(
        FFN, tree=tree, inherited=[path], nuisance={path: (64, 65)}
    )


def test_settings_of_kinds_that_a_nuisance_chooses_are_read():
    tree = tree_with(schedule__constant__warmup_steps=7, schedule__warmup_cosine__warmup_steps=9)
    plan = plan_of(FFN, tree=tree, nuisance=SCHEDULE)
    schedules = [cell.spec.schedule for cell in plan.cells[:2]]
    assert schedules[0] == Constant(warmup_steps=7) and schedules[1].warmup_steps == 9
    nuisance = {**SCHEDULE, "schedule.constant.warmup_steps": (7,)}
    assert plan_of(FFN, tree=TREE, nuisance=nuisance).cells[0].spec.schedule == Constant(
        warmup_steps=7
    )


def test_null_unread_kinds_do_not_reach_the_runs():
    plan = plan_of({"model.position.kind": ("none", "sinusoidal")}, seeds=(4,))
    assert plan.cells[0].spec.model.position == NoPosition()
    alone = from_tree(replace(to_tree(plan.cells[0].spec), {}))
    assert fingerprint(alone, KJV, SCHEMA) == plan.cells[0].fingerprint


def test_error_overrides_that_the_sweep_would_undo():
    """A knob that does nothing is refused, also where the sweep is what undoes it."""
    rate, ffn = "optimizer.learning_rate", "model.ffn"
    options = dict(nuisance=RATES, seeds=(0, 1))
    assert message(FFN, touched=[rate], **options) == (
        "optimizer.learning_rate = 0.003 would do nothing, because get_sweep() gives its values; "
        "change them there."
    )
    assert message(FFN, touched=["seed"], **options).startswith("seed = 0 would do nothing")
    assert message(FFN, touched=[ffn], baseline="relu").startswith("model.ffn = 'gelu' would do")
    assert plan_of(FFN, touched=[ffn, "training.steps"], **options).baseline == "gelu"
    assert plan_of(FFN, touched=[rate]).cells[0].spec.optimizer.learning_rate == 3e-3


def test_error_runs_that_are_asked_different_things():
    texts = {"data.source.text_file.path": ("a", "b")}
    tree = tree_with(data__source__kind="text_file", data__source__text_file__path="a")
    assert "would be of different tokens" in message(texts, tree=tree)
    masked = tree_with(objective__kind="masked_lm", model__stack__kind="encoder")
    text = message({"objective.masked_lm.rate": (0.15, 0.4)}, tree=masked)
    assert text.startswith("objective differs between runs (MaskedLM(rate=0.15")
    assert "MaskedLM(rate=0.4" in text
    nuisance = {"data.validation_fraction": (0.02, 0.1)}
    text = message(FFN, nuisance=nuisance)
    assert text.startswith("data.validation_fraction differs between runs (0.02, 0.1)")
