"""Tests of the numbers behind sections: all digits, nothing but JSON."""

import dataclasses
import json

import numpy as np
import pandas
import pytest
from sweep_fixture import noisy_losses, scaled, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import UnknownSection, numbers_json, section_text, style
from jtransformer.report.contents import contents, find_all
from jtransformer.report.summary import Column
from jtransformer.report.values import plain, section_values
from jtransformer.stats import analyse

LOSSES = noisy_losses({"pre-gelu": 0.0, "pre-swiglu": -0.03})


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return write_sweep(tmp_path_factory.mktemp("values"), LOSSES)


def test_a_section_has_its_numbers_with_all_digits(workdir):
    comparison = analyse(load_sweep(workdir)).arm("pre-swiglu").comparison
    values = json.loads(numbers_json(workdir, "differences"))
    (scale,) = values["scales"]
    assert scale["found"]["pre-swiglu"]["model"]["value"] == comparison.model.value
    assert {"differences"} == set(scale["tables"])
    drawn = scale["figures"]["differences"]
    assert comparison.model.value in [row.get("difference") for row in drawn]


def test_the_whole_names_every_section_and_each_can_be_asked_for(workdir):
    whole = json.loads(numbers_json(workdir, None))
    (analysis,) = whole["scales"]
    assert analysis["arms"][1]["mean"]["value"] == analyse(load_sweep(workdir)).arms[1].mean.value
    assert whole["sections"][:3] == ["verdict", "curves", "tuning"]
    assert section_text(workdir, "tuning").startswith("## Tuned settings")
    found = find_all(load_sweep(workdir))
    shown = contents(found, style.PAPER)
    for name in whole["sections"]:
        values = json.loads(json.dumps(section_values(found, shown, name), allow_nan=False))
        assert values["section"] == name and len(values["scales"]) == 1
        known = name == "yardsticks" or values["scales"][0]["found"] is not None
        assert known, f"the finding of section {name} has another name"


def test_the_curves_are_whole(workdir):
    (scale,) = json.loads(numbers_json(workdir, "curves"))["scales"]
    rows = sum(len(run.metrics) for run in load_sweep(workdir).runs
               if run.cell["nuisance"]["optimizer.learning_rate"] == 0.004)  # fmt: skip
    assert len(scale["figures"]["learning_train"]) == rows


def test_scales_stand_apart(tmp_path):
    effects = {"small-pre": 0.0, "small-gate": -0.03, "large-pre": -0.5, "large-gate": -0.46}
    workdir = write_sweep(tmp_path, noisy_losses(effects), **scaled(effects))
    values = json.loads(numbers_json(workdir, "verdict"))
    assert [scale["scale"] for scale in values["scales"]] == ["small", "large"]
    assert set(values["scales"][1]["tables"]) == {"arms_2_large"}
    assert json.loads(numbers_json(workdir, "scales"))["across"][0]["tables"]


def test_an_unknown_section_is_answered_with_the_known(workdir):
    with pytest.raises(UnknownSection, match="'typo'; use verdict, curves, "):
        numbers_json(workdir, "typo")
    with pytest.raises(UnknownSection, match="'typo'"):
        section_text(workdir, "typo")


@dataclasses.dataclass
class Found:
    """A finding of every kind of value."""

    numbers: dict
    pair: tuple
    column: Column
    table: pandas.DataFrame


def test_every_kind_of_value_becomes_plain():
    found = Found(
        numbers={1: np.float64(0.1), ("a", 2): np.int64(3), "none": None, "nan": float("nan")},
        pair=(np.bool_(True), np.arange(3)),
        column=Column("arm", ["a"]),
        table=pandas.DataFrame({"x": [1.5, np.nan], "y": [pandas.NA, "z"]}),
    )
    assert plain(found) == {
        "numbers": {"1": 0.1, "a 2": 3, "none": None, "nan": None},
        "pair": [True, [0, 1, 2]],
        "column": {"heading": "arm", "cells": ["a"]},
        "table": [{"x": 1.5, "y": None}, {"x": None, "y": "z"}],
    }
