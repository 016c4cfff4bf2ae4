"""Changes to what modules do while they run, for faults that no spec can express.

A hook sees every call of a module's method: it may change what the method is given or what comes
out of it. See `flax.linen.intercept_methods`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from jtransformer import functional as F
from jtransformer.diff.ours import Hook
from jtransformer.modules.context import View
from jtransformer.spec import ModelSpec

SELF_ATTENTION = ("DotProductAttention", "LatentSelfAttention", "LinearSelfAttention")
ATTENTION = (*SELF_ATTENTION, "CrossAttention")
HIDDEN = -1e30
"""Added to a score in the place of a mask: what is added to it is lost to rounding."""


def before(classes: tuple[str, ...], method: str, edit: Callable[[Any, tuple], tuple]) -> Hook:
    """Returns a hook that changes the arguments of a method.

    Args:
        classes: Names of the modules.
        method: Name of the method.
        edit: Maps the module and the arguments to other arguments.
    """

    def hook(call: Callable[..., Any], args: tuple, kwargs: dict, context: Any) -> Any:
        if context.method_name == method and type(context.module).__name__ in classes:
            args = edit(context.module, args)
        return call(*args, **kwargs)

    return hook


def after(classes: tuple[str, ...], method: str, edit: Callable[[Any, tuple, Any], Any]) -> Hook:
    """Returns a hook that changes what a method returns.

    Args:
        classes: Names of the modules.
        method: Name of the method.
        edit: Maps the module, the arguments and what was returned to what is returned.
    """

    def hook(call: Callable[..., Any], args: tuple, kwargs: dict, context: Any) -> Any:
        out = call(*args, **kwargs)
        if context.method_name == method and type(context.module).__name__ in classes:
            out = edit(context.module, args, out)
        return out

    return hook


def positions_times(factor: int) -> Hook:
    """Turns queries and keys by another multiple of their positions; what is seen stays."""

    def edit(module: Any, args: tuple) -> tuple:
        x, shared, own = args
        return x, shared._replace(positions=factor * shared.positions), own

    return before(SELF_ATTENTION, "__call__", edit)


def turned_further(spec: ModelSpec, which: str, by: int) -> Hook:
    """Turns queries or keys by some positions more than the others."""
    from jtransformer.modules.positions import position_plan

    turn = position_plan(spec, causal=spec.causal).turn
    assert turn is not None

    def edit(module: Any, args: tuple, heads: Array) -> Array:
        name, *_ = args
        positions = jnp.full((1, heads.shape[1]), by, jnp.int32)
        return turn(heads, positions, bool(module.windowed)) if name == which else heads

    return after(("DotProductAttention",), "normed", edit)


def seeing(choose: Callable[[Array], Array]) -> Hook:
    """Shows the queries of self-attention other keys.

    Args:
        choose: Maps the mask `B 1 T S` of what is seen to another one.
    """

    def other(view: View) -> View:
        T = view.key_positions.shape[1]
        seen = view.mask.draw() if isinstance(view.mask, F.Visibility) else view.mask
        return _filled(view, choose(jnp.ones((1, 1, T, T), bool) if seen is None else seen))

    return _viewing(other)


def padding(*, inverted: bool) -> Hook:
    """Shows the queries of self-attention the padding too, or the padding alone."""

    def other(view: View) -> View:
        mask = view.mask
        if not isinstance(mask, F.Visibility) or mask.key_valid is None:
            return view
        valid = ~mask.key_valid if inverted else None
        return _filled(view, dataclasses.replace(mask, key_valid=valid).draw())

    return _viewing(other)


def _filled(view: View, seen: Array) -> View:
    """Adds a large negative number to the scores of what is hidden, in the place of a mask.

    A query that sees nothing then weighs all keys alike, as in most code.
    """
    bias = jnp.where(seen, 0.0, HIDDEN).astype(jnp.float32)
    if view.bias is not None:
        bias = bias + view.bias.astype(jnp.float32)
    return view._replace(mask=None, bias=bias)


def _viewing(other: Callable[[View], View]) -> Hook:
    """Returns a hook that changes what the layers of a stack see."""

    def edit(module: Any, args: tuple) -> tuple:
        x, shared, own = args
        views = {
            name: None if view is None else other(view)
            for name, view in (("full", shared.full), ("near", shared.near))
        }
        return x, shared._replace(**views), own

    return before(SELF_ATTENTION, "__call__", edit)


def heads_without_transposing(which: tuple[str, ...]) -> Hook:
    """Reads `B T (N H)` as `B N T H`, without moving the axis of heads behind that of tokens.

    Args:
        which: Names of the projections.
    """

    def edit(module: Any, args: tuple, heads: Array) -> Array:
        _, name, *_ = args
        if name not in which or heads.ndim != 4:
            return heads
        B, T, N, H = heads.shape
        return jnp.swapaxes(heads.reshape(B, N, T, H), 1, 2)

    return after(ATTENTION, "project", edit)


def joined_without_transposing() -> Hook:
    """Reads `B N T H` as `B T (N H)`, without moving the axis of heads back."""

    def edit(module: Any, args: tuple) -> tuple:
        shared, heads = args
        return shared, jnp.swapaxes(heads, 1, 2).reshape(heads.shape)

    return before(ATTENTION, "joined", edit)


def normed_by_head(epsilon: float) -> Hook:
    """Normalises queries and keys over each head, with the factors of the whole width."""

    def edit(module: Any, args: tuple, normed: Array) -> Array:
        name, heads = args
        scale = module.variables["params"][f"{name}_norm"]["scale"]
        return F.head_norm(heads, epsilon=epsilon) * scale[None, None].astype(normed.dtype)

    return after(ATTENTION, "normed", edit)
