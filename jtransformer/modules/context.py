"""What the layers of a stack are given: what all share, and what is each one's own.

Everything here passes through `nn.scan` and `nn.remat`: arrays in tuples, and a placement, which
has none and is static to both.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from jtransformer import functional as F
from jtransformer.modules.dropping import Dropping
from jtransformer.modules.parts import Part
from jtransformer.modules.placement import Placement
from jtransformer.modules.positions import position_plan
from jtransformer.spec import DotProduct, ModelSpec

Mask = Array | F.Visibility | None


class View(NamedTuple):
    """What queries see.

    Attributes:
        mask: Which keys; None is all.
        bias: What is added to the scores; None is nothing.
        key_positions: Positions of the keys, `#B S`.
    """

    mask: Mask
    bias: Array | None
    key_positions: Array


class LayerCache(NamedTuple):
    """What one layer keeps of the tokens so far.

    Attributes:
        state: Keys and values, a latent, or the sums of linear attention.
        memory_k: Keys of the memory, `B S K H`; None without cross-attention.
        memory_v: Values of the memory, likewise.
    """

    state: F.KVCache | F.LinearAttentionState
    memory_k: Array | None = None
    memory_v: Array | None = None


class Shared(NamedTuple):
    """What every layer of a stack reads alike.

    Attributes:
        positions: Positions of the tokens, `#B T`.
        full: What a layer without a window sees; None where the layers have caches.
        near: What a layer with a window sees; None likewise, and where no layer has one.
        valid: Which tokens are real; with caches, which are stored.
        prefix_length: Length of the prefix, with caches.
        bias_table: Table of the stack's position bias, with caches.
        memory: Last states of the encoder, `B S D`; None where they are in the caches.
        memory_mask: Which of them each token sees.
        dropping: What is dropped; None is nothing.
        placement: Where activations lie.
    """

    positions: Array
    full: View | None
    near: View | None
    valid: Array | None
    prefix_length: Any
    bias_table: Array | None
    memory: Array | None
    memory_mask: F.Visibility | None
    dropping: Dropping | None
    placement: Placement


class Own(NamedTuple):
    """What one layer has of its own, besides its parameters.

    Attributes:
        layer: Its index; None where nothing depends on it.
        windowed: Whether it has the window, where that is known only when the program runs.
        heads_on: False for heads that read zeros; None is all heads.
        cache: What it keeps of the tokens so far.
    """

    layer: Array | None
    windowed: Array | None
    heads_on: Array | None
    cache: LayerCache | None


def memory_mask(
    T: int,
    S: int,
    source_valid: Array | None,
    segments: tuple[Array | None, Array | None] = (None, None),
) -> F.Visibility | None:
    """Returns which states of the memory a target sees; a target's own padding has no part in it.

    Args:
        T: Tokens of the target.
        S: Tokens of the source.
        source_valid: Which of them are real; None is all.
        segments: Documents of the target's tokens and of the source's; None is one.
    """
    if source_valid is None and segments[0] is None:
        return None
    return F.Visibility(
        jnp.zeros((1, T), jnp.int32),
        jnp.zeros((1, S), jnp.int32),
        causal=False,
        query_segments=segments[0],
        key_segments=segments[1],
        key_valid=source_valid,
    )


def windows(spec: ModelSpec, part: Part) -> tuple[bool, ...]:
    """Says which layers of a stack have a window."""
    attention = spec.attention
    if not isinstance(attention, DotProduct):
        return (False,) * part.layers
    return tuple(attention.window_of(layer) is not None for layer in range(part.layers))


def heads_on(spec: ModelSpec, layer: int) -> Array | None:
    """Returns which heads of a layer are on; None where all are."""
    off = spec.attention.heads_off_of(layer) if isinstance(spec.attention, DotProduct) else ()
    return jnp.array([head not in off for head in range(spec.heads)]) if off else None


def seen(
    spec: ModelSpec,
    part: Part,
    windowed: bool | None,
    *,
    shared: Shared,
    own: Own,
    read: F.KVRead | None,
) -> View:
    """Returns what the tokens of a call see in one layer.

    Args:
        spec: The model.
        part: The stack.
        windowed: Whether the layer has the window; None leaves it to `own`.
        shared: What all layers share.
        own: What this layer has of its own.
        read: Its cache, the tokens of the call included; None is a call without one.
    """
    if read is None:
        if windowed is None:
            assert shared.near is not None and shared.full is not None
            masks = shared.near.mask, shared.full.mask
            return shared.full._replace(mask=_chosen(own.windowed, *masks))
        view = shared.near if windowed else shared.full
        assert view is not None
        return view

    def visibility(window: int | None) -> F.Visibility:
        return F.Visibility(
            shared.positions,
            read.positions,
            window=window,
            prefix_length=shared.prefix_length,
            key_valid=read.valid,
        )

    window = spec.attention.window if isinstance(spec.attention, DotProduct) else None
    if windowed is None:
        mask = _chosen(own.windowed, visibility(window), visibility(None))
    else:
        mask = visibility(window if windowed else None)
        if shared.positions.shape[1] == 1:
            # A cache holds no padding, so that attention need not zero it: a pass over all slots.
            mask = mask.draw()
    plan = position_plan(spec, causal=part.causal)
    bias = None
    if plan.bias is not None:
        bias = plan.bias(shared.bias_table, shared.positions, read.positions)
    return View(mask, bias, read.positions)


def _chosen(windowed: Array | None, near: Mask, full: Mask) -> Array:
    """Chooses between two masks by an array; where they can be drawn once for all, they are."""
    masks = [mask.draw() if isinstance(mask, F.Visibility) else mask for mask in (near, full)]
    assert windowed is not None and masks[0] is not None and masks[1] is not None
    return jnp.where(windowed, masks[0], masks[1])
