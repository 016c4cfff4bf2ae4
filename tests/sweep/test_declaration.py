"""Tests for jtransformer.sweep.declaration."""

import decimal

import numpy as np
import pytest

from jtransformer.spec import SpecError
from jtransformer.sweep import Declaration, Factor, Matching, Search, read_declaration

SWEEP = dict(
    scientific={"model.norm_placement": ("pre", "post"), "model.ffn": ["relu", "gelu", "swiglu"]},
    nuisance={"optimizer.learning_rate": (1e-3, 4e-3)},
    seeds=(0, 1, 2),
    match=dict(equal="parameters", by="model.ffn_width", multiple_of=2, tolerance=0.02),
    metric="validation/nll",
    baseline="pre-gelu",
)


def message(**changes):
    with pytest.raises(SpecError) as caught:
        read_declaration({**SWEEP, **changes})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_everything_that_is_declared_is_read():
    assert read_declaration(SWEEP) == Declaration(
        scientific=(
            Factor(("model.norm_placement",), (("pre",), ("post",))),
            Factor(("model.ffn",), (("relu",), ("gelu",), ("swiglu",))),
        ),
        nuisance=(Factor(("optimizer.learning_rate",), ((1e-3,), (4e-3,))),),
        seeds=(0, 1, 2),
        match=Matching(equal="parameters", by="model.ffn_width", multiple_of=2, tolerance=0.02),
        metric="validation/nll",
        baseline="pre-gelu",
    )


def test_what_is_left_out():
    least = read_declaration({"scientific": {"model.head.tokens.tied": (True, False)}})
    assert (least.nuisance, least.match, least.baseline) == ((), None, None)
    assert (least.arms, least.scales, least.search, least.extend) == ({}, {}, Search(), None)
    assert least.metric == "validation/nll"
    assert least.seeds == (), "the plan takes the seed of get_config()"
    match = read_declaration(
        {**SWEEP, "match": dict(equal="parameters", by="model.ffn_width")}
    ).match
    assert match == Matching(
        equal="parameters", by="model.ffn_width", multiple_of=1, tolerance=0.01
    )


@pytest.mark.parametrize("value", [None, (), "scientific", 5, [("scientific", {})]])
def test_error_no_dict(value):
    with pytest.raises(
        SpecError, match=r"^get_sweep\(\) must be a dict of scientific, nuisance, seeds"
    ):
        read_declaration(value)


@pytest.mark.parametrize(
    ("name", "offer"),
    [
        ("scientfic", "scientific"),
        ("seed", "seeds"),
        ("nuisances", "nuisance"),
        ("baselin", "baseline"),
    ],
)
def test_error_unknown_keys(name, offer):
    text = message(**{name: (0,)})
    assert text.startswith(f"get_sweep(): {name} is not a part of it; did you mean {offer!r}?")


def test_error_keys_that_are_no_strings():
    with pytest.raises(SpecError, match="5 is not a part of it"):
        read_declaration({**SWEEP, 5: 1})


@pytest.mark.parametrize("role", ["scientific", "nuisance"])
@pytest.mark.parametrize("value", [None, (), "model.ffn", [("model.ffn", ("relu",))]])
def test_error_factors_are_no_dict(role, value):
    assert message(**{role: value}).startswith(f"{role} must map settings to their values")


def test_error_no_scientific_factor():
    assert message(scientific={}).startswith("scientific is empty")


@pytest.mark.parametrize("values", ["relu", None, 5, {"relu"}, (), [], np.arange(2), range(2)])
def test_error_values_are_no_tuple(values):
    for role in ("scientific", "nuisance"):
        text = message(**{role: {"model.layers": values}})
        assert text.startswith("model.layers must have a tuple of values")


@pytest.mark.parametrize(
    "values",
    [("relu", "gelu", "relu"), (1, 2, 1), (1, 1.0), (1e-3, 0.001), (None, None), (False, 0)],
)
def test_error_values_named_twice(values):
    for role in ("scientific", "nuisance"):
        text = message(**{role: {"model.layers": values}})
        assert text.startswith(f"model.layers names {values[-1]!r} twice")


@pytest.mark.parametrize(
    "value",
    [
        np.int64(2),
        np.float64(1e-3),
        np.bool_(True),
        np.arange(3),
        decimal.Decimal(1),
        (1, 2),
        [1],
        {},
    ],
)
def test_error_values_that_no_file_can_hold(value):
    for role in ("scientific", "nuisance"):
        text = message(**{role: {"model.layers": (1, value, value)}})
        assert text.startswith("model.layers has the value ")
        assert "must be a plain Python number" in text


@pytest.mark.parametrize("seeds", [(True,), (False, 1), (-1,), (0.0,), ("0",), (None,), (0, 1, -2)])
def test_error_seeds_are_no_counting_numbers(seeds):
    assert message(seeds=seeds).startswith("seeds must be an integer of at least 0, got ")


@pytest.mark.parametrize("seeds", [3, None, (), [], "012", range(3), {0, 1}])
def test_error_seeds_are_no_tuple(seeds):
    assert message(seeds=seeds).startswith("seeds must have a tuple of values")


def test_error_seeds_named_twice():
    assert message(seeds=(0, 1, 0)).startswith("seeds names 0 twice")


@pytest.mark.parametrize("metric", ["validation/loss", "test/nll", None, 1, ["validation/nll"]])
def test_error_metric(metric):
    assert message(metric=metric) == f"metric must be one of validation/nll, got {metric!r}."


def test_error_one_setting_with_two_roles():
    rates = {"optimizer.learning_rate": (1e-3, 2e-3)}
    text = message(scientific={**SWEEP["scientific"], **rates})
    assert text.startswith("optimizer.learning_rate is both scientific and nuisance")
    widths = {"model.ffn_width": (128, 256)}
    text = message(scientific={**SWEEP["scientific"], **widths})
    assert text.startswith("model.ffn_width is both scientific and match.by")
    text = message(nuisance=widths)
    assert text.startswith("model.ffn_width is both nuisance and match.by")
    for role in ("scientific", "nuisance"):
        text = message(**{role: {"seed": (0, 1)}})
        assert text.startswith(f"seed is both {role} and seeds")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (dict(by=None), "match.by must be a string or a tuple of strings, got None."),
        (dict(by="ffn_width"), "match.by must be a field of the model, got 'ffn_width'"),
        (dict(by="optimizer.beta1"), "match.by must be a field of the model"),
        (dict(equal=True), "match.equal must be a string, got True."),
        (dict(multiple_of=0), "match.multiple_of must be an integer of at least 1, got 0."),
        (dict(multiple_of=True), "match.multiple_of must be an integer"),
        (dict(multiple_of=2.0), "match.multiple_of must be an integer"),
        (dict(tolerance=-0.01), "match.tolerance must be a fraction"),
        (dict(tolerance=1), "match.tolerance must be a fraction, at least 0 and less than 1"),
        (dict(tolerance=float("nan")), "match.tolerance must be a fraction"),
        (dict(tolerance=float("inf")), "match.tolerance must be a fraction"),
        (dict(tolerance="1%"), "match.tolerance must be a fraction"),
        (dict(tolerance=None), "match.tolerance must be a fraction"),
        (dict(tolerance=False), "match.tolerance must be a fraction"),
        (dict(tolerance=10**400), "match.tolerance must be a fraction"),
        (dict(tolernace=0.1), "match: tolernace is not a part of it; did you mean 'tolerance'?"),
    ],
)
def test_error_matching(change, text):
    assert message(match={**SWEEP["match"], **change}).startswith(text)


@pytest.mark.parametrize("name", ["equal", "by"])
def test_error_matching_is_incomplete(name):
    match = {key: value for key, value in SWEEP["match"].items() if key != name}
    assert message(match=match).startswith(f"match.{name} is missing; for example")


@pytest.mark.parametrize("match", [False, (), "parameters", 0.01])
def test_error_matching_is_no_dict(match):
    assert message(match=match).startswith(
        "match must be a dict of equal, by, multiple_of, tolerance"
    )


def test_a_declaration_does_not_share_the_lists_of_the_config_file():
    values = ["relu", "gelu"]
    declaration = read_declaration({**SWEEP, "scientific": {"model.ffn": values}})
    values.append("silu")
    assert declaration.scientific == (Factor(("model.ffn",), (("relu",), ("gelu",))),)


def test_error_values_that_single_precision_cannot_tell_apart():
    sweep = {"scientific": {"model.layers": (1, 2)}}
    nuisance = {"optimizer.learning_rate": (0.01, 0.01000000001)}
    with pytest.raises(SpecError, match="twice"):
        read_declaration(sweep | {"nuisance": nuisance})


def test_error_one_arm_compares_nothing():
    with pytest.raises(SpecError, match="makes one arm; a comparison needs two"):
        read_declaration({"scientific": {"model.layers": (1,)}})


@pytest.mark.parametrize("role", ["scientific", "nuisance"])
def test_error_a_setting_that_moves_no_result(role):
    sweep = {"scientific": {"model.layers": (1, 2)}}
    for path in ("training.log_every", "training.probe_steps"):
        with pytest.raises(SpecError, match=f"{path} changes no result"):
            read_declaration(sweep | {role: sweep.get(role, {}) | {path: (1, 2)}})
