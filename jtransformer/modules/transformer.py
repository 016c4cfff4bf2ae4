"""The Transformer: embeddings, one stack or two, and a head, as the spec says.

Sources: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762; token types, Devlin et al. 2018,
sec. 3, https://arxiv.org/abs/1810.04805.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jtransformer import functional as F
from jtransformer.functional.dropout import DropoutKey
from jtransformer.modules import heads
from jtransformer.modules.cache import DecodingCache, Step
from jtransformer.modules.context import memory_mask
from jtransformer.modules.dropping import DropoutRates, Dropping
from jtransformer.modules.initial import initial_values
from jtransformer.modules.inputs import Call, advanced, check_call, positions_of
from jtransformer.modules.intermediates import wanted, within
from jtransformer.modules.layers import Table
from jtransformer.modules.parts import Part, parts_of
from jtransformer.modules.placement import ONE_DEVICE, Placement
from jtransformer.modules.stack import Reads, Stack, through
from jtransformer.spec import Encoder, EncoderDecoder, ModelSpec, PrefixDecoder


class Output(NamedTuple):
    """What a model returns.

    Attributes:
        logits: Scores of every token id at every position; of classes, `B C` for a classifier and
            `B T C` for a tagger; None for an embedder.
        hidden: The stream that the head reads, `B T D`.
        pooled: What stands for the whole sequence, `B D`; None where nothing is pooled.
        memory: Last states of the encoder, `B S D`; None without one, or where they are in the
            cache.
        cache: The cache, the tokens of the call included; None without one.
        intermediates: The values that were asked for, by name.
    """

    logits: Array | None
    hidden: Array
    pooled: Array | None = None
    memory: Array | None = None
    cache: DecodingCache | None = None
    intermediates: dict[str, Array] | None = None


class Transformer(nn.Module):
    """A model as its spec says; built by `jtransformer.modules.build`.

    Attributes:
        spec: What it is.
        placement: Where its activations lie.
    """

    spec: ModelSpec
    placement: Placement = ONE_DEVICE

    @nn.nowrap
    def init(
        self, rngs: Any, tokens: Int[Array, "B T"], *, source: Int[Array, "B S"] | None = None
    ) -> Any:
        """Draws the parameters; see `jtransformer.modules.initial` for which values.

        Inside another linen module these values are drawn by linen instead: from the same
        distributions, but from keys that depend on what the outer module holds.

        Args:
            rngs: A key, or `{"params": key}`.
            tokens: Any tokens of the right rank; their values do not matter.
            source: Any source, likewise; it may be left out.

        Returns:
            `{"params": tree}`.
        """
        key = rngs["params"] if isinstance(rngs, dict) else rngs
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.wrap_key_data(key)
        given: dict[str, Any] = {}
        if isinstance(self.spec.stack, EncoderDecoder):
            shape = tokens.shape[:1] + (1,)
            given["source"] = jnp.zeros(shape, jnp.int32) if source is None else source
        if isinstance(self.spec.stack, PrefixDecoder):
            given["prefix_length"] = jnp.zeros((), jnp.int32)
        shapes = jax.eval_shape(super().init, {"params": key}, tokens, **given)
        flat = self.placement.mesh is None
        return {"params": initial_values(self.spec, key, shapes["params"], flat=flat)}

    @nn.compact
    def __call__(
        self,
        tokens: Int[Array, "B T"] | None,
        *,
        positions: Int[Array, "#B T"] | None = None,
        valid: Bool[Array, "B T"] | None = None,
        segments: Int[Array, "B T"] | None = None,
        source: Int[Array, "B S"] | None = None,
        source_valid: Bool[Array, "B S"] | None = None,
        source_segments: Int[Array, "B S"] | None = None,
        source_positions: Int[Array, "#B S"] | None = None,
        prefix_length: int | Int[Array, ""] | Int[Array, "#B"] | None = None,
        token_types: Int[Array, "B T"] | None = None,
        embeddings: Float[Array, "B T D"] | None = None,
        source_embeddings: Float[Array, "B S D"] | None = None,
        cache: DecodingCache | None = None,
        ordered: bool = False,
        key: DropoutKey | None = None,
        dropout_rates: DropoutRates | None = None,
        intermediates: Sequence[str] = (),
    ) -> Output:
        """Computes the scores of the head, and what else is asked for.

        Args:
            tokens: Token ids in 0 … V - 1; those of the target where there is a source. None
                where `embeddings` are given.
            positions: Position of each token. Where not given they count the real tokens of each
                row, 0, 1, 2 …, or go on from the cache.
            valid: False at padding, which no token then sees and no cache keeps.
            segments: Document of each token; tokens see their own document only.
            source: Token ids for the encoder, where there is one. With a cache, in the first
                call alone.
            source_valid: False at the padding of the source.
            source_segments: Document of each token of the source; a target reads its own.
            source_positions: As `positions`, for the source.
            prefix_length: Tokens of the prefix, for a prefix decoder: one number, or one per row.
                With a cache, in the first call alone, which holds the whole prefix.
            token_types: Row of the table of token types for each token; None is row 0.
            embeddings: Continuous inputs in the place of the rows that tokens look up.
            source_embeddings: The same, in the place of `source`.
            cache: What earlier calls left, from `empty_cache`.
            ordered: Promises that in each row, or each document of it, the real tokens lie one
                behind the other as their positions count; so do those of `jtransformer.data`. What
                a token sees is then told by its place, which kernels for attention need: real
                tokens see the same, padding sees other tokens. No promise is needed where neither
                positions nor padding are given.
            key: Key of the dropout, or one for each row; None is evaluation, which drops nothing.
            dropout_rates: In the place of those of the spec that are not 0.
            intermediates: Names of values to return, or patterns of them; see
                `jtransformer.modules.intermediates`.

        Raises:
            ValueError: If the model cannot answer such a call.
        """
        call = Call(
            tokens=tokens,
            positions=positions,
            valid=valid,
            segments=segments,
            source=source,
            source_valid=source_valid,
            source_segments=source_segments,
            source_positions=source_positions,
            prefix_length=prefix_length,
            token_types=token_types,
            embeddings=embeddings,
            source_embeddings=source_embeddings,
            cache=cache,
            ordered=ordered,
        )
        dropping = None if key is None else Dropping(key, dropout_rates)
        return self.answer(call, dropping, wanted(self.spec, intermediates, call))

    def answer(self, call: Call, dropping: Dropping | None, names: tuple[str, ...]) -> Output:
        """Answers a call that has been put together."""
        spec, (encoder, main) = self.spec, parts_of(self.spec)
        check_call(spec, call)
        table_VD = Table(spec, spec.vocabulary, spec.width, name="embedding")()
        table_VD = self.placement.table(table_VD)
        kept: dict[str, Array] = {}
        memory = None
        if encoder is not None and call.source_shape is not None:
            x = self.source_embedded(call, table_VD)
            positions = positions_of(x.shape[1], call.source_positions, call.source_valid)
            reads = Reads(
                positions,
                call.source_valid,
                call.source_segments,
                dropping=dropping,
                placement=self.placement,
                by_place=call.by_place(call.source_positions, call.source_valid),
            )
            memory, _ = self.passed(encoder, x, reads, names, kept)
        step = None if call.cache is None else advanced(call)
        x = self.embedded(call, table_VD)
        reads = reads_of(call, step, memory, dropping)._replace(placement=self.placement)
        hidden, caches = self.passed(main, x, reads, names, kept)
        found = heads.read(spec, hidden, table=table_VD, valid=call.valid, placement=self.placement)
        if found.logits is not None:
            kept["logits"] = found.logits
        return Output(
            logits=found.logits,
            hidden=hidden,
            pooled=found.pooled,
            memory=memory,
            cache=None if step is None else dataclasses.replace(step.cache, layers=caches),
            intermediates={name: kept[name] for name in names},
        )

    def passed(
        self,
        part: Part,
        x: Array,
        reads: Reads,
        names: tuple[str, ...],
        kept: dict[str, Array],
    ) -> tuple[Array, Any]:
        """Passes tokens through a stack, which has a name of its own if it is one of two."""
        prefix = f"{part.scope}/" if part.scope else ""
        wanted = within(frozenset(names), prefix)
        if part.scope:
            x, caches, found = Stack(self.spec, part, wanted, name=part.scope)(x, reads)
        else:
            x, caches, found = through(self.spec, part, x, reads, wanted)
        kept.update({prefix + name: value for name, value in found.items()})
        return x, caches

    def embedded(self, call: Call, table_VD: Array) -> Array:
        """Looks the tokens up; positions are added by their stack."""
        spec = self.spec
        x = self.scaled(call.tokens, call.embeddings, table_VD)
        if not (isinstance(spec.stack, Encoder) and spec.stack.token_types):
            return x
        types = jnp.zeros(call.shape, jnp.int32) if call.token_types is None else call.token_types
        rows = Table(spec, spec.stack.token_types, spec.width, name="token_type")()
        return x + F.embed(types, rows)

    def source_embedded(self, call: Call, table_VD: Array) -> Array:
        """Looks the tokens of the source up, in a table of their own unless it is shared."""
        spec = self.spec
        assert isinstance(spec.stack, EncoderDecoder) and spec.source_vocabulary is not None
        if not spec.stack.share_embedding:
            rows = spec.source_vocabulary
            table_VD = Table(spec, rows, spec.width, name="source_embedding")()
            table_VD = self.placement.table(table_VD)
        return self.scaled(call.source, call.source_embeddings, table_VD)

    def scaled(self, tokens: Array | None, rows: Array | None, table_VD: Array) -> Array:
        scale = math.sqrt(self.spec.width) if self.spec.scale_embedding else None
        if rows is None:
            assert tokens is not None
            return F.embed(tokens, table_VD, scale=scale)
        return rows if scale is None else rows * jnp.asarray(scale, rows.dtype)


def reads_of(
    call: Call, step: Step | None, memory: Array | None, dropping: Dropping | None
) -> Reads:
    """Gathers what the main stack reads, from the call or from what its cache has kept."""
    T = call.shape[1]
    mask = None
    if step is not None and step.cache.source_valid is not None:
        mask = memory_mask(T, step.cache.source_valid.shape[1], step.cache.source_valid)
    elif memory is not None:
        mask = memory_mask(
            T, memory.shape[1], call.source_valid, (call.segments, call.source_segments)
        )
    if step is None:
        positions = positions_of(T, call.positions, call.valid)
        return Reads(
            positions,
            call.valid,
            call.segments,
            prefix_length=call.prefix_length,
            memory=memory,
            memory_mask=mask,
            dropping=dropping,
            by_place=call.by_place(call.positions, call.valid),
        )
    return Reads(
        step.positions,
        step.stored,
        prefix_length=step.cache.prefix_length,
        memory=memory,
        memory_mask=mask,
        caches=step.cache.layers,
        dropping=dropping,
    )


def build(model: ModelSpec, placement: Placement = ONE_DEVICE) -> Transformer:
    """Returns the linen module of a spec; `.init(key, tokens)`, `.apply(variables, tokens)`.

    Args:
        model: What it is.
        placement: Where its activations lie; they have their places under `jax.jit` alone.
    """
    return Transformer(model, placement)
