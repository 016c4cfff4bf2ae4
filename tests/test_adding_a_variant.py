"""CONTRIBUTING.md says how a variant is added; here it is done, word for word, in a copy."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import children
import pytest

ROOT = pathlib.Path(__file__).parents[1]
HEADING = "## Add a variant in five steps\n"
COPIED = ("jtransformer", "tests", "experiments", "README.md", "CONTRIBUTING.md", "pyproject.toml")


class Change(NamedTuple):
    """Lines of a file, before and after."""

    path: str
    before: str
    after: str


def section():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text[text.index(HEADING) + len(HEADING) :].split("\n## ")[0]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", section(), re.DOTALL | re.MULTILINE)


def changes(block):
    """Reads the differences of a block: files after `+++`, places after `@@`."""
    for file in re.split(r"^\+\+\+ ", block, flags=re.MULTILINE)[1:]:
        path, *places = re.split(r"^@@\n|(?<=\n)@@\n", file, flags=re.MULTILINE)
        for place in places:
            lines = place.splitlines()
            assert {line[:1] for line in lines} <= {" ", "+", "-", ""}, place
            yield Change(
                path.strip(),
                "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+")),
                "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-")),
            )


def apply(change, root):
    """Makes a change where the page says; refuses a place that is not there, or there twice."""
    file = root / change.path
    text = file.read_text(encoding="utf-8")
    found = len(re.findall(rf"^{re.escape(change.before)}", text, re.MULTILINE))
    assert found == 1, (
        f"CONTRIBUTING.md shows these lines of {change.path}, which stand there {found} times; "
        f"give the page lines that stand there once:\n{change.before}"
    )
    file.write_text(text.replace(change.before, change.after), encoding="utf-8")


@pytest.fixture
def copy(tmp_path):
    """The repository with what the page says to write."""
    root = tmp_path / "copy"
    root.mkdir()
    for name in COPIED:
        whole = ROOT / name
        if whole.is_dir():
            shutil.copytree(whole, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(whole, root / name)
    for block in blocks("diff"):
        for change in changes(block):
            apply(change, root)
    return root


@pytest.fixture
def environment(copy, tmp_path):
    """Variables under which a command of the page means this Python and the copy."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("jtransformer", "pytest", "ruff"):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {name} "$@"\n')
        program.chmod(0o755)
    return os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(copy)}


def test_the_page_has_five_steps():
    assert re.findall(r"^\*\*(\d)\. ", section(), re.MULTILINE) == list("12345")


def run(words, copy, environment):
    """Runs a command in the copy; returns what it said."""
    options = dict(cwd=copy, env=environment, text=True)
    process = children.start(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    said, _ = process.communicate()
    assert process.returncode == 0, said[-6000:]
    return said


def test_every_step_can_be_done_as_written(copy, environment):
    ask = """
from jtransformer.spec import MeanNorm, ModelSpec, RunSpec, from_tree, to_tree
run = RunSpec(model=ModelSpec(ffn="relu_cubed", norm=MeanNorm(epsilon=1e-3)))
assert from_tree(to_tree(run)) == run
"""
    run([sys.executable, "-c", ask], copy, environment)


@pytest.mark.slow  # it runs a part of the tests, and trains: 30 s on one core
def test_what_was_added_passes_its_tests_and_trains(copy, environment):
    (commands,) = blocks("bash")
    said = run(["bash", "-euo", "pipefail", "-c", commands], copy, environment)
    # Options that select nothing would be no test: three rows of values, two knobs, two tables.
    passed = [int(count) for count in re.findall(r"(\d+) passed", said)]
    assert len(passed) == 2 and min(passed) >= 7, said
    spec = (copy / "runs/new/spec.json").read_text(encoding="utf-8")
    assert '"relu_cubed"' in spec and '"mean_norm"' in spec
    assert (copy / "runs/new/status.json").exists()


def test_a_page_that_does_not_fit_the_code_is_refused(copy):
    (change, *_) = changes(
        '+++ jtransformer/spec/model.py\n@@\n     "relu",\n+    "new",\n     "nothing",\n'
    )
    with pytest.raises(AssertionError, match="which stand there 0 times"):
        apply(change, copy)
