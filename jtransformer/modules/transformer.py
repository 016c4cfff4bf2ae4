"""The decoder-only Transformer: embedding, positions, blocks, final norm, head."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jtransformer import functional as F
from jtransformer.modules.initial import initial_values
from jtransformer.modules.layers import Block, Kernel, Norm, Parameterised
from jtransformer.spec import Learned, ModelSpec, NoPosition, Sinusoidal


class Output(NamedTuple):
    """What a model returns.

    Attributes:
        logits: Scores of the next token at every position.
        hidden: The stream that the head reads.
    """

    logits: Float[Array, "B T V"]
    hidden: Float[Array, "B T D"]


class Table(Parameterised):
    """A lookup table [rows, width] that a function reads."""

    rows: int

    @nn.compact
    def __call__(self) -> Float[Array, "rows D"]:
        return self.parameter("table", (self.rows, self.spec.width))


class Transformer(nn.Module):
    """A model as its spec says; built by `jtransformer.modules.build`."""

    spec: ModelSpec

    @nn.nowrap
    def init(self, rngs: Any, tokens: Int[Array, "B T"]) -> Any:
        """Draws the parameters; see `jtransformer.modules.initial` for which values.

        Inside another linen module these values are drawn by linen instead: from the same
        distributions, but from keys that depend on what the outer module holds.

        Args:
            rngs: A key, or `{"params": key}`.
            tokens: Any tokens of the right rank; their values do not matter.

        Returns:
            `{"params": tree}`.
        """
        key = rngs["params"] if isinstance(rngs, dict) else rngs
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.wrap_key_data(key)
        shapes = jax.eval_shape(super().init, {"params": key}, tokens)
        return {"params": initial_values(self.spec, key, shapes["params"])}

    @nn.compact
    def __call__(
        self,
        tokens: Int[Array, "B T"],
        *,
        positions: Int[Array, "B T"] | None = None,
        valid: Bool[Array, "B T"] | None = None,
        segments: Int[Array, "B T"] | None = None,
    ) -> Output:
        """Computes the logits of every next token.

        Args:
            tokens: Token ids in 0 … V - 1.
            positions: Position of each token; 0, 1, 2 … where not given.
            valid: False at padding, which no token then sees.
            segments: Document of each token; tokens see their own document only.
        """
        spec = self.spec
        if positions is None:
            positions = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
        mask = F.visible(
            positions, positions, query_segments=segments, key_segments=segments, key_valid=valid
        )
        table_VD = Table(spec, spec.vocabulary, name="embedding")()
        x = F.embed(tokens, table_VD)
        if spec.scale_embedding:
            x = x * jnp.sqrt(jnp.asarray(spec.width, x.dtype))
        x = self.with_positions(x, positions)
        for layer in range(spec.layers):
            x = Block(spec, name=f"layer_{layer}")(x, mask)
        if spec.has_final_norm:
            x = Norm(spec, name="final_norm")(x)
        if spec.tied_head:
            logits = F.readout(x, table_VD)
        else:
            logits = F.linear(x, *Kernel(spec, (spec.width, spec.vocabulary), name="head")())
        return Output(logits=logits, hidden=x)

    def with_positions(self, x: Float[Array, "B T D"], positions: Int[Array, "#B T"]) -> Array:
        match self.spec.position:
            case NoPosition():
                return x
            case Sinusoidal():
                return x + F.sinusoidal_embedding(positions, x.shape[-1]).astype(x.dtype)
            case Learned(max_length=max_length):
                if positions.shape[1] > max_length:
                    raise ValueError(
                        f"{positions.shape[1]} tokens are more than position.max_length="
                        f"{max_length} learned positions; give a shorter sequence."
                    )
                table = Table(self.spec, max_length, name="position")()
                return x + F.embed(positions, table)


def build(model: ModelSpec) -> Transformer:
    """Returns the linen module of a spec; `.init(key, tokens)`, `.apply(variables, tokens)`."""
    return Transformer(model)
