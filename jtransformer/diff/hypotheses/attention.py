"""Hypotheses about attention: scale, mask, heads, norms of queries and keys, packing."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jtransformer.diff import hooks
from jtransformer.diff.hypotheses.kinds import (
    ATTENTIONS,
    Found,
    Hypothesis,
    edited,
    modules_in,
    of_changes,
)
from jtransformer.diff.ours import Ours
from jtransformer.spec import DotProduct, RMSNorm

SCORES, WEIGHTS = "attention/scores", "attention/weights"
ROLES = ("query", "key", "value")


def scale(ours: Ours) -> Found:
    """Yields other factors of the scores: none, that of the width, the usual one, it twice."""
    attention, spec = ours.spec.attention, ours.spec
    if not isinstance(attention, DotProduct):
        return
    own = attention.scale or spec.H**-0.5
    factors = {
        "without a scale of the scores": 1.0,
        "with the scale (head width)^-0.5": spec.H**-0.5,
        "with the scale (width)^-0.5": spec.width**-0.5,
        "with the scale applied twice": own**2,
    }
    fields = {
        words: {"attention": dataclasses.replace(attention, scale=factor)}
        for words, factor in factors.items()
        if not math.isclose(factor, own)
    }
    if attention.soft_cap is not None:
        uncapped = dataclasses.replace(attention, soft_cap=None)
        fields["without a cap of the scores"] = {"attention": uncapped}
    yield from of_changes("missing scale", SCORES, ours, fields)


def mask(ours: Ours) -> Found:
    """Yields masks that are read the other way round, absent, or one token off."""
    kind = "mask polarity"
    choices: dict[str, Callable[[Array], Array]] = {
        "with the mask inverted": jnp.logical_not,
        "without a mask": jnp.ones_like,
    }
    if ours.spec.causal:
        choices |= {
            "with the token itself hidden": lambda seen: seen & ~_shifted(seen, 0),
            "with one token ahead seen": lambda seen: seen | _shifted(seen, 1),
        }
    else:
        choices["with a causal mask"] = lambda seen: seen & _causal(seen)
    for words, choose in choices.items():
        changed = ours.but(hooks=(*ours.hooks, hooks.seeing(choose)))
        yield Hypothesis(kind, words, WEIGHTS, changed)
    for words, inverted in (("seen", False), ("the only thing that is seen", True)):
        changed = ours.but(hooks=(*ours.hooks, hooks.padding(inverted=inverted)))
        yield Hypothesis(kind, f"with padding {words}", WEIGHTS, changed)


def _shifted(seen: Array, by: int) -> Array:
    """Returns where the key is so many places ahead of the query."""
    T, S = seen.shape[-2:]
    return jnp.arange(S)[None] == jnp.arange(T)[:, None] + by


def _causal(seen: Array) -> Array:
    T, S = seen.shape[-2:]
    return jnp.arange(S)[None] <= jnp.arange(T)[:, None]


def head_order(ours: Ours) -> Found:
    """Yields key heads that are tiled over the query heads, in the place of repeated."""
    spec = ours.spec
    N, K = spec.heads, spec.K
    if not isinstance(spec.attention, DotProduct) or K in (1, N):
        return
    changed = ours.respecified(key_value_heads=None)
    if changed is None:
        return

    def tiled(layer: dict[str, Any]) -> dict[str, Any]:
        found = dict(layer)
        for attention in ATTENTIONS:
            if attention in layer:
                found[attention] = {
                    name: {leaf: _tiled(x, N // K) for leaf, x in module.items()}
                    if name in ("key", "value") or (name == "key_norm" and _is_width(ours))
                    else module
                    for name, module in layer[attention].items()
                }
        return found

    views = tuple((f"*attention/{name}", _first_heads(K)) for name in (
        "key", "value", "key_normed", "key_turned"))  # fmt: skip
    changed = edited(changed, tiled).but(views=(*ours.views, *views))
    words = "with key heads tiled (query head n reads key head n mod K)"
    yield Hypothesis("head order", words, SCORES, changed)


def _is_width(ours: Ours) -> bool:
    attention = ours.spec.attention
    return isinstance(attention, DotProduct) and attention.query_key_norm == "width"


def _tiled(x: Array, times: int) -> Array:
    """Repeats the axis of heads, the last but one, as a whole."""
    return jnp.concatenate([x] * times, axis=-2)


def _first_heads(K: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda heads: heads[:, :, :K]


def query_key_norm(ours: Ours) -> Found:
    """Yields norms of queries and keys over another scope: heads, the whole width, nothing."""
    attention, spec = ours.spec.attention, ours.spec
    if not isinstance(attention, DotProduct):
        return
    kind, starts, own = "QK-norm scope", "attention/query_normed", attention.query_key_norm
    starts = "attention/query_turned" if own == "none" else starts
    words = {
        "none": "without norms of queries and keys",
        "head": "with queries and keys normalised over each head",
        "width": "with queries and keys normalised over the whole width",
    }
    if own == "width":
        epsilon = (spec.norm if isinstance(spec.norm, RMSNorm) else RMSNorm()).epsilon
        changed = ours.but(hooks=(*ours.hooks, hooks.normed_by_head(epsilon)))
        yield Hypothesis(kind, words["head"], starts, changed)
    for scope in ("none", "head", "width"):
        if scope == own or (own, scope) == ("width", "head"):
            continue
        other = dataclasses.replace(attention, query_key_norm=scope)
        changed = ours.respecified(attention=other)
        if changed is not None:
            edit = functools.partial(_norms_of, ours, scope)
            yield Hypothesis(kind, words[scope], starts, edited(changed, edit))


def _norms_of(ours: Ours, scope: str, layer: dict[str, Any]) -> dict[str, Any]:
    """Gives the attention of a layer the factors that norms of a scope have."""
    found = dict(layer)
    for attention in ATTENTIONS:
        if attention not in layer:
            continue
        tree = dict(layer[attention])
        for name, heads in (("query", ours.spec.heads), ("key", ours.spec.K)):
            before = tree.pop(f"{name}_norm", None)
            if scope == "none":
                continue
            shape = (heads, ours.spec.H) if scope == "width" else (ours.spec.H,)
            factors = jnp.ones((), jnp.float32) if before is None else before["scale"]
            tree[f"{name}_norm"] = {"scale": jnp.broadcast_to(factors, shape)}
        found[attention] = tree
    return found


def qkv_packing(ours: Ours, layer: int | None = None) -> Found:
    """Yields other ways to take one fused matrix of queries, keys and values apart."""
    spec = ours.spec
    if spec.K != spec.heads or spec.Hv != spec.H:
        return
    owners = [tree for tree in modules_in(ours, "attention") if {*ROLES} <= set(tree)]
    if not owners:
        return
    where = _where(layer)
    # What was read as one of these may have been stored as another one.
    names = ("side by side", "by heads", "by channels")
    for was, should in itertools.permutations(range(3), 2):
        words = (
            f"with fused queries, keys and values read as lying {names[should]}, "
            f"not {names[was]}{where}"
        )
        changed = edited(ours, lambda tree, a=was, b=should: _repacked(tree, a, b), layer)
        yield Hypothesis("QKV packing", words, "attention/query", changed, layer)
    for order in itertools.permutations(ROLES):
        if order != ROLES:
            words = f"with {', '.join(order)} in the places of {', '.join(ROLES)}{where}"
            changed = edited(ours, lambda tree, o=order: _renamed(tree, o), layer)
            moved = next(role for role, other in zip(ROLES, order, strict=True) if role != other)
            yield Hypothesis("QKV packing", words, f"attention/{moved}", changed, layer)


def _where(layer: int | None) -> str:
    return "" if layer is None else f" in layer {layer} alone"


PACKED = ((0, 1, 2), (1, 0, 2), (1, 2, 0))
"""Orders of the axes role, head, channel: side by side [3, N, H], by heads [N, 3, H], [N, H, 3]."""


def _repacked(layer: dict[str, Any], was: int, should: int) -> dict[str, Any]:
    """Packs the matrices of a layer in one order and takes them apart in another one."""
    tree = dict(layer["attention"])
    for leaf in tree["query"]:
        stacked = jnp.stack([tree[role][leaf] for role in ROLES], axis=-3)
        lead, own = stacked.shape[:-3], stacked.shape[-3:]
        axes = [*range(len(lead))]
        packed = jnp.transpose(stacked, (*axes, *(len(lead) + i for i in PACKED[was])))
        shape = tuple(own[i] for i in PACKED[should])
        back = [PACKED[should].index(i) for i in range(3)]
        taken = packed.reshape(*lead, *shape).transpose((*axes, *(len(lead) + i for i in back)))
        for index, role in enumerate(ROLES):
            tree[role] = {**tree[role], leaf: taken[..., index, :, :]}
    return {**layer, "attention": tree}


def _renamed(layer: dict[str, Any], order: tuple[str, ...]) -> dict[str, Any]:
    tree = layer["attention"]
    moved = {role: tree[other] for role, other in zip(ROLES, order, strict=True)}
    return {**layer, "attention": {**tree, **moved}}


def head_reshape(ours: Ours, layer: int | None = None) -> Found:
    """Yields other ways to take heads apart or join them: channels first, or not transposed."""
    kind, where = "head reshape", _where(layer)
    if ours.spec.heads == 1:
        return
    for which, starts in (
        (ROLES, "attention/query"),
        (("out",), "attention/output"),
        ((*ROLES, "out"), "attention/query"),
    ):
        named = {ROLES: "projections", ("out",): "output matrix"}.get(
            which, "matrices of attention"
        )
        words = f"with the {named} read as channels by heads, not heads by channels{where}"
        changed = edited(ours, functools.partial(_channels_first, which), layer)
        yield Hypothesis(kind, words, starts, changed, layer)
    if layer is None:
        for which in (ROLES, ("query",), ("key",), ("value",)):
            hook = hooks.heads_without_transposing(which)
            named = "heads" if which == ROLES else f"heads of the {which[0]}"
            words = f"with the {named} taken apart without a transposition"
            changed = ours.but(hooks=(*ours.hooks, hook))
            starts = f"attention/{which[0]}"
            yield Hypothesis(kind, words, starts, changed)
        changed = ours.but(hooks=(*ours.hooks, hooks.joined_without_transposing()))
        words = "with the heads joined without a transposition"
        yield Hypothesis(kind, words, "attention/output", changed)


def _channels_first(which: tuple[str, ...], layer: dict[str, Any]) -> dict[str, Any]:
    """Reads the axis of heads and channels, N H, as H N."""
    found = dict(layer)
    for attention in ATTENTIONS:
        if attention not in layer:
            continue
        tree = dict(layer[attention])
        for name in which:
            if name in tree:
                tree[name] = {leaf: _as_channels_first(name, leaf, x)
                              for leaf, x in tree[name].items()}  # fmt: skip
        found[attention] = tree
    return found


def _as_channels_first(name: str, leaf: str, x: Array) -> Array:
    if name == "out":
        if leaf == "bias":
            return x
        N, H, D = x.shape
        return x.reshape(H, N, D).swapaxes(0, 1)
    *lead, N, H = x.shape
    return x.reshape(*lead, H, N).swapaxes(-1, -2)
