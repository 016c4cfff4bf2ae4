"""Heads: what is computed from the last states.

Sources: tying, Press and Wolf 2016, sec. 3, https://arxiv.org/abs/1608.05859; transform and
pooler, Devlin et al. 2018 (in their code), https://arxiv.org/abs/1810.04805; cap of the logits,
Gemma Team 2024, sec. 2, https://arxiv.org/abs/2408.00118; pooled embeddings, Reimers and Gurevych
2019, sec. 3, https://arxiv.org/abs/1908.10084.
"""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jtransformer import functional as F
from jtransformer.modules.casting import entering, rounded
from jtransformer.modules.layers import Bias, Kernel, Norm, Table, at_least_float32
from jtransformer.modules.placement import ONE_DEVICE, Placement
from jtransformer.spec import Classifier, Embedder, Encoder, ModelSpec, Tagger, TokenHead
from jtransformer.spec.heads import Pooling

SMALLEST_SQUARE = 1e-24
"""Added to a squared length before a vector is divided by its length."""


class HeadOutput(NamedTuple):
    """What a head returns: its scores and what stands for the whole sequence, each or None."""

    logits: Array | None
    pooled: Array | None


def read(
    spec: ModelSpec,
    hidden: Float[Array, "B T D"],
    *,
    table: Float[Array, "V D"],
    valid: Bool[Array, "B T"] | None,
    placement: Placement,
) -> HeadOutput:
    """Computes what the head of a model returns, made in the module that is being called.

    Args:
        spec: The model.
        hidden: The last states.
        table: The embedding table, which a tied head reads.
        valid: False at padding, which is never pooled.
        placement: Where the scores of tokens lie.
    """
    head, pooled = spec.head, None
    hidden = entering(spec, "head", hidden)
    if isinstance(head, Classifier | Embedder):
        pooled = pool(hidden, valid, head.pooling)
    if isinstance(spec.stack, Encoder) and spec.stack.pooler:
        first = pool(hidden, valid, "first")
        dense = _kernel(spec, "pooler", (spec.width, spec.width), bias=True)
        pooled = jnp.tanh(F.linear(first, *dense))
    match head:
        case TokenHead():
            return HeadOutput(_token_logits(spec, hidden, table, placement), pooled)
        case Classifier(classes=classes):
            assert pooled is not None
            kernel = _kernel(spec, "head", (spec.width, classes), bias=True)
            return HeadOutput(F.linear(pooled, *kernel), pooled)
        case Tagger(classes=classes):
            kernel = _kernel(spec, "head", (spec.width, classes), bias=True)
            return HeadOutput(F.linear(hidden, *kernel), pooled)
        case Embedder(embedding_width=width, unit_length=unit_length):
            assert pooled is not None
            if width is not None:
                pooled = F.linear(pooled, *_kernel(spec, "head", (spec.width, width)))
            if unit_length:
                one = jnp.ones((), pooled.dtype)
                pooled = F.scale_norm(pooled, one, epsilon=SMALLEST_SQUARE)
            return HeadOutput(None, pooled)


class Scores(nn.Module):
    """The head of a model that scores tokens, by itself: it reads the parameters of the model.

    Attributes:
        spec: The model.
        placement: Where the scores lie.
    """

    spec: ModelSpec
    placement: Placement = ONE_DEVICE

    @nn.compact
    def __call__(self, hidden: Float[Array, "R D"]) -> Float[Array, "R V"]:
        spec = self.spec
        table = Table(spec, spec.vocabulary, spec.width, name="embedding")()
        table = self.placement.table(table)
        # A place is told for rows and tokens: here each row is one token.
        hidden = entering(spec, "head", hidden)[:, None]
        return _token_logits(spec, hidden, table, self.placement)[:, 0]


def _kernel(
    spec: ModelSpec, name: str, shape: tuple[int, int], *, bias: bool = False
) -> tuple[Array, Array | None]:
    return Kernel(spec, shape, bias=bias, precision=spec.precision.head, name=name)()


def _token_logits(spec: ModelSpec, hidden: Array, table: Array, placement: Placement) -> Array:
    head, precision = spec.head, spec.precision.head
    assert isinstance(head, TokenHead)
    D, V, rows = spec.width, spec.vocabulary, placement.rows
    if head.transform:
        dense = _kernel(spec, "head_transform", (D, D), bias=head.transform_bias)
        hidden = Norm(spec, name="head_norm")(F.gelu(F.linear(hidden, *dense, rows=rows)))
    if head.tied:
        bias = rounded(Bias(spec, V, name="head")(), precision) if head.bias else None
        scale = D**-0.5 if head.scale_down else None
        logits = F.readout(hidden, rounded(table, precision), bias, scale=scale, rows=rows)
    else:
        logits = F.linear(hidden, *_kernel(spec, "head", (D, V), bias=head.bias), rows=rows)
    logits = placement.logits(logits)
    if head.soft_cap is None:
        return logits
    return head.soft_cap * jnp.tanh(logits / head.soft_cap)


def pool(
    hidden: Float[Array, "B T D"], valid: Bool[Array, "B T"] | None, pooling: Pooling
) -> Float[Array, "B D"]:
    """Returns the state that stands for each sequence; zeros for one without a token.

    Args:
        hidden: Its states.
        valid: False at padding; None is none.
        pooling: "first" or "last" real token, "mean" or "max" over all of them.
    """
    B, T, _ = hidden.shape
    real = jnp.ones((B, T), bool) if valid is None else valid
    seen = jnp.any(real, axis=1)[:, None]
    if pooling in ("first", "last"):
        index = jnp.argmax(real, axis=1)
        if pooling == "last":
            index = T - 1 - jnp.argmax(real[:, ::-1], axis=1)
        state = jnp.take_along_axis(hidden, index[:, None, None], axis=1)[:, 0]
    elif pooling == "mean":
        count = jnp.maximum(jnp.sum(real, axis=1), 1)[:, None]
        raised = jnp.where(real[:, :, None], hidden, 0).astype(at_least_float32(hidden.dtype))
        state = (jnp.sum(raised, axis=1) / count.astype(raised.dtype)).astype(hidden.dtype)
    else:
        lowest = float(jnp.finfo(hidden.dtype).min)
        state = jnp.max(jnp.where(real[:, :, None], hidden, lowest), axis=1)
    return jnp.where(seen, state, 0)
