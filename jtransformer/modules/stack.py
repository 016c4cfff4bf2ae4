"""A stack: positions, layers in a loop or a scan, and the norm at its end.

Rematerialisation. With "attention" each attention keeps its queries, keys, values and what it read,
and computes scores, weights and their dropout again (Korthikanti et al. 2022, sec. 5); all else is
kept. With "elementwise" the backward pass repeats no matrix product: it keeps the result of every
one, those of attention over pairs of positions too, and computes norms, activations, softmax and
dropout again from them (`jax.checkpoint_policies.dots_saveable`; the policy that leaves out
products with batch axes would compute attention's scores and reads again, which are products). A
kernel for attention keeps no weights, and neither of the two runs it again. With "everything" it
keeps the input of each layer alone. All give the numbers of "nothing", since dropout has its keys
from arguments.
"""

from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jtransformer import functional as F
from jtransformer.functional.tpu_attention import KEPT
from jtransformer.modules.block import Block
from jtransformer.modules.casting import rounded
from jtransformer.modules.context import LayerCache, Own, Shared, View, heads_on, windows
from jtransformer.modules.dropping import Dropping, drop_at
from jtransformer.modules.intermediates import within
from jtransformer.modules.layers import Norm, Table
from jtransformer.modules.parts import Part
from jtransformer.modules.placement import ONE_DEVICE, Placement
from jtransformer.modules.positions import position_plan
from jtransformer.spec import DotProduct, Learned, ModelSpec

POLICIES: dict[str, Any] = {
    "elementwise": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.dots_saveable,
        jax.checkpoint_policies.save_only_these_names(KEPT),
    ),
    "everything": jax.checkpoint_policies.nothing_saveable,
}


class Reads(NamedTuple):
    """What a stack reads besides its tokens.

    Attributes:
        positions: Positions of the tokens, `#B T`.
        valid: Which tokens are real; with caches, which are stored; None is all.
        segments: Document of each token; None is one.
        prefix_length: Length of the prefix; None is none.
        memory: Last states of the encoder; None where they are in the caches, or not needed.
        memory_mask: Which of them each token sees.
        caches: Caches of the layers, as `DecodingCache.layers`; None is none.
        dropping: What is dropped; None is nothing.
        by_place: Whether tokens see one another by their places; see `Transformer.__call__`.
        placement: Where activations lie.
    """

    positions: Array
    valid: Array | None = None
    segments: Array | None = None
    prefix_length: Any = None
    memory: Array | None = None
    memory_mask: F.Visibility | None = None
    caches: Any = None
    dropping: Dropping | None = None
    placement: Placement = ONE_DEVICE
    by_place: bool = False


class Through(NamedTuple):
    """What comes out of a stack.

    Attributes:
        x: The stream, normed at its end where the spec says so.
        caches: The caches after the tokens.
        kept: The intermediates that were asked for, by their names inside the stack.
    """

    x: Array
    caches: Any
    kept: dict[str, Array]


class Stack(nn.Module):
    """A stack with parameters below a name of its own; a model of one stack has none."""

    spec: ModelSpec
    part: Part
    wanted: frozenset[str]

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"], reads: Reads) -> Through:
        return through(self.spec, self.part, x, reads, self.wanted)


def through(spec: ModelSpec, part: Part, x: Array, reads: Reads, wanted: frozenset[str]) -> Through:
    """Passes embedded tokens through a stack, made in the module that is being called.

    Args:
        spec: The model.
        part: The stack.
        x: Embedded tokens, without positions.
        reads: What it reads besides.
        wanted: Names of the intermediates to return, without that of the stack.
    """
    # Rounded once, behind all that is added up.
    x = rounded(_with_positions(spec, part, x, reads.positions), spec.precision.stream)
    if spec.embedding_norm:
        x = Norm(spec, name="embedding_norm")(x)
    drop = drop_at(spec, reads.dropping, "embedding", (part.scope, "embedding"))
    x = reads.placement.stream(F.dropout(x, rate=drop.rate, key=drop.key))
    kept = {"embedded": x}
    shared = _shared(spec, part, reads)
    layers = _scan if spec.scan_layers else _loop
    x, caches, inside = layers(spec, part, x, shared, (reads.caches, wanted))
    if spec.has_final_norm:
        x = kept["final_norm"] = reads.placement.stream(Norm(spec, name="final_norm")(x))
    kept |= inside
    return Through(x, caches, {name: kept[name] for name in kept if name in wanted})


def _with_positions(spec: ModelSpec, part: Part, x: Array, positions: Array) -> Array:
    plan = position_plan(spec, causal=part.causal)
    if plan.embed is None:
        return x
    table = None
    if plan.embed_rows is not None:
        table = Table(spec, plan.embed_rows, spec.width, name="position")()
    if isinstance(spec.position, Learned) and x.shape[1] > spec.position.max_length:
        raise ValueError(
            f"{x.shape[1]} tokens are more than position.max_length={spec.position.max_length} "
            "learned positions; give a shorter sequence."
        )
    return x + plan.embed(positions, table).astype(x.dtype)


def _shared(spec: ModelSpec, part: Part, reads: Reads) -> Shared:
    """Gathers what all layers share; without caches, what they see is worked out once."""
    plan = position_plan(spec, causal=part.causal)
    table = None
    if plan.bias_rows is not None:
        table = Table(spec, plan.bias_rows, spec.heads, name="position_bias")()
    shared = Shared(
        positions=reads.positions,
        full=None,
        near=None,
        valid=reads.valid,
        prefix_length=reads.prefix_length,
        bias_table=table,
        memory=reads.memory,
        memory_mask=reads.memory_mask,
        dropping=reads.dropping,
        placement=reads.placement,
    )
    if reads.caches is not None:
        return shared
    positions, bias = reads.positions, None
    if plan.bias is not None:
        bias = plan.bias(table, positions, positions)

    def visibility(window: int | None) -> F.Visibility:
        if reads.by_place and reads.prefix_length is None:
            return F.Visibility.of_places(
                positions.shape[1],
                causal=part.causal,
                window=window,
                segments=reads.segments,
                valid=reads.valid,
            )
        return F.Visibility(
            positions,
            positions,
            causal=part.causal,
            window=window,
            prefix_length=reads.prefix_length,
            query_segments=reads.segments,
            key_segments=reads.segments,
            key_valid=reads.valid,
        )

    sees_all = not part.causal and reads.valid is None and reads.segments is None
    full = View(None if sees_all else visibility(None), bias, positions)
    near, with_window = None, windows(spec, part)
    if any(with_window):
        assert isinstance(spec.attention, DotProduct)
        masks = [visibility(window) for window in (None, spec.attention.window)]
        # Layers that are scanned choose between the two by an array, so both are drawn for them.
        drawn = spec.scan_layers and not all(with_window)
        full, near = (View(mask.draw() if drawn else mask, bias, positions) for mask in masks)
    return shared._replace(full=full, near=near)


def _block(spec: ModelSpec, *, is_scanned: bool) -> Any:
    if spec.rematerialize not in POLICIES:
        return Block
    # In a loop of XLA's nothing can be merged, so that barriers would only cost time.
    return nn.remat(Block, policy=POLICIES[spec.rematerialize], prevent_cse=not is_scanned)


def _loop(
    spec: ModelSpec, part: Part, x: Array, shared: Shared, given: tuple[Any, frozenset[str]]
) -> tuple[Array, Any, dict[str, Array]]:
    caches, wanted = given
    block, kept = _block(spec, is_scanned=False), {}
    after: list[LayerCache | None] = []
    for layer, windowed in enumerate(windows(spec, part)):
        name = f"layer_{layer}"
        own = Own(
            layer=None if shared.dropping is None else jnp.asarray(layer, jnp.int32),
            windowed=None,
            heads_on=heads_on(spec, layer),
            cache=None if caches is None else caches[layer],
        )
        inside = within(wanted, f"{name}/")
        module = block(spec, part, windowed, inside, is_first=layer == 0, name=name)
        x, left = module(x, shared, own)
        after.append(left.cache)
        kept |= {f"{name}/{local}": value for local, value in left.kept.items()}
    return x, None if caches is None else tuple(after), kept


def _scan(
    spec: ModelSpec, part: Part, x: Array, shared: Shared, given: tuple[Any, frozenset[str]]
) -> tuple[Array, Any, dict[str, Array]]:
    caches, wanted = given
    L, with_window = part.layers, windows(spec, part)
    mixed = len({*with_window}) > 1
    on = [heads_on(spec, layer) for layer in range(L)]
    all_on = jnp.ones(spec.heads, bool)
    own = Own(
        layer=None if shared.dropping is None else jnp.arange(L, dtype=jnp.int32),
        windowed=jnp.array(with_window) if mixed else None,
        heads_on=None
        if all(heads is None for heads in on)
        else jnp.stack([all_on if heads is None else heads for heads in on]),
        cache=caches,
    )
    locals_ = frozenset().union(*(within(wanted, f"layer_{layer}/") for layer in range(L)))
    scanned = nn.scan(
        _block(spec, is_scanned=True),
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=cast(Any, (nn.broadcast, 0)),
        length=L,
    )
    module = scanned(spec, part, None if mixed else with_window[0], locals_, name="layers")
    x, left = module(x, shared, own)
    kept = {
        f"layer_{layer}/{local}": value[layer]
        for layer in range(L)
        for local, value in left.kept.items()
    }
    return x, left.cache, kept
