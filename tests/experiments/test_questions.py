"""Every question of experiments/ is asked as its file says; shortened, it ends in a page."""

import importlib.util
import pathlib
import re
import runpy
import sys
import typing

import pytest
from plan_fixture import ABOUT

from jtransformer import cli, sweep
from jtransformer.cli.arguments import read_experiment

ROOT = pathlib.Path(__file__).parents[2] / "experiments"
QUESTIONS = (
    "norm_placement",
    "ffn_family",
    "norm_kind",
    "positions",
    "grouped_queries",
    "stability",
    "size_ladder",
    "depth_and_width",
    "from_2017_to_today",
)
FILES = {name: ROOT / name / "config.py" for name in QUESTIONS}
FILES["factorial"] = ROOT / "from_2017_to_today/factorial.py"

SHORTENED = '''
"""A question, shortened."""

import runpy

EXPERIMENT = runpy.run_path({path!r})


def get_config():
    config = EXPERIMENT["get_config"]()
    config.data.source.kind = "text_file"
    config.data.source.text_file.path = {text!r}
    config.training.batch_size = 2
    config.training.steps = 4
    for every in ("log_every", "evaluate_every", "checkpoint_every"):
        config.training[every] = 2
    config.training.evaluation_batch_size = 8
    config.schedule.warmup_cosine.warmup_steps = 2
    return config


def get_sweep():
    declared = EXPERIMENT["get_sweep"]()
    # The first of several rates, and enough seeds for an interval.
    declared["nuisance"] = {{path: values[:1] for path, values in declared["nuisance"].items()}}
    declared["seeds"] = declared["seeds"][:2]
    if "scales" in declared:
        declared["scales"] = dict(list(declared["scales"].items())[:2])
    warm_up = "schedule.warmup_cosine.warmup_steps"
    if warm_up in declared.get("scientific", {{}}):
        declared["scientific"][warm_up] = (2, 0)
    return declared
'''


def sizes_of(path):
    spec = importlib.util.spec_from_file_location("experiment", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hints = typing.get_type_hints(module.get_config)
    return typing.get_args(hints["size"]) if "size" in hints else ("",)


CASES = [(name, size) for name, path in FILES.items() for size in sizes_of(path)]


@pytest.mark.parametrize(("name", "size"), CASES, ids=[f"{n}-{s or 'only'}" for n, s in CASES])
def test_a_question_is_planned_at_every_size(name, size):
    path = FILES[name]
    experiment = read_experiment(pathlib.Path(f"{path}:{size}") if size else path, [])
    declaration = sweep.read_declaration(experiment.sweep)
    plan = sweep.make_plan(experiment.tree, declaration, lambda run: "ab" * 32)
    arms = sweep.manifest(plan, ABOUT)["arms"]
    assert len(arms) > 1 and len(declaration.seeds) >= 3
    assert (experiment.layout is None) == (size != "paper")


@pytest.mark.parametrize("name", FILES)
def test_a_question_says_what_it_expects_and_where_the_answer_is(name):
    question = read_experiment(FILES[name], []).question
    for part in ("Question:", "Prediction:", "Command:", "Cost:", "Expected result: RESULT.md"):
        assert part in question, part
    assert FILES[name].relative_to(ROOT.parent).as_posix() in question
    result = (FILES[name].parent / "RESULT.md").read_text(encoding="utf-8")
    if "\nNot run yet." in result:
        return
    assert re.search(r"Run on 20\d\d-\d\d-\d\d at commit [0-9a-f]{7}", result)
    for part in ("## What was found", "## What was not found"):
        assert part in result, part


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Enough of a text for rows of four times the trained length."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("In the beginning was the word, and the word was with the reader. " * 400)
    return path


ASKED = ("ffn_family", "from_2017_to_today")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ASKED else pytest.mark.exhaustive)
        for name in FILES
    ],
)
def test_a_shortened_question_ends_in_a_page_and_in_what_is_made_of_it(
    name, text, tmp_path, capsys, monkeypatch
):
    config = tmp_path / "config.py"
    config.write_text(SHORTENED.format(path=str(FILES[name]), text=str(text)))
    workdir = tmp_path / "run"
    assert cli.main(["sweep", f"--config={config}", f"--workdir={workdir}"]) == 0
    assert "Question" not in (page := (workdir / "report/results.md").read_text()) and "|" in page
    companions = {"from_2017_to_today": "steps.py", "positions": "longer.py"}
    if name in companions:
        script = FILES[name].parent / companions[name]
        monkeypatch.setattr(sys, "argv", [str(script), f"--workdir={workdir}"])
        capsys.readouterr()
        runpy.run_path(str(script), run_name="__main__")
        rows = capsys.readouterr().out.splitlines()
        arms = {"from_2017_to_today": 9, "positions": 7}[name]
        assert len(rows) == arms + 2 and all(row.startswith("|") for row in rows)


@pytest.mark.slow
def test_decoding_with_shared_keys_is_timed(capsys, monkeypatch):
    script = ROOT / "grouped_queries/decoding.py"
    words = ["--rounds=2", "--batch=1", "--prompt=8"]
    monkeypatch.setattr(sys, "argv", [str(script), *words])
    runpy.run_path(str(script), run_name="__main__")
    rows = capsys.readouterr().out.splitlines()[2:]
    cache = [float(row.split("|")[2]) for row in rows]
    assert len(rows) == 4 and cache[0] == pytest.approx(8 * cache[3], abs=0.5)


@pytest.mark.slow
def test_a_gradient_keeps_its_length_through_scaled_branches_and_its_bound_is_one():
    module = runpy.run_path(str(ROOT / "residual_depth/measure.py"))
    found = module["measure"](2, depths=(3,))
    assert (found["length"] <= found["bound"] + 1e-3).all()
    bottom = found[found["layer"] == 0].set_index(["placement", "residual"])["length"]
    assert bottom.loc[("none", "scaled")].abs().max() < 0.5
    assert bottom.loc[("none", "off")].max() < -0.5
    assert "| none | off | 3 |" in module["table"](found)
