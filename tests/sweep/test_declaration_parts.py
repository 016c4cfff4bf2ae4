"""Tests for jtransformer.sweep.declaration: zips, named arms, scales, searches, extensions."""

import math

import pytest

from jtransformer.spec import SpecError
from jtransformer.sweep import Extension, Factor, Range, Search, read_declaration

RATE, HEADS = "optimizer.learning_rate", ("model.heads", "model.key_value_heads")
FFN = {"model.ffn": ("relu", "gelu")}
LOG = dict(low=1e-4, high=1e-2, scale="log")
ARMS = {"pre": {}, "post": {"model.norm_placement": "post"}}
SCALES = {"small": {"model.width": 32}, "large": {"model.width": 64}}


def read(**sweep):
    return read_declaration({"scientific": FFN, **sweep})


def message(**sweep):
    with pytest.raises(SpecError) as caught:
        read(**sweep)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    return str(caught.value)


def test_settings_that_change_together_are_one_factor():
    read_pairs = read(scientific={HEADS: [(4, 4), [8, 2]]}, nuisance={(RATE, "model.a"): ((1, 2),)})
    assert read_pairs.scientific == (Factor(HEADS, ((4, 4), (8, 2))),)
    assert read_pairs.nuisance == (Factor((RATE, "model.a"), ((1, 2),)),)


@pytest.mark.parametrize(
    ("factors", "text"),
    [
        ({("model.heads",): ((4,), (8,))}, "scientific has ('model.heads',); settings that change"),
        ({("model.heads", "model.heads"): ((4, 4),)}, "scientific has ('model.heads', 'model.h"),
        ({("model.heads", 5): ((4, 4),)}, "scientific has ('model.heads', 5)"),
        ({HEADS: (4, 8)}, "model.heads, model.key_value_heads change together and need 2 values"),
        ({HEADS: ((4, 4), (8,))}, "model.heads, model.key_value_heads change together"),
        ({HEADS: "48"}, "model.heads, model.key_value_heads must have a tuple of tuples"),
        ({HEADS: ((4, 4), [4, 4])}, "model.heads, model.key_value_heads names [4, 4] twice"),
        ({HEADS: ((4, 4), (8, {}))}, "model.key_value_heads has the value {}"),
        ({HEADS: ((4, 4), (8, 2)), "model.heads": (1, 2)}, "model.heads stands twice in scien"),
    ],
)
def test_error_settings_that_change_together(factors, text):
    assert message(scientific=factors).startswith(text)


def test_named_arms_and_scales_are_read():
    declaration = read(scientific={}, arms=ARMS, scales=SCALES)
    assert declaration.arms == ARMS and declaration.scales == SCALES
    assert declaration.declared() == {"model.norm_placement", "model.width"}
    assert read(arms={"one": {}}).arms == {"one": {}}, "the grid has two"


@pytest.mark.parametrize("role", ["arms", "scales"])
@pytest.mark.parametrize("value", [None, {}, (), [("a", {})], {5: {}}, {" ": {}}, {"a": None}])
def test_error_names_with_settings(role, value):
    assert message(**{role: value}).startswith(role)


@pytest.mark.parametrize("value", [(1, 2), {}, math.inf.__class__])
def test_error_a_named_arm_gives_one_plain_value(value):
    text = message(arms={**ARMS, "odd": {"model.heads": value}})
    assert text.startswith("model.heads has the value ")


def test_error_one_arm_or_one_scale():
    assert message(scientific={}, arms={"pre": {}}).startswith("arms makes one arm")
    assert message(scales={"small": {}}).startswith("scales has one scale")


@pytest.mark.parametrize(
    ("sweep", "text"),
    [
        (dict(arms={"a": {"model.ffn": "relu"}, "b": {}}), "model.ffn is both scientific and arms"),
        (dict(arms=ARMS, scales={**SCALES, "odd": ARMS["post"]}), "model.norm_placement is both a"),
        (dict(nuisance={RATE: (1, 2)}, arms={"a": {RATE: 3.0}, "b": {}}), f"{RATE} is both nuis"),
        (dict(nuisance={RATE: (1, 2)}, scales={"a": {RATE: 3.0}, "b": {}}), f"{RATE} is both nuis"),
        (dict(arms={"a": {"seed": 1}, "b": {}}), "seed is both arms and seeds"),
        (dict(scales={"a": {"training.log_every": 1}, "b": {}}), "training.log_every changes no"),
        (
            dict(
                arms={"a": {"model.ffn_width": 64}, "b": {}},
                match=dict(equal="parameters", by="model.ffn_width"),
            ),
            "model.ffn_width is both arms and match.by",
        ),
        (
            dict(
                nuisance={"training.steps": (10, 20)},
                search=dict(strategy="halving", rungs=2, keep=2),
            ),
            "training.steps is both nuisance and what search.strategy 'halving' varies",
        ),
    ],
)
def test_error_one_setting_with_two_roles(sweep, text):
    assert message(**sweep).startswith(text)


def test_a_scale_may_set_what_the_match_solves_for():
    """It is the baseline's value at that scale; the other arms get what the match finds."""
    scales = {"small": {"model.ffn_width": 64}, "large": {"model.ffn_width": 128}}
    assert read(scales=scales, match=dict(equal="parameters", by="model.ffn_width")).match


def test_conditional_factors_and_ranges_are_read():
    when = {"model.branch_scale.kind": "layer_scale", "model.layers": (2, 3)}
    read_factors = read(
        nuisance={RATE: LOG, "a.b": dict(values=(1, 2), when=when), "c": dict(low=1, high=4)},
        search=dict(strategy="random", trials=4),
    ).nuisance
    conditions = {"model.branch_scale.kind": ("layer_scale",), "model.layers": (2, 3)}
    assert read_factors == (
        Factor((RATE,), between=Range(1e-4, 1e-2, "log")),
        Factor(("a.b",), ((1,), (2,)), when=conditions),
        Factor(("c",), between=Range(1, 4, "linear")),
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "low is missing; give values=(…), or low and high."),
        (dict(low=1), "high is missing"),
        (dict(valeus=(1, 2)), "valeus is not a part of it; did you mean 'values'?"),
        (dict(low=2, high=1), "low must be less than high, got low=2, high=1."),
        (dict(low=1, high=1), "low must be less than high"),
        (dict(low=0, high=1, scale="log"), "low must be greater than 0 for scale 'log', got 0."),
        (dict(low=0, high=1, scale="ln"), "scale must be one of linear, log, got 'ln'."),
        (dict(low=True, high=2), "low must be a finite number, got True."),
        (dict(low=0.0, high=math.inf), "high must be a finite number, got inf."),
        (dict(values=(1, 2), when={}), "when must map settings to their values, got {}."),
        (dict(values=(1, 2), when="a"), "when must map settings to their values, got 'a'."),
    ],
)
def test_error_tuned_factors(value, text):
    assert message(nuisance={RATE: value}).startswith(f"{RATE}: {text}")


def test_error_contradictions_of_tuned_factors():
    both = dict(values=(1, 2), low=1, high=2)
    assert message(nuisance={RATE: both}).startswith(f"{RATE} has values and high, low; give one")
    text = message(nuisance={HEADS: dict(low=1, high=2)})
    assert text.startswith("model.heads, model.key_value_heads change together and need listed")
    on_tuned = {RATE: (1, 2), "a": dict(values=(1, 2), when={RATE: 1})}
    assert message(nuisance=on_tuned).startswith(f"a: when names {RATE}, which differs between")


def test_searches_are_read():
    tuned = {RATE: (1e-3, 2e-3)}
    assert read(nuisance=tuned, search={}).search == Search()
    drawn = read(nuisance={RATE: LOG}, search=dict(strategy="quasirandom", trials=8)).search
    assert drawn == Search("quasirandom", trials=8, seed=0)
    halving = read(nuisance=tuned, search=dict(strategy="halving", rungs=2, keep=3)).search
    assert halving == Search("halving", rungs=2, keep=3)
    assert read(nuisance=tuned, extend=dict(most=2)).extend == Extension(most=2)


@pytest.mark.parametrize(
    ("search", "text"),
    [
        (dict(strategy="bayes"), "search.strategy must be one of grid, random, quasirandom, ha"),
        (dict(trails=3), "search: trails is not a part of it; did you mean 'trials'?"),
        (dict(trials=3), "search.trials would do nothing with strategy 'grid'"),
        (dict(strategy="random"), "search.trials is missing; strategy 'random' needs it."),
        (dict(strategy="random", trials=1), "search.trials must be an integer of at least 2"),
        (dict(strategy="random", trials=4, keep=2), "search.keep would do nothing with strategy"),
        (dict(strategy="halving", rungs=2), "search.keep is missing"),
        (dict(strategy="halving", rungs=1, keep=2), "search.rungs must be an integer of at least"),
        (dict(strategy="halving", rungs=2, keep=1), "search.keep must be an integer of at least 2"),
        (dict(strategy="halving", rungs=2, keep=2, seed=1), "search.seed would do nothing without"),
    ],
)
def test_error_searches(search, text):
    assert message(nuisance={RATE: (1, 2)}, search=search).startswith(text)


def test_error_a_range_needs_draws_and_draws_need_something():
    for search in ({}, dict(strategy="halving", rungs=2, keep=2)):
        assert message(nuisance={RATE: LOG}, search=search).startswith(f"{RATE} has a range, of wh")
    text = message(search=dict(strategy="random", trials=4))
    assert text.startswith("search.strategy = 'random' has nothing to search")


@pytest.mark.parametrize(
    ("sweep", "text"),
    [
        (dict(extend={}), "extend.most is missing"),
        (dict(extend=dict(most=0)), "extend.most must be an integer of at least 1, got 0."),
        (dict(extend=2), "extend must be a dict of most; got 2."),
        (
            dict(extend=dict(most=1), search=dict(strategy="random", trials=2)),
            "extend needs a grid of values, and search.strategy is 'random'",
        ),
        (
            dict(
                extend=dict(most=1), nuisance={RATE: dict(values=(1, 2), when={"model.ffn": "r"})}
            ),
            f"extend would give some arms more settings than others, because {RATE} has a 'when'",
        ),
        (dict(extend=dict(most=1), nuisance={RATE: (1,)}), "extend would do nothing"),
        (dict(extend=dict(most=1), nuisance={"a": ("x", "y")}), "extend would do nothing"),
    ],
)
def test_error_extensions(sweep, text):
    assert message(**{"nuisance": {RATE: (1, 2)}, **sweep}).startswith(text)
