"""The sizes of a model that can pay for a difference, and what follows each of them."""

import dataclasses
import math
from typing import Literal, get_args

from jtransformer.spec import ModelSpec, SpecError

Knob = Literal["ffn_width", "layers", "width", "heads"]
KNOBS: tuple[str, ...] = get_args(Knob)
"""The sizes of a model that may pay for what is held equal."""
LARGEST = {"ffn_width": 2**24, "layers": 2**12, "width": 2**24, "heads": 2**16}
"""No value beyond these is tried."""


def resized(model: ModelSpec, knob: Knob, value: int) -> ModelSpec | None:
    """Returns a model of another size; None if the spec refuses it.

    Args:
        model: The model.
        knob: "ffn_width": the feed-forward width alone. "layers": the layers of the stack that
            the head reads; those of an encoder with a decoder behind it stay. "width": the width
            at a fixed head width, so that heads follow in proportion; the feed-forward width,
            a latent and key and value heads that are given a number stay. "heads": the query
            heads at a fixed width and a fixed head width, which is then written down, since
            heads that share out the width have no effect on the size; key and value heads
            follow where they are as many, and stay where they are given a number.
        value: The new value, a multiple of `step`.
    """
    changes = {knob: value}
    if knob == "width":
        changes["heads"] = model.heads * value // model.width
    if knob == "heads" and value != model.heads:
        changes["head_width"] = model.H
    try:
        return dataclasses.replace(model, **changes)
    except SpecError:
        return None


def step(model: ModelSpec, knob: Knob) -> int:
    """Returns what every value of a knob is a multiple of, for heads to be whole groups."""
    groups = model.key_value_heads or 1
    if knob == "heads":
        return groups
    if knob == "width":
        # heads * value / width is a multiple of the groups.
        return model.width * groups // math.gcd(model.heads, model.width * groups)
    return 1
