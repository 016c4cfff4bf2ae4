"""The record of a probe: plain JSON, in which what is absent has a reason."""

import math
from typing import Any

import jax
import numpy as np

from jtransformer import functional as F
from jtransformer.modules.intermediates import why_no_weights
from jtransformer.modules.parts import Part
from jtransformer.probes.activity import CUT_OFF, StackActivity
from jtransformer.probes.jacobians import levels_of
from jtransformer.probes.measure import Measured
from jtransformer.probes.sites import attentions_of, heads_of, stacks_of
from jtransformer.probes.sizes import ByLayer, groups_of
from jtransformer.spec import ModelSpec

CAVEAT = (
    "None of this is causal attribution: an attention map shows where a head reads, other heads "
    "may make up for one that is switched off, and gradients and Jacobians hold for very small "
    "changes at these parameters and this batch."
)
"""What stands beside every picture of a probe."""
MAP_DIGITS = 5
"""Decimal places of attention weights in a record."""


def to_record(model: ModelSpec, measured: Measured) -> dict[str, Any]:
    """Returns what was measured as plain JSON, by stack and layer.

    Numbers are those of the arrays, in their shortest decimal form; attention weights are
    rounded to 5 places. What is absent or not finite is None; `reasons` says why a value is
    absent, by its path.

    Args:
        model: The model.
        measured: What `measure` returned for it.
    """
    measured = jax.device_get(measured)
    activity = measured.activity
    return {
        "loss": _plain(measured.loss),
        "row": int(activity.row),
        "logits": None if activity.logits is None else _fields(activity.logits),
        "outside": {
            name: {
                "gradient_norm": _plain(value),
                "update_ratio": None
                if measured.updates is None
                else _plain(measured.updates.outside[name]),
            }
            for name, value in measured.gradients.outside.items()
        },
        "stacks": {
            stack: _of_stack(model, measured, stack, activity.stacks[stack])
            for stack in stacks_of(model)
        },
        "maps": [
            {
                **head._asdict(),
                "weights": _plain(np.round(activity.maps[name].astype(np.float64), MAP_DIGITS)),
            }
            for name, head in heads_of(model).items()
            if name in activity.maps
        ],
        "reasons": _reasons(model, measured),
        "caveat": CAVEAT,
    }


def _of_stack(
    model: ModelSpec, measured: Measured, stack: str, found: StackActivity
) -> dict[str, Any]:
    part = stacks_of(model)[stack]
    attentions = attentions_of(part)
    entropy, silent = found.entropy, found.silent
    jacobians, ablation = measured.jacobians, measured.ablation
    return {
        "positions": int(found.positions),
        "gradient_norm": _groups(measured.gradients, part, stack),
        "update_ratio": None
        if measured.updates is None
        else _groups(measured.updates, part, stack),
        "stream": _fields(found.stream),
        "entropy": {a: _plain(entropy[a].nats) if a in entropy else None for a in attentions},
        "relative_entropy": {
            a: _plain(entropy[a].relative) if a in entropy else None for a in attentions
        },
        "ffn": {
            "zero_fraction": None if silent is None else _plain(silent.zero_fraction),
            "dead_fraction": None if silent is None else _plain(silent.dead_fraction),
            "saturated_fraction": None if found.saturated is None else _plain(found.saturated),
        },
        "spectral_norm": None
        if jacobians is None
        else {
            level: {name: _fields(jacobians[stack][level][name]) for name in names}
            for level, names in levels_of(model, part).items()
        },
        "ablation": None
        if ablation is None
        else {name: _plain(ablation[stack][name]) for name in attentions},
    }


def _groups(found: ByLayer, part: Part, stack: str) -> dict[str, Any]:
    # `jit` sorts the names of what it returns, so that here they are put in order.
    return {group: _plain(found.stacks[stack][group]) for group in groups_of(part)}


def _reasons(model: ModelSpec, measured: Measured) -> dict[str, str]:
    """Says why values are absent, by their paths below `stacks`, or from the top."""
    reasons: dict[str, str] = {}
    if measured.activity.logits is None:
        reasons["logits"] = f"head.kind {model.head.kind!r} has no logits"
    if measured.updates is None:
        reasons["update_ratio"] = "no update was given"
    if measured.jacobians is None:
        reasons["spectral_norm"] = "Jacobians were not asked for"
    if measured.ablation is None:
        reasons["ablation"] = "the ablation of heads was not asked for"
    if why_no_weights(model):
        reasons |= dict.fromkeys(
            ("entropy/attention", "relative_entropy/attention"), why_no_weights(model)
        )
    if F.FFN_KINDS[model.ffn].activation not in CUT_OFF:
        why = f"ffn {model.ffn!r} is nowhere 0 but at points"
        reasons |= dict.fromkeys(("ffn/zero_fraction", "ffn/dead_fraction"), why)
    if not model.gated:
        reasons["ffn/saturated_fraction"] = f"ffn {model.ffn!r} has no gate"
    return reasons


def _fields(found: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in found._asdict().items()}


def _plain(values: Any) -> Any:
    """Returns arrays as lists, in which what is not finite is None."""
    values = np.asarray(values)
    if values.ndim:
        return [_plain(value) for value in values]
    if np.issubdtype(values.dtype, np.integer):
        return int(values)
    number = float(values)
    # The text of a float32 is its shortest; as a float64 it would drag digits along.
    return float(str(values[()])) if math.isfinite(number) else None
