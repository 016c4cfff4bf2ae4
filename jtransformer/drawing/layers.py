"""The boxes of a layer, and layers that are alike drawn once.

Layers of a stack differ in what `Kind` holds and in nothing else.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from jtransformer import functional as F
from jtransformer.accounting.stacks import StackView, windows_of
from jtransformer.drawing.attention import cross_attention, self_attention
from jtransformer.drawing.diagram import Box, Layers, Node, Residual
from jtransformer.drawing.site import LAYER, Site
from jtransformer.drawing.words import (
    branch_scale_words,
    number,
    projection,
    typed,
)
from jtransformer.spec import DotProduct, Encoder, EncoderDecoder, FixedScale, ModelSpec


class Kind(NamedTuple):
    """In what layers of one stack may differ.

    Attributes:
        windowed: Whether it has the window of attention.
        heads_off: Heads that are switched off.
        has_norm_in: Whether its attention may have a norm before it.
    """

    windowed: bool
    heads_off: tuple[int, ...]
    has_norm_in: bool


def kinds_of(model: ModelSpec, stack: StackView) -> list[Kind]:
    """Returns the kind of each layer of a stack."""
    attention, off = model.attention, {}
    if isinstance(attention, DotProduct):
        for word in attention.heads_off.split(",") if attention.heads_off else ():
            layer, head = map(int, word.split("."))
            off.setdefault(layer, {})[head] = None
    return [
        Kind(window is not None, tuple(sorted(off.get(layer, ()))), model.first_norm or layer > 0)
        for layer, window in enumerate(windows_of(model, stack))
    ]


class Run(NamedTuple):
    """A pattern of layers that repeats: `repeat` times those from `first` on, `length` each."""

    first: int
    length: int
    repeat: int


def runs_of(kinds: Sequence[Kind], period: int) -> list[Run]:
    """Splits layers into as few runs as following them from the first to the last finds.

    Args:
        kinds: The kind of each layer.
        period: Layers of the pattern that may repeat, besides single ones.
    """
    runs, layer = [], 0
    while layer < len(kinds):
        single, pattern = (_repeats(kinds, layer, length) for length in (1, period))
        best = Run(layer, 1, single)
        if pattern > 1 and pattern * period > single:
            best = Run(layer, period, pattern)
        runs.append(best)
        layer += best.length * best.repeat
    return runs


def _repeats(kinds: Sequence[Kind], first: int, length: int) -> int:
    """Returns how often the layers from `first` on stand behind one another."""
    same = first + length
    while same < len(kinds) and kinds[same] == kinds[same - length]:
        same += 1
    return max((same - first) // length, 1)


def layers_of(site: Site) -> tuple[Layers, ...]:
    """Returns the layers of a stack, those that are alike once."""
    model, kinds = site.model, kinds_of(site.model, site.stack)
    pattern = model.attention.window_pattern if isinstance(model.attention, DotProduct) else ""

    def single(key: str, run: Run) -> Layers:
        inside = dataclasses.replace(site, key=f"{site.key}{key}/", **kinds[run.first]._asdict())
        return Layers(
            key=site.key + key,
            repeat=run.repeat,
            first=run.first,
            layers=run.repeat,
            nodes=_layer(inside),
        )

    found = []
    for index, run in enumerate(runs_of(kinds, pattern.count(",") + 1)):
        key = f"layers_{index}"
        if run.length == 1:
            found.append(single(key, run))
            continue
        within = runs_of(kinds[run.first : run.first + run.length], 1)
        nodes = tuple(
            single(f"{key}/layers_{nth}", Run(run.first + one.first, 1, one.repeat))
            for nth, one in enumerate(within)
        )
        found.append(
            Layers(
                key=site.key + key,
                repeat=run.repeat,
                first=run.first,
                layers=run.repeat * run.length,
                nodes=nodes,
            )
        )
    return tuple(found)


def deepnorm_of(model: ModelSpec, stack: StackView) -> F.DeepNormFactors | None:
    """Returns the factors of DeepNorm for a stack; None where the placement has none."""
    if not F.PLACEMENTS[model.norm_placement].deepnorm:
        return None
    if isinstance(model.stack, EncoderDecoder):
        both = F.deepnorm(encoder_layers=model.stack.encoder_layers, decoder_layers=model.layers)
        return both.decoder if stack.reads_memory else both.encoder
    if isinstance(model.stack, Encoder):
        return F.deepnorm(encoder_layers=model.layers).encoder
    return F.deepnorm(decoder_layers=model.layers).decoder


def _layer(site: Site) -> tuple[Node, ...]:
    model = site.model
    parts = {"attention": self_attention(site)}
    if site.stack.reads_memory:
        parts["cross_attention"] = cross_attention(site)
    parts["ffn"] = feed_forward(site)
    if model.sublayers != "sequential":
        return (_together(site, parts),)
    *_, last = parts
    return tuple(_alone(site, name, box, last=name == last) for name, box in parts.items())


def _alone(site: Site, name: str, box: Box, *, last: bool) -> Residual:
    """Returns a sublayer that follows the one before it."""
    norms = _norms(site, name)
    values = ((f"{name}/stream", site.stream), *((("stream", site.stream),) if last else ()))
    before = (norms["norm_in"],) if "norm_in" in norms else ()
    branch = (*before, box, *_finish(site, name, norms))
    return _summed(site, name, (branch,), values, norms.get("norm_out"))


def _together(site: Site, parts: dict[str, Box]) -> Residual:
    """Returns sublayers that read one stream."""
    first, *_ = parts
    norms = {name: _norms(site, name, shared=name != first) for name in parts}
    one_norm = site.model.sublayers == "parallel_one_norm"
    before = (norms[first]["norm_in"],) if one_norm else ()
    branches = []
    for name, box in parts.items():
        own = (norms[name]["norm_in"],) if "norm_in" in norms[name] and not one_norm else ()
        branches.append((*own, box, *_finish(site, name, norms[name])))
    values = (("stream", site.stream),)
    found = _summed(site, "", tuple(branches), values, norms[first].get("norm_out"))
    return dataclasses.replace(found, before=before)


def _norms(site: Site, name: str, *, shared: bool = False) -> dict[str, Box]:
    """Returns the norms of a sublayer by their slot.

    Args:
        site: Where they are.
        name: Of the sublayer.
        shared: Whether another sublayer has those that several share.
    """
    slots = site.model.norm_slots
    if name == "attention" and not site.has_norm_in:
        slots = tuple(slot for slot in slots if slot != "norm_in")
    if shared:
        theirs = ("norm_out",) + (
            ("norm_in",) if site.model.sublayers == "parallel_one_norm" else ()
        )
        slots = tuple(slot for slot in slots if slot not in theirs)
    return {slot: site.norm(f"{LAYER}{name}_{slot}") for slot in slots}


def _finish(site: Site, name: str, norms: dict[str, Box]) -> tuple[Box, ...]:
    """Returns what stands between a sublayer and the sum."""
    found = [norms["norm_branch"]] if "norm_branch" in norms else []
    if rate := site.model.dropout.residual:
        found.append(site.box(f"{name}_dropout", "dropout", f"Dropout {number(rate)}"))
    if words := branch_scale_words(site.model):
        learned = not isinstance(site.model.branch_scale, FixedScale)
        path = f"{name}_branch_scale"
        paths = (LAYER + path,) if learned else ()
        found.append(site.box(path, "scale", f"Branch {words}", paths=paths))
    return tuple(found)


def _summed(
    site: Site,
    name: str,
    branches: tuple[tuple[Box, ...], ...],
    values: tuple[tuple[str, tuple[str | int, ...]], ...],
    norm_out: Box | None,
) -> Residual:
    factors = deepnorm_of(site.model, site.stack)
    scale = site.model.stream_scale if factors is None else factors.stream_scale
    stream = "stream" if scale == 1 else f"{number(scale)} stream"
    words = f"{stream} + {'branches' if len(branches) > 1 else 'branch'}"
    if scale == 0:
        words = "branch alone: no residual path"
    key = f"{name}_sum".lstrip("_")
    if norm_out is None:
        return Residual(
            branches=branches,
            add=site.box(key, "sum", words, values=values),
            has_stream=scale != 0,
        )
    from_norm = site.box("", "norm", "", values=values).values
    return Residual(
        branches=branches,
        add=site.box(key, "sum", words),
        after=(dataclasses.replace(norm_out, values=from_norm),),
        has_stream=scale != 0,
    )


def feed_forward(site: Site) -> Box:
    """Returns the box of the feed-forward network, with what is inside."""
    model, D, Fw = site.model, site.model.width, site.model.ffn_width
    hidden = ("B", site.length, Fw)

    def matrix(name: str, widths: tuple[int, int], value: str) -> Box:
        shape = hidden if widths[1] == Fw and value != "output" else site.stream
        first, second = widths
        fact = projection((f"{first:,}", f"{second:,}"), bias=model.ffn_bias)
        paths = (f"{LAYER}ffn/{name}",)
        values = ((f"ffn/{value}", shape),)
        return site.box(f"ffn/{name}", "product", name, fact, values=values, paths=paths)

    # The function that computes it, by its name.
    words = F.FFN_KINDS[model.ffn].activation.__name__
    if model.gated:
        inputs = (matrix("gate", (D, Fw), "gate"), matrix("up", (D, Fw), "up"))
        title, output = f"{words} of gate, times up", "down"
    else:
        inputs = (matrix("in", (D, Fw), "hidden"),)
        title, output = words, "out"
    dropped = f"dropout {number(model.dropout.ffn)}" if model.dropout.ffn else ""
    active = site.box("ffn/activation", "ffn", title, dropped, values=(("ffn/activation", hidden),))
    kind = f"gated: {model.ffn}" if model.gated else f"dense: {model.ffn}"
    facts = typed((f"{kind}, {Fw:,} hidden units",), model.precision.ffn)
    frame = site.box("ffn", "ffn", "Feed-forward", *facts, values=(("ffn/input", site.stream),))
    whole = (active, matrix(output, (Fw, D), "output"))
    below = tuple((dataclasses.replace(box, span=len(inputs)),) for box in whole)
    return dataclasses.replace(frame, rows=(inputs, *below))
