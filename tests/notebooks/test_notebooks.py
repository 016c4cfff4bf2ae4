"""Notebooks are stored without outputs, ask a question, and name only what is there."""

import ast
import importlib
import json
import re
from pathlib import Path

import pytest
from notebooks.conftest import MISSING

from jtransformer.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EACH = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
PARTS = ("## Prediction", "## What it means", "## What to try next")
MOST_LINES = 50
"""Of a cell: about a screen. A config file that is written whole is the longest."""


def cells_of(path, kind):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def trees_of(path):
    """The code of each cell; one that writes a file of Python is read as what it writes."""
    for cell in cells_of(path, "code"):
        lines = cell["source"]
        written = bool(lines) and lines[0].startswith("%%writefile")
        yield ast.parse("".join(lines[1:] if written else lines))


def imported(tree):
    """What a cell imports from here: a package and its name, and what it is called there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "jtransformer":
            for alias in node.names:
                yield node.module, alias.name, alias.asname or alias.name


def module_or_none(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


@EACH
def test_it_is_stored_as_tools_write_it_and_without_outputs(path):
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert text == json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]


@EACH
def test_ids_are_words_and_differ(path):
    ids = [cell["id"] for kind in ("markdown", "code") for cell in cells_of(path, kind)]
    assert len(set(ids)) == len(ids)
    # Tools draw eight hexadecimal digits, which another save would draw anew.
    assert not [one for one in ids if not re.fullmatch(r"[a-z]+(-[a-z]+)*", one)]


@EACH
def test_it_asks_predicts_and_concludes(path):
    words = ["".join(cell["source"]) for cell in cells_of(path, "markdown")]
    first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
    assert first["id"] == "question"
    assert re.match(r"# .+\?\n", "".join(first["source"]))
    text = "\n".join(words)
    assert [text.count(part) > 0 for part in PARTS] == [True] * 3
    assert text.index(PARTS[0]) < text.index(PARTS[1]) < text.index(PARTS[2])


@EACH
def test_cells_are_short_and_claims_are_asserted(path):
    assert max(len(cell["source"]) for cell in cells_of(path, "code")) <= MOST_LINES
    nodes = [node for tree in trees_of(path) for node in ast.walk(tree)]
    checks = [node for node in nodes if isinstance(node, ast.Assert)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    checks += [node for node in calls if ast.unparse(node.func) == "check"]
    assert len(checks) >= 5


@EACH
def test_every_public_name_exists(path):
    packages = {}
    for tree in trees_of(path):
        for module, name, called in imported(tree):
            package = module_or_none(f"{module}.{name}")
            if package is None:
                assert name in importlib.import_module(module).__all__, f"{module}.{name}"
            else:
                packages[called] = package
    assert packages
    used = {
        (node.value.id, node.attr)
        for tree in trees_of(path)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    text = "\n".join("".join(cell["source"]) for cell in cells_of(path, "markdown"))
    used |= set(re.findall(r"`(\w+)\.(\w+)", text))
    here = {(owner, name) for owner, name in used if owner in packages}
    assert not [(o, n) for o, n in here if n not in packages[o].__all__]


@EACH
def test_commands_and_files_that_it_names_exist(path):
    text = "\n".join("".join(cell["source"]) for cell in cells_of(path, "markdown"))
    assert set(re.findall(r"`jtransformer (\w+)", text)) <= set(COMMANDS)
    files = re.findall(r"experiments/[\w/.]*\w", text)
    assert not [name for name in files if not (ROOT / name).exists()]


def test_readme_lists_each_with_its_question():
    rows = re.findall(r"^\| \[(.+\?)\]\((notebooks/\S+\.ipynb)\)", README, re.MULTILINE)
    found = {f"notebooks/{path.name}": question_of(path) for path in PATHS}
    assert {file: question for question, file in rows} == found
    assert len(rows) == len(found) == 8


def question_of(path):
    return cells_of(path, "markdown")[0]["source"][0].removeprefix("# ").strip()


def test_what_executes_them_is_here():
    if MISSING:
        pytest.skip(
            f"{' and '.join(MISSING)} not installed, so no notebook is executed; "
            "pip install 'jtransformer[notebooks,interop]' (maintainers, 2026-12-01)"
        )
