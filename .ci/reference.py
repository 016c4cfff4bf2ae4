"""Builds the reference of every public name from the docstrings, as pages of HTML.

    pip install -e ".[docs]" && python .ci/reference.py build/reference

A page holds what is in the `__all__` of one package. pdoc does the work; here is what it does not
see, since packages re-export: the docstrings of constants, which stand in the module that defines
them, and what the module of a function says of conventions and sources. A public name without a
docstring, and any warning, ends the build.
"""

import argparse
import ast
import functools
import importlib
import inspect
import pathlib
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType

import pdoc.doc
import pdoc.render

OF_NAMED_TUPLES = ("Alias for field number", "Create new instance of")
"""What Python says of the parts of every NamedTuple, whose fields its docstring explains."""


def public_modules() -> list[ModuleType]:
    """Returns every module with public names: the packages, and modules that these export."""
    found = [importlib.import_module("jtransformer")]
    for entry in pkgutil.iter_modules(found[0].__path__, "jtransformer."):
        # `python -m jtransformer` runs what is left out here.
        if not entry.name.endswith("__main__"):
            found.append(importlib.import_module(entry.name))
    exported = [getattr(module, name) for module in found for name in module.__all__]
    return found + [value for value in exported if inspect.ismodule(value)]


@functools.cache
def parsed(module: str) -> ast.Module:
    """Returns the syntax of a module."""
    return ast.parse(inspect.getsource(importlib.import_module(module)))


def defining(module: str, name: str) -> str:
    """Returns the module in which a name is not imported, but made."""
    for node in parsed(module).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return defining(node.module, alias.name)
    return module


def docstring_of_constant(module: str, name: str) -> str:
    """Returns the string that stands below an assignment; "" if there is none."""
    body = parsed(module).body
    for node, below in zip(body, body[1:], strict=False):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                return inspect.cleandoc(str(below.value.value))
    return ""


def explanation(module: str) -> str:
    """Returns what a module says of conventions and sources, folded up."""
    said = inspect.getdoc(importlib.import_module(module)) or ""
    opening = f'<details markdown="1"><summary>{module}</summary>'
    return f"{opening}\n\n{said}\n\n</details>"


def described(module: ModuleType) -> pdoc.doc.Module:
    """Returns what is known of a module and its public names."""
    page = pdoc.doc.Module(module)
    for name, member in page.members.items():
        home = defining(module.__name__, name)
        if isinstance(member, pdoc.doc.Variable):
            member.docstring = member.docstring or docstring_of_constant(home, name)
        elif isinstance(member, pdoc.doc.Function) and home != module.__name__:
            member.docstring = f"{member.docstring}\n\n{explanation(home)}"
        elif isinstance(member, pdoc.doc.Class):
            for part in member.members.values():
                if part.docstring.startswith(OF_NAMED_TUPLES):
                    part.docstring = ""
    return page


def linked(pages: list[pdoc.doc.Module]) -> dict[str, pdoc.doc.Module]:
    """Returns the pages by name; the first of them lists all, and each those below it."""
    modules = {page.fullname: page for page in pages}
    for page in pages:
        page.submodules = [
            other for other in pages if other.fullname.rpartition(".")[0] == page.fullname
        ]
    lines = [f"* `{page.fullname}`: {page.docstring.splitlines()[0]}" for page in pages[1:]]
    pages[0].docstring += "\n\n" + "\n".join(lines)
    return modules


def readable(text: str) -> str:
    """Shortens shapes in signatures to what the source says: `Float[Array, "B T D"]`."""
    dot = r'(?:</span><span class="o">\.</span><span class="n">|\.)'
    text = re.sub(rf"jaxtyping{dot}(?=[A-Z])", "", text)
    # Where JAX's class is defined depends on its version.
    return re.sub(rf"(?:(?:jax|jaxlib|_jax){dot})+(?=Array\b)", "", text)


def undocumented(pages: list[pdoc.doc.Module]) -> Iterator[str]:
    """Yields the public names that say nothing."""
    for page in pages:
        for member in page.members.values():
            if not member.docstring:
                yield member.fullname


def build(folder: pathlib.Path) -> int:
    """Writes the pages.

    Returns:
        0, or 1 where something says nothing about itself.
    """
    pages = [described(module) for module in public_modules()]
    missing = sorted(undocumented(pages))
    if missing:
        print(  # noqa: T201
            f"Without a docstring: {', '.join(missing)}; write one, of a constant below its "
            "assignment.",
            file=sys.stderr,
        )
        return 1
    pdoc.render.configure(docformat="google", show_source=False)
    modules = linked(pages)
    texts = {
        f"{name.replace('.', '/')}.html": readable(pdoc.render.html_module(page, modules))
        for name, page in modules.items()
    }
    texts["index.html"] = pdoc.render.html_index(modules)
    texts["search.js"] = pdoc.render.search_index(modules)
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    print(f"{len(pages)} pages, from {folder / 'index.html'}")  # noqa: T201
    return 0


if __name__ == "__main__":
    warnings.simplefilter("error")
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("folder", type=pathlib.Path, help="where the pages are written")
    sys.exit(build(reader.parse_args().folder))
