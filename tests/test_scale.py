"""The reference configs of experiments/scale are runs, and their layouts are for what they name."""

import math
import pathlib
import re

import pytest

from jtransformer import accounting, ahead
from jtransformer.cli.arguments import read_experiment

SCALE = pathlib.Path(__file__).parents[1] / "experiments/scale"
PARAMETERS = {"125m": 124_439_808, "1_3b": 1_345_423_360, "7b": 6_738_415_616}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_config_is_a_run_whose_layout_divides_it_without_a_rest(name):
    experiment = read_experiment(SCALE / f"decoder_{name}.py", [])
    run, layout = experiment.run_spec(), experiment.layout
    assert accounting.parameters(run.model).total == PARAMETERS[name]
    (sizes,) = re.findall(r"--topology v5e:(\d+)x(\d+)", experiment.question)
    assert layout is not None and layout.devices == math.prod(map(int, sizes))
    assert layout in ahead.layouts(run, layout.devices)
    found = ahead.candidates(run, [layout])
    assert run.training.microbatches in {one.microbatches for one in found}


@pytest.mark.parametrize("name", PARAMETERS)
def test_its_report_is_in_the_result_file(name):
    text = (SCALE / "RESULT.md").read_text(encoding="utf-8")
    layout = read_experiment(SCALE / f"decoder_{name}.py", []).layout
    assert layout is not None
    assert f"experiments/scale/decoder_{name}.py on v5e:" in text
    (shown,) = re.findall(rf"decoder_{name}\.py on v5e:\S+ \(\d+ devices\), mesh (.*)", text)
    assert shown == layout.label
    assert text.count("update: fits, with") == len(PARAMETERS)
