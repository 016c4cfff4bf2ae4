"""What is held of every preset in tests/golden/presets; run this file to write all of them.

A file has the resolved spec, and each parameter with its shape and how it starts. What every
layer of a stack has alike stands once, as layer_{0..5}/….
"""

import dataclasses
import json
import pathlib

from jtransformer.accounting import leaves, parameters
from jtransformer.accounting.leaves import ANY_LAYER
from jtransformer.modules import initialiser
from jtransformer.spec import RunSpec, to_tree
from jtransformer.spec.presets import PRESETS

FOLDER = pathlib.Path(__file__).parent / "golden/presets"


def model_of(spec):
    return spec.model if isinstance(spec, RunSpec) else spec


def content(name):
    """Returns what the file of a preset holds."""
    spec = PRESETS[name]()
    model = dataclasses.replace(model_of(spec), scan_layers=False)
    found = {}
    for leaf in leaves(model):
        path = leaf.path.replace(ANY_LAYER, f"layer_{leaf.first}").split("/")
        start = str(initialiser(model, tuple(path), leaf.shape))
        last = leaf.first + leaf.copies - 1
        shown = leaf.path.replace(ANY_LAYER, f"layer_{{{leaf.first}..{last}}}")
        found[shown] = [list(leaf.shape), start]
    return {"spec": to_tree(spec), "total": parameters(model).total, "parameters": found}


def text(name):
    """Writes it with a line for each setting and each parameter."""
    held = content(name)
    rows = [f"  {json.dumps(path)}: {json.dumps(row)}" for path, row in held["parameters"].items()]
    spec = json.dumps(held["spec"], indent=1).replace("\n", "\n ")
    listed = ",\n".join(rows)
    return (
        f'{{\n "spec": {spec},\n "total": {held["total"]},\n "parameters": {{\n{listed}\n }}\n}}\n'
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for preset in PRESETS:
        (FOLDER / f"{preset}.json").write_text(text(preset), encoding="utf-8")
