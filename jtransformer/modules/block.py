"""One layer: its sublayers, each wired into the residual stream by one formula.

Sources: those of `jtransformer.functional.residual`.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from jtransformer import functional as F
from jtransformer.modules.attention import Attended, CrossAttention
from jtransformer.modules.attention_kinds import self_attention
from jtransformer.modules.casting import entering
from jtransformer.modules.context import LayerCache, Own, Shared
from jtransformer.modules.dropping import Drop, drop_at
from jtransformer.modules.intermediates import within
from jtransformer.modules.layers import FeedForward, Norm, branch_scale
from jtransformer.modules.parts import Part, deepnorm_of
from jtransformer.spec import EncoderDecoder, ModelSpec

Sublayer = Callable[[Array], Array]


class Left(NamedTuple):
    """What a layer leaves behind, besides the stream.

    Attributes:
        cache: Its cache after the tokens; None without one.
        kept: Its intermediates that were asked for, by name.
    """

    cache: LayerCache | None
    kept: dict[str, Array]


class Block(nn.Module):
    """Self-attention, cross-attention where there is a memory, and a feed-forward network.

    Attributes:
        spec: The model.
        part: The stack.
        windowed: Whether the layer has the window; None where that is an array.
        wanted: Names of the intermediates to return.
        is_first: Whether it is the first of its stack.
    """

    spec: ModelSpec
    part: Part
    windowed: bool | None = False
    wanted: frozenset[str] = frozenset()
    is_first: bool = False

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], shared: Shared, own: Own
    ) -> tuple[Float[Array, "B T D"], Left]:
        kept: dict[str, Array] = {}
        caches: dict[str, Any] = {}
        sublayers = self.sublayers(shared, own, kept, caches)
        if self.spec.sublayers == "sequential":
            for name, sublayer in sublayers.items():
                x = shared.placement.stream(self.wired(name, sublayer, x, shared, own))
                self.keep(kept, f"{name}/stream", x)
        else:
            x = shared.placement.stream(self.wired_together(sublayers, x, shared, own))
        self.keep(kept, "stream", x)
        cache = None
        if own.cache is not None:
            memory = caches.get("cross_attention") or (None, None)
            cache = LayerCache(caches["attention"], *memory)
        return x, Left(cache, kept)

    def keep(self, kept: dict[str, Array], name: str, value: Array) -> None:
        """Puts an intermediate aside if it was asked for."""
        if name in self.wanted:
            kept[name] = value

    def sublayers(
        self, shared: Shared, own: Own, kept: dict[str, Array], caches: dict[str, Any]
    ) -> dict[str, Sublayer]:
        """Returns the sublayers in their order; each puts aside what it leaves behind."""
        spec, part = self.spec, self.part

        def attending(name: str, module: nn.Module, given: Shared) -> Sublayer:
            def sublayer(y: Array) -> Array:
                self.keep(kept, f"{name}/input", y)
                attended: Attended = module(entering(spec, "attention", y), given, own)
                out = attended.out.astype(y.dtype)
                caches[name] = attended.cache
                kept.update({f"{name}/{local}": x for local, x in attended.kept.items()})
                self.keep(kept, f"{name}/output", out)
                return out

            return sublayer

        def feeding(y: Array) -> Array:
            self.keep(kept, "ffn/input", y)
            drop = self.drop("ffn", "ffn", shared, own)
            given = entering(spec, "ffn", y)
            network = FeedForward(spec, within(self.wanted, "ffn/"), name="ffn")
            out, inside = network(given, drop, shared.placement)
            out = out.astype(y.dtype)
            kept.update({f"ffn/{local}": x for local, x in inside.items()})
            self.keep(kept, "ffn/output", out)
            return out

        def attention(cls: type, windowed: bool | None, name: str) -> nn.Module:
            return cls(spec, part, windowed, within(self.wanted, f"{name}/"), name=name)

        kind = self_attention(spec)
        found = {
            "attention": attending("attention", attention(kind, self.windowed, "attention"), shared)
        }
        if part.cross:
            module = attention(CrossAttention, False, "cross_attention")
            found["cross_attention"] = attending(
                "cross_attention", module, self.with_memory(shared)
            )
        return found | {"ffn": feeding}

    def with_memory(self, shared: Shared) -> Shared:
        """Norms the memory once more, where the spec says so."""
        stack = self.spec.stack
        again = isinstance(stack, EncoderDecoder) and stack.normalize_memory
        if not again or shared.memory is None:
            return shared
        return shared._replace(memory=Norm(self.spec, name="memory_norm")(shared.memory))

    def drop(self, name: str, what: Literal["ffn", "residual"], shared: Shared, own: Own) -> Drop:
        """Returns the dropout on a branch ("residual") or on hidden units ("ffn")."""
        names = (self.part.scope, "layer", name, what)
        return drop_at(self.spec, shared.dropping, what, names, own.layer)

    def norms(self, name: str) -> dict[str, Norm]:
        slots = self.spec.norm_slots
        if name == "attention" and self.is_first and not self.spec.first_norm:
            slots = tuple(slot for slot in slots if slot != "norm_in")
        return {slot: Norm(self.spec, name=f"{name}_{slot}") for slot in slots}

    def stream_scale(self) -> float:
        factors = deepnorm_of(self.spec, self.part)
        return self.spec.stream_scale if factors is None else factors.stream_scale

    def wired(self, name: str, sublayer: Sublayer, x: Array, shared: Shared, own: Own) -> Array:
        norms, drop = self.norms(name), self.drop(name, "residual", shared, own)
        return F.residual(
            x,
            sublayer,
            norm_in=norms.get("norm_in"),
            norm_branch=norms.get("norm_branch"),
            norm_out=norms.get("norm_out"),
            branch_scale=branch_scale(self.spec, f"{name}_branch_scale"),
            stream_scale=self.stream_scale(),
            dropout_rate=drop.rate,
            key=drop.key,
        )

    def wired_together(
        self, sublayers: dict[str, Sublayer], x: Array, shared: Shared, own: Own
    ) -> Array:
        """Wires sublayers that read one stream.

        The norm, the dropout and the factor of each branch are part of it: they have the names,
        keys and values of a block whose sublayers follow one another. What all branches share is
        called after the first.
        """
        spec = self.spec
        first, *_ = sublayers
        norms = {name: self.norms(name) for name in sublayers}

        def finished(name: str, sublayer: Sublayer) -> Sublayer:
            norm = norms[name].get("norm_branch")
            scale = branch_scale(spec, f"{name}_branch_scale")
            drop = self.drop(name, "residual", shared, own)

            def branch(y: Array) -> Array:
                out = sublayer(y) if norm is None else norm(sublayer(y))
                out = F.dropout(out, rate=drop.rate, key=drop.key)
                return out * jnp.broadcast_to(jnp.asarray(scale, out.dtype), out.shape)

            return branch

        norms_in: Any = [norms[name].get("norm_in") for name in sublayers]
        return F.parallel_residual(
            x,
            [finished(name, sublayer) for name, sublayer in sublayers.items()],
            norms_in=norms_in[0] if spec.sublayers == "parallel_one_norm" else norms_in,
            norm_out=norms[first].get("norm_out"),
            stream_scale=self.stream_scale(),
        )
