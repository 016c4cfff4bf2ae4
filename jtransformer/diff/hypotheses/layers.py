"""Hypotheses about norms, wiring and the feed-forward network."""

import dataclasses
from typing import Any

from jtransformer.diff.hypotheses.kinds import (
    Found,
    Hypothesis,
    at_top,
    edited,
    first_normed,
    modules_in,
    of_changes,
    within,
)
from jtransformer.diff.ours import Ours
from jtransformer.functional import FFN_KINDS
from jtransformer.spec import LayerNorm, RMSNorm, ScaleNorm
from jtransformer.spec.norms import NORM_SLOTS

EPSILONS = (1e-12, 1e-8, 1e-6, 1e-5, 1e-3)
SUBLAYERS = ("attention", "cross_attention", "ffn")
NORMED = "attention/input"
TANH = ("gelu_tanh", "geglu_tanh")


def activation(ours: Ours) -> Found:
    """Yields the other form of GELU first, then every other activation."""
    own = FFN_KINDS[ours.spec.ffn]
    others = [name for name, kind in FFN_KINDS.items() if kind.gated == own.gated]
    twins = {"gelu": "gelu_tanh", "geglu": "geglu_tanh"}
    twins |= {tanh: exact for exact, tanh in twins.items()}
    for name in others:
        is_twin = twins.get(ours.spec.ffn) == name
        kind = "GELU tanh/exact" if is_twin else "activation"
        words = f"with the feed-forward network {name}"
        if is_twin:
            words = f"with {'the tanh form of GELU' if name in TANH else 'exact GELU'}"
        fields = {words: {"ffn": name}}
        yield from of_changes(kind, "ffn/activation", ours, fields)


def gate_and_up(ours: Ours, layer: int | None = None) -> Found:
    """Yields the gate in the place of what it multiplies, and the other way round."""
    if ours.spec.gated:
        where = "" if layer is None else f" in layer {layer} alone"
        changed = within(
            ours, "ffn", lambda tree: tree | {"gate": tree["up"], "up": tree["gate"]}, layer
        )
        words = f"with gate and up swapped{where}"
        yield Hypothesis("gate and up swapped", words, "ffn/gate", changed, layer)


def norm_epsilon(ours: Ours) -> Found:
    """Yields the values of epsilon that published models have."""
    norm = ours.spec.norm
    if isinstance(norm, LayerNorm | RMSNorm | ScaleNorm):
        fields = {
            f"with a norm epsilon of {value:g}": {"norm": dataclasses.replace(norm, epsilon=value)}
            for value in EPSILONS
        }
        yield from of_changes("norm epsilon", first_normed(ours), ours, fields)


def norm_kind(ours: Ours) -> Found:
    """Yields norms that take no mean away, or one; and factors that are stored less one."""
    norm, kind, starts = ours.spec.norm, "norm kind", first_normed(ours)
    if isinstance(norm, RMSNorm):
        offset = dataclasses.replace(norm, unit_offset=not norm.unit_offset)
        word = "plus one" if offset.unit_offset else "as they are stored"
        fields: dict[str, dict[str, Any]] = {f"with the factors of norms {word}": {"norm": offset}}
        if not norm.unit_offset:
            other = LayerNorm(epsilon=norm.epsilon, bias=False)
            fields["with layer norms, which take the mean away"] = {"norm": other}
        yield from of_changes(kind, starts, ours, fields)
    elif isinstance(norm, LayerNorm):
        changed = ours.respecified(norm=RMSNorm(epsilon=norm.epsilon))
        if changed is not None:
            words = "with RMS norms, which take no mean away"
            yield Hypothesis(kind, words, starts, _without_norm_biases(changed))


def _without_norm_biases(ours: Ours) -> Ours:
    def without(tree: dict[str, Any]) -> dict[str, Any]:
        return {
            name: without(branch) if isinstance(branch, dict) else branch
            for name, branch in tree.items()
            # Norms alone have scales.
            if not (name == "bias" and "scale" in tree)
        }

    return ours.but(variables={"params": without(ours.variables["params"])})


def norm_placement(ours: Ours) -> Found:
    """Yields the norms in other places, and a final norm that is left out."""
    spec, kind = ours.spec, "norm placement"
    own = NORM_SLOTS[spec.norm_placement]
    words = {
        "pre": "with norms before the sublayers (pre)",
        "post": "with norms behind the sums (post)",
        "branch": "with norms behind the sublayers (branch)",
        "none": "without norms in the layers",
    }
    for placement, sentence in words.items():
        slots = NORM_SLOTS[placement]
        if len(own) != 1 or slots == own:
            continue
        changed = ours.respecified(norm_placement=placement, final_norm=spec.has_final_norm)
        if changed is not None:
            moved = edited(changed, lambda tree, slots=slots: _moved(tree, own[0], slots))
            starts = NORMED if "norm_in" in {*own, *slots} else first_normed(ours)
            yield Hypothesis(kind, sentence, starts, moved)
    if spec.norm_placement == "sandwich":
        for placement, dropped in (("pre", "norm_branch"), ("branch", "norm_in")):
            changed = ours.respecified(norm_placement=placement, final_norm=spec.has_final_norm)
            if changed is not None:
                moved = edited(changed, lambda tree, dropped=dropped: _moved(tree, dropped, ()))
                starts = NORMED if dropped == "norm_in" else "attention/stream"
                yield Hypothesis(kind, f"{words[placement]} alone", starts, moved)
    if spec.has_final_norm:
        changed = ours.respecified(final_norm=False)
        if changed is not None:
            without = _without_final_norms(changed)
            yield Hypothesis(kind, "without the final norm", "final_norm", without)


def _moved(layer: dict[str, Any], old: str, slots: tuple[str, ...]) -> dict[str, Any]:
    """Gives the norms of a layer other names, or takes them away."""
    found = dict(layer)
    for sublayer in SUBLAYERS:
        norm = found.pop(f"{sublayer}_{old}", None)
        if norm is not None:
            found |= {f"{sublayer}_{slot}": norm for slot in slots}
    return found


def _without_final_norms(ours: Ours) -> Ours:
    tree = dict(ours.variables["params"])
    for name in ("encoder", "decoder"):
        if name in tree:
            tree[name] = {k: v for k, v in tree[name].items() if k != "final_norm"}
    tree.pop("final_norm", None)
    return ours.but(variables={"params": tree})


def parallel_norms(ours: Ours) -> Found:
    """Yields one norm or two in a block whose sublayers read one stream, or no such block."""
    spec, kind = ours.spec, "one or two norms in a parallel block"
    own = spec.sublayers
    words = {
        "parallel": "with a parallel block of two norms",
        "parallel_one_norm": "with a parallel block whose sublayers share a norm",
        "sequential": "with sublayers one after the other",
    }
    for other, sentence in words.items():
        if other == own:
            continue
        changed = ours.respecified(sublayers=other)
        if changed is None:
            continue
        if other == "parallel_one_norm":
            changed = edited(changed, lambda tree: _only(tree, "ffn_norm_in"))
        elif own == "parallel_one_norm":
            changed = edited(
                changed, lambda tree: tree | {"ffn_norm_in": tree["attention_norm_in"]}
            )
        yield Hypothesis(kind, sentence, "ffn/input", changed)


def _only(layer: dict[str, Any], dropped: str) -> dict[str, Any]:
    return {name: branch for name, branch in layer.items() if name != dropped}


def transposed(ours: Ours, layer: int | None = None) -> Found:
    """Yields square matrices that are read with inputs and outputs swapped."""
    where = "" if layer is None else f" in layer {layer} alone"
    places = {
        ("attention", "query"): "attention/query",
        ("attention", "key"): "attention/key",
        ("attention", "value"): "attention/value",
        ("attention", "out"): "attention/output",
        ("cross_attention", "query"): "cross_attention/query",
        ("cross_attention", "key"): "cross_attention/key",
        ("cross_attention", "value"): "cross_attention/value",
        ("cross_attention", "out"): "cross_attention/output",
        ("ffn", "in"): "ffn/hidden",
        ("ffn", "gate"): "ffn/gate",
        ("ffn", "up"): "ffn/up",
        ("ffn", "out"): "ffn/output",
        ("ffn", "down"): "ffn/output",
    }
    square = [
        (module, name)
        for module, name in places
        if any(_is_square(tree[name]["kernel"], name) for tree in modules_in(ours, module)[:1]
               if "kernel" in tree.get(name, {}))
    ]  # fmt: skip
    groups: list[tuple[tuple[tuple[str, str], ...], str]] = [
        ((one,), f"the matrix {'/'.join(one)}") for one in square
    ]
    if len(square) > 1:
        groups.append((tuple(square), "all square matrices of the layers"))
    for group, named in groups:
        changed = ours
        for module, name in group:
            changed = within(
                changed, module, lambda tree, name=name: tree | {name: _flipped(tree, name)}, layer
            )
        words = f"with {named} transposed{where}"
        yield Hypothesis("transposed square matrix", words, places[group[0]], changed, layer)
    if layer is None:
        yield from _transposed_at_the_end(ours)


def _transposed_at_the_end(ours: Ours) -> Found:
    """Yields the square matrices outside of the layers, transposed."""
    for name, starts in (("head_transform", "logits"), ("pooler", "logits")):
        tree = ours.variables["params"].get(name)
        if tree is not None and _is_square(tree["kernel"], name):
            changed = at_top(ours, **{name: _flipped({name: tree}, name)})
            words = f"with the matrix {name} transposed"
            yield Hypothesis("transposed square matrix", words, starts, changed)


def _inputs(name: str, ndim: int) -> int:
    """Returns how many axes of a kernel, from the first on, are inputs."""
    return 2 if name == "out" and ndim == 3 else 1


def _flat(kernel: Any, name: str) -> Any:
    rows = 1
    for size in kernel.shape[: _inputs(name, kernel.ndim)]:
        rows *= size
    return kernel.reshape(rows, -1)


def _is_square(kernel: Any, name: str) -> bool:
    rows, columns = _flat(kernel, name).shape
    return rows == columns


def _flipped(tree: dict[str, Any], name: str) -> dict[str, Any]:
    module = tree[name]
    kernel = module["kernel"]
    return {**module, "kernel": _flat(kernel, name).T.reshape(kernel.shape)}
