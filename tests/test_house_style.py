"""Holds the sizes of the house style, and the constructs it refuses, over every source file."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted(
    path
    for folder in ("jtransformer", "tests", "experiments")
    for path in (ROOT / folder).rglob("*.py")
)
PACKAGES = sorted(path.parent for path in (ROOT / "jtransformer").glob("*/__init__.py"))

MAX_MODULE_LINES = 300
MAX_FUNCTION_LINES = 60
MAX_POSITIONAL = 5
MAX_ARGUMENTS = 7

PROBES = ("hasattr", "eval", "exec")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def relative(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def tree_of(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions_of(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, Function]]:
    """Yields every function with its class and name, such as `Block.__call__`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, Function):
            yield f"{owner}{child.name}", child
        below = f"{child.name}." if isinstance(child, ast.ClassDef) else owner
        yield from functions_of(child, below)


def lines_of(function: Function) -> int:
    """Counts a function's lines without its docstring."""
    first = function.body[0]
    is_docstring = ast.get_docstring(function, clean=False) is not None
    docstring = first.end_lineno - first.lineno + 1 if is_docstring else 0
    return function.end_lineno - function.lineno + 1 - docstring


def arguments_of(function: Function) -> tuple[int, int]:
    """Counts the positional and all arguments, `self` and `cls` left out."""
    positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    own = [name for name in positional if name not in ("self", "cls")]
    return len(own), len(own) + len(function.args.kwonlyargs)


def public_names(package: pathlib.Path) -> set[str]:
    names: set[str] = set()
    for node in tree_of(package / "__init__.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names |= set(ast.literal_eval(node.value))
    return names


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_modules_and_functions_are_short(path):
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_MODULE_LINES, f"{relative(path)} has {lines} lines; split it"
    long = {name: lines_of(f) for name, f in functions_of(tree_of(path))}
    long = {name: count for name, count in long.items() if count > MAX_FUNCTION_LINES}
    assert not long, f"functions of {relative(path)} that are too long, in lines"


@pytest.mark.parametrize("package", PACKAGES, ids=relative)
def test_more_than_a_few_arguments_are_a_spec(package):
    """A public function's keyword-only options are its catalogue; elsewhere all are counted."""
    public = public_names(package)
    crowded = {}
    for path in sorted(package.rglob("*.py")):
        for name, function in functions_of(tree_of(path)):
            positional, total = arguments_of(function)
            is_public = name.partition(".")[0] in public
            if positional > MAX_POSITIONAL or (total > MAX_ARGUMENTS and not is_public):
                crowded[f"{relative(path)}: {name}"] = (positional, total)
    assert not crowded


def fault_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return "from __future__ turns the annotations that are checked into strings"
    if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
        return "star import"
    if isinstance(node, ast.Global):
        return "global statement"
    if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in (
        "functools.cache",
        "functools.lru_cache",
        "lru_cache",
    ):
        return "a cache outside the arguments"
    return None


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_refused_constructs(path):
    found = [(node, fault_of(node)) for node in ast.walk(tree_of(path))]
    faults = [f"{relative(path)}:{node.lineno}: {fault}" for node, fault in found if fault]
    assert not faults


@pytest.mark.parametrize("package", PACKAGES, ids=relative)
def test_no_probing(package):
    """A value is what it was made as; a probe hides that a choice was never written down."""
    calls = [
        f"{relative(path)}:{node.lineno}"
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PROBES
    ]
    assert not calls


def test_processes_of_tests_are_started_by_what_ends_them():
    """`children.start` does; a browser and a Slurm serve many tests and end with their context."""
    owners = ("tests/browser.py", "tests/children.py", "tests/tiny_slurm.py")
    others = [
        path
        for path in FILES
        if relative(path).startswith("tests/") and relative(path) not in owners
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("subprocess.Popen", "Popen")
    ]
    assert not others, "use children.start"
