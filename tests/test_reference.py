"""The reference is built by the command of README.md, without a word, and leaves nothing out."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys

import children
import pytest

ROOT = pathlib.Path(__file__).parents[1]
COMMAND = "python .ci/reference.py build/reference"
PACKAGES = sorted(
    f"jtransformer.{path.parent.name}" for path in (ROOT / "jtransformer").glob("*/__init__.py")
)
built = pytest.mark.slow  # 12 s on one core: all of the package is imported and rendered
PAGES = ["jtransformer", "jtransformer.shapes", "jtransformer.spec.presets", *PACKAGES]


def build(folder, root=ROOT):
    """Runs the command for another folder; returns its exit code and what it said."""
    _, program, _ = COMMAND.split()
    process = children.start(
        [sys.executable, program, str(folder)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    said, warned = process.communicate()
    return process.returncode, said, warned


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    code, said, warned = build(folder)
    assert (code, warned) == (0, "")
    assert said == f"{len(PAGES)} pages, from {folder / 'index.html'}\n"
    return folder


def page(folder, name):
    return (folder / f"{name.replace('.', '/')}.html").read_text(encoding="utf-8")


def exported(name):
    """Reads `__all__` without importing everything that there is."""
    path = ROOT / name.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    (value,) = re.findall(r"^__all__ = (\[.*?\])", file.read_text(encoding="utf-8"), re.M | re.S)
    return ast.literal_eval(value)


def sections(text):
    """Returns what stands below the heading of each name."""
    return dict(re.findall(r'<section id="(\w+)">(.*?)</section>', text, re.DOTALL))


def test_the_command_is_that_of_the_readme():
    assert COMMAND in (ROOT / "README.md").read_text(encoding="utf-8")


@built
def test_every_public_name_is_there_with_its_docstring(reference):
    for name in PAGES:
        found = sections(page(reference, name))
        for public in exported(name):
            if f"{name}.{public}" not in PAGES:
                assert re.search(r'class="docstring">\s*\S', found[public]), f"{name}.{public}"
    links = re.findall(r'href="jtransformer/([\w/]+)\.html"', page(reference, "jtransformer"))
    assert {name.partition(".")[2].replace(".", "/") for name in PAGES[1:]} <= set(links)


@built
def test_shapes_formulas_and_sources_can_be_read(reference):
    functions = sections(page(reference, "jtransformer.functional"))
    signature = re.sub(r"<[^>]*>", "", functions["rope"].split('class="docstring"')[0])
    assert "x: Float[Array, 'B T N H']" in signature and "theta: float = 10000.0" in signature
    assert (
        "<code>(scale_offset + scale) x / sqrt(mean(x^2) + epsilon)</code>" in functions["rms_norm"]
    )
    assert 'href="https://arxiv.org/abs/2104.09864"' in functions["rope"]
    for name in PAGES:
        text = page(reference, name)
        # A product or a subscript outside of backticks, taken for emphasis.
        assert not re.search(r"\w<(em|strong)>|</(em|strong)>\w", text), name
        assert "jaxlib" not in re.sub(r'class="docstring".*?</div>', "", text, flags=re.DOTALL)
        assert "Alias for field number" not in text, name


def made_up(folder, code):
    """Writes another package of this name, and the program beside it."""
    for name in ("jtransformer", ".ci"):
        (folder / name).mkdir()
    shutil.copy(ROOT / ".ci/reference.py", folder / ".ci")
    (folder / "jtransformer/__init__.py").write_text(f'"""A package."""\n\n{code}')


def test_a_name_without_a_docstring_ends_the_build(tmp_path):
    names = '__all__ = ["LEVEL", "said"]\nLEVEL = 1\n\n\n'
    made_up(tmp_path, names + 'def said():\n    """Says."""\n')
    code, said, warned = build(tmp_path / "out", tmp_path)
    assert (code, said) == (1, "") and not (tmp_path / "out").exists()
    assert warned.startswith("Without a docstring: jtransformer.LEVEL; write one")


def test_a_warning_ends_the_build(tmp_path):
    made_up(tmp_path, 'import warnings\n\nwarnings.warn("old", stacklevel=1)\n')
    code, said, warned = build(tmp_path / "out", tmp_path)
    assert (code, said) == (1, "") and not (tmp_path / "out").exists()
    assert warned.endswith("UserWarning: old\n")
