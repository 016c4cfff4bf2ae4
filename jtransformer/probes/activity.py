"""What a model does on a batch: its stream, attention weights, hidden units and scores."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jtransformer import functional as F
from jtransformer.functional import activations
from jtransformer.modules.apart import LayerCall, looped, observe
from jtransformer.modules.casting import entering, rounded
from jtransformer.modules.initial import LAYER
from jtransformer.modules.parts import Part
from jtransformer.probes.sites import (
    Sample,
    attentions_of,
    heads_of,
    layers_of,
    prefix_of,
    stacks_of,
    weighted_attentions,
)
from jtransformer.probes.statistics import (
    Entropy,
    LogitScale,
    SilentUnits,
    StreamSize,
    attention_entropy,
    keys_seen,
    logit_scale,
    saturated_fraction,
    silent_units,
    stream_size,
)
from jtransformer.spec import ModelSpec

CUT_OFF = (activations.relu, activations.relu_squared)
"""Activations that are 0 on a half-line."""


class StackActivity(NamedTuple):
    """What one stack does, by layer.

    Attributes:
        positions: How many positions of the batch count.
        stream: The residual stream: entry 0 before layer 0, entry l + 1 after layer l.
        entropy: Of the attention weights `L N`, by sublayer; those without weights are missing.
        silent: Of hidden units `L`; None where the activation is not 0 on a half-line.
        saturated: Share of saturated gates; None where there is no gate.
    """

    positions: Int[Array, ""]
    stream: StreamSize
    entropy: dict[str, Entropy]
    silent: SilentUnits | None
    saturated: Float[Array, " L"] | None


class Activity(NamedTuple):
    """What a model does on a batch.

    Attributes:
        stacks: By the names of the stacks.
        logits: The scores of the head; None where it has none.
        row: The row of the batch that the maps are of, `Sample.fullest`.
        maps: Attention weights of one row, by the names of heads.
    """

    stacks: dict[str, StackActivity]
    logits: LogitScale | None
    row: Int[Array, ""]
    maps: dict[str, Float[Array, "T S"]]


def activity(
    model: ModelSpec, parameters: Any, sample: Sample, *, maps: Sequence[str] = ()
) -> Activity:
    """Measures what a model does on a batch, without dropout.

    Cost: one forward pass. Called step by step it holds the attention weights of all layers,
    `L B N T S`; under `jit` the compiler need not.

    Args:
        model: The model.
        parameters: Its parameters.
        sample: What it is given.
        maps: Heads whose weights are returned, out of `head_names`.

    Raises:
        ValueError: If the model has no weights of such a head.
    """
    check_maps(model, maps)
    model, parameters = looped(model, parameters)
    names = [name for part in stacks_of(model).values() for name in _needed(model, part)]
    output, calls = observe(model, parameters, sample.tokens, sample.inputs, names)
    assert output.intermediates is not None
    found = {}
    for stack, part in stacks_of(model).items():
        prefix = prefix_of(part)
        own = {
            name.removeprefix(prefix): value
            for name, value in output.intermediates.items()
            if name.startswith(prefix)
        }
        of_part = [call for call in calls if call.part == part]
        found[stack] = _of_stack(model, of_part, layers_of(part, parameters), own, sample)
    row, chosen = sample.fullest, {}
    for name in maps:
        sublayer, _, head = name.rpartition("/head_")
        weights_BNTS = output.intermediates[f"{sublayer}/weights"]
        chosen[name] = weights_BNTS[row, int(head)]
    logits = None
    if output.logits is not None:
        counted = sample.weights > 0
        if output.logits.ndim == 2:
            counted = jnp.any(counted, axis=1)
        logits = logit_scale(output.logits, counted)
    return Activity(found, logits, row, chosen)


def check_maps(model: ModelSpec, maps: Sequence[str]) -> None:
    """Refuses maps of heads that a model does not have.

    Raises:
        ValueError: For the first one.
    """
    known = tuple(heads_of(model))
    for name in maps:
        if name not in known:
            hint = (
                f"its heads are {known[0]} … {known[-1]}" if known else "none of its heads has any"
            )
            raise ValueError(f"maps: {name!r} is no head with weights of the model; {hint}.")


def _needed(model: ModelSpec, part: Part) -> list[str]:
    """Returns the intermediates of a stack that are measured."""
    inside = ["stream", *(f"{name}/weights" for name in weighted_attentions(model, part))]
    if F.FFN_KINDS[model.ffn].activation in CUT_OFF:
        inside.append("ffn/activation")
    if model.gated:
        inside.append("ffn/input")
    prefix = prefix_of(part)
    layers = range(part.layers)
    return [
        f"{prefix}embedded",
        *(f"{prefix}{LAYER}{layer}/{name}" for layer in layers for name in inside),
    ]


def _of_stack(
    model: ModelSpec,
    calls: Sequence[LayerCall],
    layers: Sequence[Any],
    kept: dict[str, Array],
    sample: Sample,
) -> StackActivity:
    part = calls[0].part
    counted = sample.counted(part)
    B, T = counted.shape

    def values(name: str) -> list[Array]:
        return [kept[f"{LAYER}{call.layer}/{name}"] for call in calls]

    entropy = {}
    for name in attentions_of(part):
        if f"{LAYER}0/{name}/weights" not in kept:
            continue
        entropy[name] = _stacked(
            attention_entropy(
                weights,
                counted,
                keys_seen(call.mask(model, name), (B, T, weights.shape[-1])),
            )
            for call, weights in zip(calls, values(f"{name}/weights"), strict=True)
        )
    kind = F.FFN_KINDS[model.ffn]
    silent = saturated = None
    if kind.activation in CUT_OFF:
        silent = _stacked(silent_units(x, counted) for x in values("ffn/activation"))
    if model.gated:
        given = [entering(model, "ffn", x) for x in values("ffn/input")]
        own = jax.tree.map(
            lambda x: rounded(x, model.precision.ffn), [layer["ffn"]["gate"] for layer in layers]
        )
        gates = [
            F.linear(x, gate["kernel"], gate.get("bias"))
            for x, gate in zip(given, own, strict=True)
        ]
        saturated = jnp.stack(
            [saturated_fraction(x, counted, activation=kind.activation) for x in gates]
        )
    return StackActivity(
        positions=jnp.sum(counted),
        stream=_stacked(stream_size(x, counted) for x in (kept["embedded"], *values("stream"))),
        entropy=entropy,
        silent=silent,
        saturated=saturated,
    )


def _stacked(found: Any) -> Any:
    """Stacks what was found in each layer."""
    return jax.tree.map(lambda *layers: jnp.stack(layers), *found)
