"""Fields of rotary positions and of windows, which many families share.

Rotary positions have two forms: `rope_theta` with `rope_scaling`, and since version 5 of
transformers `rope_parameters`, which holds both. What is computed for each kind of scaling is in
their `modeling_rope_utils.py`, https://github.com/huggingface/transformers.
"""

from collections.abc import Sequence
from typing import Any

from jtransformer.interop.reading import ConfigReader
from jtransformer.spec import (
    DotProduct,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    NoScaling,
    Rope,
    SpecError,
    YarnScaling,
)
from jtransformer.spec.attention import FULL, WINDOW
from jtransformer.spec.positions import Scaling

WINDOWED, UNBOUNDED = "sliding_attention", "full_attention"
NO_SCALING: tuple[dict[str, Any] | None, ...] = (None, {})


def read_rope(
    config: ConfigReader,
    *,
    theta: float = 10_000.0,
    fraction: float = 1.0,
    length: int | None = None,
) -> Rope:
    """Reads rotary positions that turn channels in halves.

    Args:
        config: The config; `rope_parameters`, `rope_theta`, `rope_scaling` and
            `partial_rotary_factor` are read.
        theta: Base where none is given.
        fraction: Share of the channels that turns where none is given.
        length: `max_position_embeddings` where it is not given, which is the trained length of
            scalings that say none; None is none.
    """
    length = config.integer("max_position_embeddings", default=length)
    old, new = config.raw("rope_scaling", default=None), config.raw("rope_parameters", default=None)
    if old not in NO_SCALING and new not in NO_SCALING and old != new:
        raise config.refusal("rope_scaling", "and rope_parameters both are there; keep one of them")
    given = new if new not in NO_SCALING else old
    if given in NO_SCALING:
        given = {}
    if not isinstance(given, dict):
        raise config.refusal("rope_scaling" if given is old else "rope_parameters", "is no object")
    name = "rope_scaling" if given is old else "rope_parameters"
    inner = ConfigReader(given, f"{name} of {config.where}", aliases={"type": "rope_type"})
    scaling = _scaling(inner, length)
    base = _given_once(config, inner, "rope_theta", theta)
    share = _given_once(config, inner, "partial_rotary_factor", fraction)
    inner.close()
    return Rope(theta=base, rotary_fraction=share, scaling=scaling)


def _given_once(config: ConfigReader, inner: ConfigReader, name: str, default: float) -> float:
    """Reads a number that may stand beside the rest or among it."""
    outside, inside = (reader.number(name, default=None) for reader in (config, inner))
    if None not in (outside, inside) and outside != inside:
        raise config.refusal(name, f"and {inside} in {inner.where} are two; keep one of them")
    found = outside if inside is None else inside
    return default if found is None else found


def _scaling(inner: ConfigReader, length: int | None) -> Scaling:
    kind = inner.raw("rope_type", default="default")
    if kind == "default":
        inner.ignore("factor") if not inner.has("factor") else inner.only("factor", 1.0, 1)
        return NoScaling()
    if kind not in ("linear", "llama3", "yarn"):
        raise inner.refusal(
            "rope_type", "is not supported; what can be read: default, linear, llama3, yarn"
        )
    factor = inner.number("factor")
    if kind == "linear":
        return LinearScaling(factor=factor)
    original = inner.integer("original_max_position_embeddings", default=length)
    if original is None:
        raise SpecError(
            "original_max_position_embeddings",
            f"is missing in {inner.where}, and so is max_position_embeddings; add one.",
        )
    if kind == "llama3":
        return Llama3Scaling(
            factor=factor,
            original_length=original,
            low_frequency_factor=inner.number("low_freq_factor"),
            high_frequency_factor=inner.number("high_freq_factor"),
        )
    for name, allowed in (
        ("beta_fast", (32, 32.0, None)),
        ("beta_slow", (1, 1.0, None)),
        ("attention_factor", (None,)),
        ("mscale", (None, 0, 0.0)),
        ("mscale_all_dim", (None, 0, 0.0)),
        ("truncate", (True,)),
    ):
        inner.only(name, *allowed)
    return YarnScaling(factor=factor, original_length=original)


def write_rope(position: Rope) -> dict[str, Any]:
    """Writes rotary positions: `rope_parameters`, the share of channels that turns included."""
    found: dict[str, Any] = {"rope_theta": position.theta}
    if position.rotary_fraction != 1:
        found["partial_rotary_factor"] = position.rotary_fraction
    match position.scaling:
        case NoScaling():
            found["rope_type"] = "default"
        case LinearScaling(factor=factor):
            found |= {"rope_type": "linear", "factor": factor}
        case Llama3Scaling() as chosen:
            found |= {
                "rope_type": "llama3",
                "factor": chosen.factor,
                "original_max_position_embeddings": chosen.original_length,
                "low_freq_factor": chosen.low_frequency_factor,
                "high_freq_factor": chosen.high_frequency_factor,
            }
        case YarnScaling(factor=factor, original_length=length):
            found |= {
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": length,
            }
        case _:
            raise SpecError(
                "position.rope.scaling.kind",
                f"= {position.scaling.kind!r} has no counterpart; use none, linear, llama3, yarn.",
            )
    return {"rope_parameters": found}


def windowed(window: int | None, layers: Sequence[bool]) -> dict[str, Any]:
    """Returns the fields `window` and `window_pattern` of `DotProduct`.

    Args:
        window: Positions that a query sees in the layers that have the window.
        layers: For each layer, whether it has the window.
    """
    if window is None or not any(layers):
        return {}
    words = [WINDOW if windowed else FULL for windowed in layers]
    for period in range(1, len(words) + 1):
        pattern = words[:period]
        if all(word == pattern[i % period] for i, word in enumerate(words)):
            return {"window": window, "window_pattern": ",".join(pattern)}
    raise AssertionError("the whole list repeats itself")


def read_layer_types(config: ConfigReader, layers: int, default: Sequence[bool]) -> list[bool]:
    """Reads which layers have the window, from `layer_types`.

    Args:
        config: The config.
        layers: How many layers there are.
        default: For each layer, what it is where the field is left out or null.
    """
    names = config.raw("layer_types", default=None)
    if names is None:
        return list(default)
    known = {WINDOWED: True, UNBOUNDED: False}
    if not isinstance(names, list) or len(names) != layers or not set(names) <= set(known):
        raise config.refusal(
            "layer_types", f"must name {WINDOWED} or {UNBOUNDED} for each of {layers} layers"
        )
    return [known[name] for name in names]


def write_layer_types(spec: ModelSpec) -> list[str]:
    """Writes `layer_types`."""
    return [WINDOWED if is_windowed else UNBOUNDED for is_windowed in windowed_layers(spec)]


def windowed_layers(spec: ModelSpec) -> list[bool]:
    """Returns for each layer whether it has the window."""
    attention = spec.attention
    assert isinstance(attention, DotProduct)
    return [attention.window_of(layer) is not None for layer in range(spec.layers)]
