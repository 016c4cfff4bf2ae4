"""How the choices of a spec are called in a diagram."""

import dataclasses

from jtransformer.drawing.diagram import Layers, Shape, parameters_within
from jtransformer.spec import (
    Alibi,
    FixedScale,
    LayerScale,
    Learned,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    NoPosition,
    NoScaling,
    NTKScaling,
    RelativeBias,
    ReZero,
    Rope,
    Shaw,
    Sinusoidal,
    T5Bias,
    YarnScaling,
)


def number(value: float) -> str:
    """Writes a number as short as it can be read, whole ones with separators."""
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value):,}"
    return f"{value:.6g}".replace("e-0", "e-")


def axes(shape: Shape) -> str:
    """Writes the axes of a value."""
    return " ".join(axis if isinstance(axis, str) else f"{axis:,}" for axis in shape)


def count(value: int, thing: str) -> str:
    """Writes how many there are of a thing whose plural ends in s."""
    return f"{value:,} {thing}{'' if value == 1 else 's'}"


def typed(facts: tuple[str, ...], precision: str) -> tuple[str, ...]:
    """Adds the floating-point type, where it is not float32."""
    return facts if precision == "float32" else (*facts, f"in {precision}")


def heads_words(heads: int, width: int) -> str:
    """Writes how many heads there are, and how wide one is."""
    return f"{heads:,} × {width:,}"


def projection(shapes: tuple[str, str], *, bias: bool) -> str:
    """Writes what a matrix leads from and to."""
    return " → ".join(shapes) + (", bias" if bias else "")


def norm_words(model: ModelSpec) -> tuple[str, str]:
    """Returns what the norm is called, and its settings; a part it lacks is not among them."""
    found = []
    for field in dataclasses.fields(model.norm):
        name, value = field.name.replace("_", " "), getattr(model.norm, field.name)
        if value is True:
            found.append(name)
        elif value is not False:
            found.append(f"{'ε' if name == 'epsilon' else name} {number(value)}")
    return type(model.norm).__name__, ", ".join(found)


def branch_scale_words(model: ModelSpec) -> str:
    """Returns the factor of a branch in words; empty where it is 1."""
    match model.branch_scale:
        case FixedScale(value=value):
            return "" if value == 1 else f"times {number(value)}"
        case ReZero():
            return "times a learned number that starts at 0"
        case LayerScale(initial=initial):
            return f"times a learned number per channel, from {number(initial)}"


def bias_words(model: ModelSpec) -> str:
    """Returns what positions add to the scores; empty where they add nothing."""
    match model.position:
        case T5Bias():
            return "+ T5 bias of the distance"
        case RelativeBias():
            return "+ learned bias of the distance"
        case Alibi():
            return "+ ALiBi: a slope per head times the distance"
        case Shaw(values=values):
            return "+ vectors of the distance on keys" + (" and values" if values else "")
        case NoPosition() | Sinusoidal() | Learned() | Rope():
            return ""


def rope_words(model: ModelSpec, position: Rope, *, windowed: bool) -> tuple[str, ...]:
    """Returns how rotary positions turn queries and keys of a layer.

    Args:
        model: The model.
        position: Its positions.
        windowed: Whether the layer has the window of attention.
    """
    local = windowed and position.window_theta is not None
    theta = position.window_theta if local else position.theta
    facts = [f"θ {number(theta or 0)}, channels paired by {_PAIRS[position.pairing]}"]
    if position.rotary_fraction != 1:
        turned = int(model.H * position.rotary_fraction)
        facts.append(f"{turned} of {model.H} channels, fraction {position.rotary_fraction!r}")
    stretched = "" if local else scaling_words(position)
    return (*facts, *((stretched,) if stretched else ()))


_PAIRS = {"half": "halves", "interleaved": "neighbours"}


def scaling_words(position: Rope) -> str:
    """Returns how the ladder of frequencies is stretched; empty where it is not."""
    match position.scaling:
        case LinearScaling(factor=factor):
            return f"positions / {number(factor)}"
        case NTKScaling(factor=factor):
            return f"NTK scaling by {number(factor)}"
        case YarnScaling(factor=factor, original_length=length):
            return f"YaRN scaling by {number(factor)} from {length:,} tokens"
        case Llama3Scaling() as chosen:
            low, high = chosen.low_frequency_factor, chosen.high_frequency_factor
            return (
                f"Llama 3 scaling by {number(chosen.factor)} from {chosen.original_length:,} "
                f"tokens, ramp {number(low)} to {number(high)}"
            )
        case NoScaling():
            return ""


def group_words(group: Layers) -> tuple[str, str]:
    """Returns which layers a group is, and how many parameters it has."""
    last = group.first + group.layers - 1
    which = f"layers {group.first:,} to {last:,}" if group.layers > 1 else f"layer {last:,}"
    each = f"{parameters_within(group.nodes):,} parameters"
    if group.repeat == 1:
        return which, each
    return f"× {group.repeat:,}: {which}", f"{each} each"
