"""What there is to probe in a model: its stacks, their sublayers and heads, and how they are named.

Stacks are "encoder" and "decoder", whether a model has one of them or both.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jtransformer.modules.initial import ATTENTIONS, LAYER
from jtransformer.modules.intermediates import why_no_weights
from jtransformer.modules.parts import ENCODER, Part, parts_of
from jtransformer.spec import Encoder, ModelSpec


class Sample(NamedTuple):
    """What a model is given, and which of its positions count.

    Attributes:
        tokens: Token ids.
        weights: More than 0 where a label is scored.
        inputs: What else the model takes, by keyword; one entry per row in each.
    """

    tokens: Int[Array, "B T"]
    weights: Float[Array, "B T"]
    inputs: dict[str, Any]

    @property
    def fullest(self) -> Int[Array, ""]:
        """The first of the rows with the most scored positions."""
        return jnp.argmax(jnp.sum(self.weights > 0, axis=1))

    def row(self, index: Int[Array, ""]) -> "Sample":
        """Returns one row, as a sample of one."""
        B = self.tokens.shape[0]

        def one(x: Any) -> Array:
            x = jnp.asarray(x)
            if x.ndim == 0 or x.shape[0] != B:
                return x
            return jax.lax.dynamic_index_in_dim(x, index)

        return Sample(*jax.tree.map(one, tuple(self)))

    def counted(self, part: Part) -> Bool[Array, "B T"]:
        """Returns which positions of a stack count.

        Those that are scored; in the encoder of a source, its real tokens in the rows in which
        any is scored.
        """
        scored = self.weights > 0
        if part.scope != ENCODER:
            return scored
        source = jnp.asarray(self.inputs["source"])
        valid = self.inputs.get("source_valid")
        real = jnp.ones(source.shape, bool) if valid is None else jnp.asarray(valid)
        return real & jnp.any(scored, axis=1, keepdims=True)


class Head(NamedTuple):
    """Where an attention head is."""

    stack: str
    layer: int
    sublayer: str
    head: int


def stacks_of(model: ModelSpec) -> dict[str, Part]:
    """Returns the stacks of a model by their names."""
    encoder, main = parts_of(model)
    if encoder is not None:
        return {encoder.scope: encoder, main.scope: main}
    return {"encoder" if isinstance(model.stack, Encoder) else "decoder": main}


def prefix_of(part: Part) -> str:
    """Returns what stands before the names of a stack's intermediates and heads."""
    return f"{part.scope}/" if part.scope else ""


def attentions_of(part: Part) -> tuple[str, ...]:
    """Returns the attention sublayers of a layer, in their order."""
    return ATTENTIONS if part.cross else ATTENTIONS[:1]


def sublayers_of(part: Part) -> tuple[str, ...]:
    """Returns the sublayers of a layer, in their order."""
    return (*attentions_of(part), "ffn")


def weighted_attentions(model: ModelSpec, part: Part) -> tuple[str, ...]:
    """Returns the attention sublayers that have weights."""
    has_none = why_no_weights(model)
    return tuple(name for name in attentions_of(part) if name == "cross_attention" or not has_none)


def heads_of(model: ModelSpec) -> dict[str, Head]:
    """Returns the heads that have weights, by their names."""
    return {
        f"{prefix_of(part)}{LAYER}{layer}/{sublayer}/head_{head}": Head(
            stack, layer, sublayer, head
        )
        for stack, part in stacks_of(model).items()
        for layer in range(part.layers)
        for sublayer in weighted_attentions(model, part)
        for head in range(model.heads)
    }


def head_names(model: ModelSpec) -> tuple[str, ...]:
    """Returns the names of the heads that have weights, such as `layer_0/attention/head_3`.

    With two stacks `encoder/` or `decoder/` stands before them.
    """
    return tuple(heads_of(model))


def layers_of(part: Part, parameters: Any) -> list[Any]:
    """Returns the parameters of each layer of a stack, out of those of a looped model."""
    own = parameters[part.scope] if part.scope else parameters
    return [own[f"{LAYER}{layer}"] for layer in range(part.layers)]
