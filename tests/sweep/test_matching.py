"""Tests for jtransformer.sweep.matching: equal arms, and what stays unequal."""

import dataclasses
import json

import pytest
from plan_fixture import ABOUT, FFN, MATCH, PLACEMENT, TREE, message, plan_of, tree_with, whole

from jtransformer import accounting
from jtransformer.spec import RunSpec, from_tree, presets, prune, replace
from jtransformer.sweep import manifest, read_declaration
from jtransformer.sweep.matching import Matching, match_arm, mismatches, read_matching

QUANTITIES = accounting.QUANTITIES
HEADS = {"model.key_value_heads": (None, 1)}


def run_of(**changes):
    return from_tree(prune(tree_with(**changes)))


def arms_of(plan):
    return {arm.name: arm for arm in plan.arms}


def test_reads_one_knob_or_several():
    one = read_matching(dict(equal="kv_bytes", by="model.layers"))
    assert one == Matching("kv_bytes", "model.layers", 1, 0.01)
    assert (one.paths, one.solved) == (("model.layers",), ("model.layers",))
    listed = dict(equal="parameters", by=["model.width", "model.layers"], multiple_of=[8, 1])
    several = read_matching(listed)
    assert several.paths == ("model.width", "model.layers") and several.multiple_of == (8, 1)
    assert several.solved == ("model.width", "model.layers", "model.heads")
    for rule in (one, several):
        assert json.loads(json.dumps(rule.record())) == rule.record()
    assert several.record() == dict(listed, tolerance=0.01)


@pytest.mark.parametrize(
    ("match", "text"),
    [
        (dict(equal="flops"), "match.equal = 'flops' is unknown; did you mean 'training_flops'?"),
        (dict(equal="nothing"), "match.by would do nothing, because match.equal is 'nothing'"),
        (dict(by="model.head_width"), "match.by = 'model.head_width' cannot pay; did you mean"),
        (
            dict(by="model.widht"),
            "match.by = 'model.widht' cannot pay; did you mean 'model.width'?",
        ),
        (dict(by=()), "match.by = () must name at least one size"),
        (dict(by=("model.width",) * 2), "match.by = ('model.width', 'model.width') must name"),
        (dict(by=("model.width", 5)), "match.by must be a string or a tuple of strings, got"),
        (dict(multiple_of=(1, 2)), "match.multiple_of = (1, 2) must be one number, or one for"),
        (dict(multiple_of=(0,)), "match.multiple_of must be an integer of at least 1, got 0."),
    ],
)
def test_error_declaration(match, text):
    with pytest.raises(ValueError) as caught:
        read_matching(dict(equal="parameters", by="model.ffn_width") | match)
    assert str(caught.value).startswith(text)


def test_error_a_setting_cannot_be_solved_for_and_vary():
    for varied in ("model.width", "model.heads"):
        with pytest.raises(ValueError, match=f"^{varied} is both scientific and match.by"):
            read_declaration(
                {
                    "scientific": {varied: (4, 8)},
                    "match": dict(equal="parameters", by="model.width"),
                }
            )


def test_heads_follow_a_width_into_every_run():
    """What follows is written into the cells too, whose specs are the arm's."""
    plan = plan_of(
        {"model.ffn": ("gelu", "swiglu")},
        tree=tree_with(model__ffn_width=128),
        seeds=(0, 1),
        match=dict(equal="parameters", by="model.width", tolerance=0.5),
    )
    arm = arms_of(plan)["swiglu"]
    assert arm.matched == {"model.width": 48, "model.heads": 3}
    assert (arm.spec.model.width, arm.spec.model.heads, arm.spec.model.H) == (48, 3, 16)
    for cell in plan.cells:
        assert cell.spec.model == arms_of(plan)[cell.arm].spec.model


def test_heads_at_a_fixed_width_write_their_head_width_down():
    match = dict(equal="parameters", by="model.heads", tolerance=0.01)
    plan = plan_of(HEADS, match=match)
    arm = plan.arms[1]
    assert arm.matched == {"model.heads": 7, "model.head_width": 16} and arm.residual == 0
    assert (arm.spec.model.key_value_heads, arm.spec.model.width) == (1, 64)


def test_every_other_quantity_is_beside_the_matched_one():
    """Equal parameters are not equal operations, and one key head is not as large a cache."""
    plan = plan_of(HEADS, match=dict(equal="parameters", by="model.ffn_width", tolerance=0.01))
    base, arm = plan.arms
    assert base.mismatches == dict.fromkeys(QUANTITIES, 0.0)
    assert list(arm.mismatches) == list(QUANTITIES)
    assert arm.mismatches["parameters"] == arm.residual == 0
    assert arm.mismatches["kv_bytes"] == -0.75
    for name, figure in (("training_flops", "training"), ("inference_flops", "decoding")):
        own, other = (
            getattr(accounting.flops(one.spec.model, length=64), figure) for one in (arm, base)
        )
        assert arm.mismatches[name] == (own - other) / other
    counts = [accounting.parameters(one.spec.model).non_embedding for one in (arm, base)]
    assert arm.mismatches["non_embedding_parameters"] == (counts[0] - counts[1]) / counts[1]


@pytest.mark.parametrize("equal", QUANTITIES)
def test_the_residual_is_that_of_the_matched_quantity(equal):
    plan = plan_of(
        {"model.qkv_bias": (False, True), "model.head.tokens.tied": (True, False)},
        match=dict(equal=equal, by="model.layers", tolerance=0.5),
    )
    for arm, written in zip(plan.arms, manifest(plan, ABOUT)["arms"], strict=True):
        assert arm.residual == arm.mismatches[equal] == written["residual"]
        assert written["mismatches"] == arm.mismatches
        assert written["quantities"]["parameters"] == written["parameters"]
        assert round(written["quantities"]["training_flops"]) == written["training_flops_per_token"]


def test_operations_are_made_equal_at_the_lengths_of_the_runs():
    tree = tree_with(data__length=128)
    plan = plan_of(FFN, tree=tree, match=dict(MATCH, equal="training_flops"))
    widths = [arm.spec.model.ffn_width for arm in plan.arms]
    rule = dict(equal="training_flops", by="ffn_width", multiple_of=2, tolerance=0.01)
    found = accounting.match(plan.arms[1].spec.model, plan.arms[2].spec.model, length=128, **rule)
    assert widths == [256, 256, found.value]
    assert abs(plan.arms[2].residual) <= 0.01


def test_error_operations_at_two_lengths():
    lengths = {"data.length": (32, 64)}
    text = message(lengths, match=dict(MATCH, equal="training_flops"))
    assert text.startswith(
        "The arm 'length=32' cannot be matched: match.equal = 'training_flops' is per token of one "
        "length, and rows have 32 tokens here and 64 tokens in the baseline; match in parameters, "
        "or keep"
    )
    plan = plan_of(lengths, match=MATCH)
    assert plan.arms[0].mismatches["training_flops"] < 0 == plan.arms[0].residual


def test_error_nothing_to_be_equal_to():
    encoder = {"model.stack.kind": ("encoder",), "objective.kind": ("masked_lm",)}
    tree = replace(TREE, {path: values[0] for path, values in encoder.items()})
    text = message(FFN, tree=tree, match=dict(equal="kv_bytes", by="model.layers"))
    assert text.startswith(
        "The arm 'relu' cannot be matched: match.equal = 'kv_bytes' cannot be reached, because"
    )
    plan = plan_of(FFN, tree=tree, match=MATCH)
    assert {arm.mismatches["kv_bytes"] for arm in plan.arms} == {None}


def test_equal_nothing_leaves_the_arms_as_they_are():
    unmatched, nothing = whole(match=None), whole(match=dict(equal="nothing"))
    assert [cell.spec for cell in unmatched.cells] == [cell.spec for cell in nothing.cells]
    assert unmatched.arms == nothing.arms
    assert {tuple(arm.matched) for arm in nothing.arms} == {()}
    gated = arms_of(nothing)["pre-swiglu"]
    assert gated.residual == gated.mismatches["parameters"] > 0.2
    assert manifest(nothing, ABOUT)["match"] == {"equal": "nothing"}


def test_solved_settings_say_the_size_even_where_it_stays():
    run, other = RunSpec(), run_of(model__ffn="relu")
    spec, solved = match_arm("relu", other, run, read_matching(MATCH))
    assert (spec, solved) == (other, {"model.ffn_width": 256})
    assert mismatches(spec, run) == dict.fromkeys(QUANTITIES, 0.0)


def test_a_source_counts_where_the_model_reads_one():
    short = presets.translation(width=32, layers=1)
    long = dataclasses.replace(
        short, data=dataclasses.replace(short.data, source_length=2 * short.data.source_length)
    )
    unequal = mismatches(long, short)
    assert unequal["parameters"] == 0 < unequal["training_flops"] and unequal["kv_bytes"] > 0


def test_placements_differ_by_their_norms_alone():
    post = plan_of(PLACEMENT).arms[1]
    assert -0.01 < post.residual < 0 == post.mismatches["training_flops"]
