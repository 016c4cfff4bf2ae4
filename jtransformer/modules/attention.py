"""Attention that owns its projections: by dot products, of itself and of a memory.

Sources: Vaswani et al. 2017, sec. 3.2, https://arxiv.org/abs/1706.03762; norms of queries and
keys, see `jtransformer.functional.query_key_norms`; relative vectors, Shaw et al. 2018,
https://arxiv.org/abs/1803.02155.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from jaxtyping import Array, Float

from jtransformer import functional as F
from jtransformer.functional.tpu_attention import KEPT
from jtransformer.modules.casting import entering, rounded
from jtransformer.modules.context import LayerCache, Own, Shared, View, seen
from jtransformer.modules.dropping import drop_at
from jtransformer.modules.layers import Kernel, Parameterised, Scale, Table
from jtransformer.modules.parts import Part
from jtransformer.modules.positions import position_plan
from jtransformer.spec import DotProduct, ModelSpec, RMSNorm, Shaw


class Attended(NamedTuple):
    """What a layer of attention returns.

    Attributes:
        out: Its branch, `B T D`.
        cache: What it keeps of the tokens; None without a cache.
        kept: Its intermediates that were asked for, by name.
    """

    out: Array
    cache: Any
    kept: dict[str, Array]


class Attention(Parameterised):
    """What all kinds share.

    Attributes:
        part: The stack.
        windowed: Whether the layer has the window; None where that is an array.
        wanted: Names of the intermediates to return.
    """

    part: Part
    windowed: bool | None
    wanted: frozenset[str]

    def keep(self, kept: dict[str, Array], **values: Array | None) -> None:
        """Puts aside the intermediates that were asked for."""
        kept |= {name: x for name, x in values.items() if name in self.wanted and x is not None}

    def keep_scores(self, kept: dict[str, Array], q: Array, k: Array, options: Any) -> None:
        """Forms scores and weights once more, where asked for: what attends may not form them."""
        if "scores" in self.wanted:
            unmasked = {name: x for name, x in options.items() if name != "mask"}
            kept["scores"] = F.attention_scores(q, k, **unmasked)
        if "weights" in self.wanted:
            kept["weights"] = F.attention_weights(q, k, **options)

    def kernel(
        self, name: str, shape: tuple[int, ...], *, axes: int = 1, bias: bool = False
    ) -> tuple[Array, Array | None]:
        """Returns a kernel and its bias, or None."""
        precision = self.spec.precision.attention
        return Kernel(self.spec, shape, axes=axes, bias=bias, precision=precision, name=name)()

    def project(self, shared: Shared, name: str, x: Array, *shape: int) -> Array:
        """Multiplies with a matrix of queries, keys, values or a latent, which has no heads."""
        spec = self.spec
        place = shared.placement
        kernel = self.kernel(name, (x.shape[-1], *shape), bias=spec.qkv_bias)
        out = F.linear(x, *kernel, rows=place.rows)
        return place.heads(out) if len(shape) == 2 else place.stream(out)

    def joined(self, shared: Shared, heads: Array) -> Array:
        """Brings heads back to the stream."""
        spec, (N, Hv) = self.spec, heads.shape[-2:]
        shape = (N, Hv, spec.width)
        kernel = self.kernel("out", shape, axes=2, bias=spec.attention_out_bias)
        return F.linear(heads, *kernel, axes=2, rows=shared.placement.rows)

    def projected(
        self, shared: Shared, name: str, x: Array, heads: int, kept: dict[str, Array]
    ) -> Array:
        """Returns the queries or keys of an input, normalised where the spec says so."""
        plain = self.project(shared, name, x, heads, self.spec.H)
        normed = self.normed(name, plain)
        self.keep(kept, **{name: plain, f"{name}_normed": normed})
        return normed

    def normed(self, name: str, heads: Array) -> Array:
        """Normalises queries or keys, where the spec says so."""
        attention = self.spec.attention
        if not isinstance(attention, DotProduct) or attention.query_key_norm == "none":
            return heads
        epsilon = inner_epsilon(self.spec)
        if attention.query_key_norm == "head":
            scale = Scale(self.spec, heads.shape[-1:], name=f"{name}_norm")()
            return F.head_norm(heads, scale, epsilon=epsilon)
        scale = Scale(self.spec, heads.shape[-2:], name=f"{name}_norm")()
        return F.width_norm(heads, scale, epsilon=epsilon)

    def attending(self, attend: Callable[..., Array]) -> Callable[..., Array]:
        """Makes the backward pass compute again what attention forms, where the spec says so."""
        spec = self.spec
        if spec.rematerialize != "attention":
            return attend

        # A kernel forms no weights: what it has read is kept, or it would run twice.
        policy = jax.checkpoint_policies.save_only_these_names(KEPT)

        def attended(*arrays: Array, **options: Any) -> Array:
            function = functools.partial(attend, **options)
            again = jax.checkpoint(function, prevent_cse=not spec.scan_layers, policy=policy)
            return again(*arrays)

        return attended

    def drops(self, shared: Shared, own: Own, name: str) -> dict[str, Any]:
        """Returns the arguments of dropout on the weights."""
        names = (self.part.scope, "layer", name, "weights")
        drop = drop_at(self.spec, shared.dropping, "attention", names, own.layer)
        return {"dropout_rate": drop.rate, "key": drop.key}


def inner_epsilon(spec: ModelSpec) -> float:
    """Returns the epsilon of RMS norms inside attention: the model's, if it has RMS norms."""
    return (spec.norm if isinstance(spec.norm, RMSNorm) else RMSNorm()).epsilon


class DotProductAttention(Attention):
    """Self-attention by scaled dot products, with grouped heads."""

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"], shared: Shared, own: Own) -> Attended:
        spec, kept = self.spec, {}
        plan = position_plan(spec, causal=self.part.causal)
        q = self.projected(shared, "query", x, spec.heads, kept)
        k = self.projected(shared, "key", x, spec.K, kept)
        v = self.project(shared, "value", x, spec.K, spec.Hv)
        if plan.turn is not None:
            windowed = self.windowed if own.windowed is None else own.windowed
            assert windowed is not None
            q, k = (plan.turn(heads, shared.positions, windowed) for heads in (q, k))
        self.keep(kept, value=v, query_turned=q, key_turned=k)
        cache = read = None
        if own.cache is not None:
            assert isinstance(own.cache.state, F.KVCache)
            cache = own.cache.state.append(k, v, valid=shared.valid)
            read = cache.read()
            k, v = read.k.astype(k.dtype), read.v.astype(v.dtype)
        view = seen(spec, self.part, self.windowed, shared=shared, own=own, read=read)
        if plan.distances:
            heads = self.with_distances((q, k, v), view, shared, own)
            self.keep(kept, mixed=heads)
            return Attended(self.joined(shared, heads), cache, kept)
        options: dict[str, Any] = score_options(spec) | {"mask": view.mask, "bias": view.bias}
        drops = self.drops(shared, own, "attention")
        attend = self.attending(shared.placement.attend)
        heads = attend(q, k, v, **options, **drops, heads_on=own.heads_on)
        self.keep_scores(kept, q, k, options)
        self.keep(kept, mixed=heads)
        return Attended(self.joined(shared, heads), cache, kept)

    def with_distances(
        self, heads: tuple[Array, Array, Array], view: View, shared: Shared, own: Own
    ) -> Array:
        """Attends with learned vectors of distances on keys, and on values if wanted."""
        spec, distances = self.spec, self.spec.position
        assert isinstance(distances, Shaw) and isinstance(spec.attention, DotProduct)
        rows = 2 * distances.max_distance + 1
        precision = spec.precision.attention
        tables = [rounded(Table(spec, rows, spec.H, name="key_distance")(), precision)]
        if distances.values:
            tables.append(rounded(Table(spec, rows, spec.Hv, name="value_distance")(), precision))
        return self.attending(F.relative_attention)(
            *heads,
            *tables,
            query_positions=shared.positions,
            key_positions=view.key_positions,
            mask=view.mask,
            scale=spec.attention.scale,
            **self.drops(shared, own, "attention"),
        )


def score_options(spec: ModelSpec) -> dict[str, Any]:
    """Returns how scores are formed; models without dot products of their own have the usual."""
    attention = spec.attention
    if not isinstance(attention, DotProduct):
        return {"scale": None, "soft_cap": None}
    return {"scale": attention.scale, "soft_cap": attention.soft_cap}


class CrossAttention(Attention):
    """Attention from a stack to the last states of the encoder.

    It has no positions and no window. Scale, cap, key heads, norms and biases are those of
    self-attention, heads that are switched off are not.
    """

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"], shared: Shared, own: Own) -> Attended:
        spec, kept = self.spec, {}
        q = self.projected(shared, "query", x, spec.heads, kept)
        k, v, cache = self.memory(shared, own.cache, kept)
        k, v = k.astype(x.dtype), v.astype(x.dtype)
        options: dict[str, Any] = score_options(spec) | {"mask": shared.memory_mask}
        attend = self.attending(shared.placement.attend)
        heads = attend(q, k, v, **options, **self.drops(shared, own, "cross_attention"))
        self.keep_scores(kept, q, k, options)
        self.keep(kept, mixed=heads)
        return Attended(self.joined(shared, heads), cache, kept)

    def memory(
        self, shared: Shared, cache: LayerCache | None, intermediates: dict[str, Array]
    ) -> tuple[Array, Array, tuple[Array, Array] | None]:
        """Returns keys and values of the memory, and what a cache keeps of them.

        Args:
            shared: Has the last states of the encoder; None where the cache has their keys and
                values.
            cache: The cache of the layer; None without one.
            intermediates: Where those that were asked for are put.
        """
        memory = shared.memory
        kept = None if cache is None else (cache.memory_k, cache.memory_v)
        if memory is None:
            assert kept is not None and kept[0] is not None and kept[1] is not None
            return kept[0], kept[1], (kept[0], kept[1])
        memory = entering(self.spec, "attention", memory)
        k = self.projected(shared, "key", memory, self.spec.K, intermediates)
        v = self.project(shared, "value", memory, self.spec.K, self.spec.H)
        self.keep(intermediates, value=v)
        if kept is None or kept[0] is None or kept[1] is None:
            return k, v, None
        # They are read as they are stored, in the first call as in later ones.
        k, v = k.astype(kept[0].dtype), v.astype(kept[1].dtype)
        return k, v, (k, v)
