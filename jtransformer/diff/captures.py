"""Where the places of a model lie in a module of someone else's, as the names of tensors tell.

The rules of a family say which of its modules holds which of our parameters. From that follows what
goes in and comes out where: what enters the module of the queries is the input of attention, what
leaves it are the queries, and so on. A family that can be read has its places named by that alone.
"""

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from jtransformer.diff.places import place_of
from jtransformer.interop.layouts import Concatenated, Flat, Grouped
from jtransformer.interop.rules import Rule
from jtransformer.spec import ModelSpec

ACTIVATIONS = ("act_fn", "act", "activation_fn")
"""Names that `transformers` gives to activations beside the matrix of a gate; a block has one."""
Shapes = dict[str, tuple[int, ...]]


class Capture(NamedTuple):
    """A place and where its value is found.

    Attributes:
        place: Its name.
        module: Their module.
        end: Whether it is what enters the module or what leaves it.
        channels: Which channels of the last axis it is, in the shape that they have here; None is
            all, as they are.
        has_gradient: Whether nothing else reads that value, so that its gradient is the place's.
    """

    place: str
    module: str
    end: Literal["input", "output"]
    channels: np.ndarray | None = None
    has_gradient: bool = True


def captures(spec: ModelSpec, rules: Iterable[Rule], shapes: Shapes) -> list[Capture]:
    """Returns where the places of a model lie.

    Args:
        spec: The model.
        rules: Which of their tensors hold which of our parameters.
        shapes: Shapes of our parameters, by path.
    """
    found: list[Capture] = []
    layers: dict[str, list[str]] = {}
    for rule in rules:
        module, _, leaf = rule.theirs.rpartition(".")
        place = place_of(rule.ours[0])
        if place.layer is not None:
            stack = f"{place.stack}/" if place.stack else ""
            layers.setdefault(f"{stack}layer_{place.layer}", []).append(module)
        if leaf == "weight":
            found += _of_rule(spec, rule, module, shapes)
    for name, modules in layers.items():
        module = common(modules)
        found.append(Capture(f"{name}/stream", module, "output"))
        if name.endswith("layer_0"):
            stack = name.removesuffix("layer_0")
            found.append(Capture(f"{stack}embedded", module, "input"))
    return [one for one in found if one.module]


def common(modules: list[str]) -> str:
    """Returns the module that holds all of some modules."""
    paths = [name.split(".") for name in modules]
    shared = []
    for words in zip(*paths, strict=False):
        if len({*words}) > 1:
            break
        shared.append(words[0])
    # Modules of one name alone are below the one that is looked for.
    while shared and not shared[-1].isdecimal():
        shared.pop()
    return ".".join(shared)


def _of_rule(spec: ModelSpec, rule: Rule, module: str, shapes: Shapes) -> list[Capture]:
    """Returns the places before and behind one of their modules."""
    owners = [path.rpartition("/")[0] for path in rule.ours]
    own = owners[0].rpartition("/")[2]
    if rule.ours[0].endswith("/kernel"):
        return _of_matrix(spec, rule, module, owners, shapes)
    if not rule.ours[0].endswith("/scale"):
        return []
    if own in ("query_norm", "key_norm"):
        heads = owners[0].removesuffix(own)
        name = own.removesuffix("_norm")
        return [Capture(f"{heads}{name}_normed", module, "output")]
    if own == "final_norm":
        return [Capture(owners[0], module, "output")]
    layer = owners[0].removesuffix(own)
    for slot in ("norm_in", "norm_out"):
        sublayer = own.removesuffix(f"_{slot}")
        if sublayer == own or sublayer not in ("attention", "cross_attention", "ffn"):
            continue
        if slot == "norm_out":
            return [Capture(f"{layer}{sublayer}/stream", module, "output")]
        before = {"ffn": "attention", "cross_attention": "attention"}.get(sublayer)
        if f"{layer}cross_attention/query/kernel" in shapes and sublayer == "ffn":
            before = "cross_attention"
        if before is not None and spec.sublayers == "sequential":
            return [Capture(f"{layer}{before}/stream", module, "input", has_gradient=False)]
    return []


def _of_matrix(
    spec: ModelSpec, rule: Rule, module: str, owners: list[str], shapes: Shapes
) -> list[Capture]:
    places = {
        "query": ("query", "input"), "key": ("key", None), "value": ("value", None),
        "out": ("output", None), "in": ("hidden", "input"), "gate": ("gate", "input"),
        "up": ("up", None), "down": ("output", None),
    }  # fmt: skip
    channels = _channels(rule, shapes)
    found: list[Capture] = []
    for owner, own_channels in zip(owners, channels, strict=True):
        sublayer, _, name = owner.rpartition("/")
        local = place_of(sublayer).local
        if local not in ("attention", "cross_attention", "ffn") or name not in places:
            continue
        leaving, entering = places[name]
        # Where a norm stands before a sublayer, it alone reads what that returns.
        alone = f"{sublayer}_norm_in/scale" in shapes and spec.sublayers != "parallel_one_norm"
        is_whole = len(owners) == 1 and own_channels.ndim == 1
        found.append(
            Capture(f"{sublayer}/{leaving}", module, "output", None if is_whole else own_channels)
        )
        if entering is not None:
            found.append(Capture(f"{sublayer}/{entering}", module, "input", None, alone))
        activation = f"{sublayer}/activation"
        if local == "ffn" and name == "out":
            found.append(Capture(activation, module, "input", has_gradient=False))
        if name == "gate":
            # It is multiplied before a matrix reads it, and comes out of a module of its own.
            beside = module.rpartition(".")[0]
            found += [
                Capture(activation, f"{beside}.{own}", "output", has_gradient=False)
                for own in ACTIVATIONS
            ]
    return found


def _channels(rule: Rule, shapes: Shapes) -> list[np.ndarray]:
    """Returns which of a module's outputs belong to each of our matrices, in our shape."""
    inputs = [2 if path.endswith("/out/kernel") and len(shapes[path]) == 3 else 1
              for path in rule.ours]  # fmt: skip
    outputs = [shapes[path][count:] for path, count in zip(rule.ours, inputs, strict=True)]
    layout = Flat()
    if isinstance(rule.layout, Concatenated):
        layout = Concatenated(Flat())
    elif isinstance(rule.layout, Grouped):
        layout = Grouped(Flat())
    index = np.arange(sum(math.prod(shape) for shape in outputs))
    return layout.read(index, outputs)
