"""Heads: what is computed from the last states.

Sources: tying, Press and Wolf 2016, sec. 3, https://arxiv.org/abs/1608.05859; transform and
pooler, Devlin et al. 2018 (in their code), https://arxiv.org/abs/1810.04805; cap of the logits,
Gemma Team 2024, sec. 2, https://arxiv.org/abs/2408.00118; pooled embeddings, Reimers and Gurevych
2019, sec. 3, https://arxiv.org/abs/1908.10084.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jtransformer import functional as F
from jtransformer.modules.layers import Bias, Kernel, Norm, at_least_float32
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
) -> HeadOutput:
    """Computes what the head of a model returns, made in the module that is being called.

    Args:
        spec: The model.
        hidden: The last states.
        table: The embedding table, which a tied head reads.
        valid: False at padding, which is never pooled.
    """
    head, pooled = spec.head, None
    if isinstance(head, Classifier | Embedder):
        pooled = pool(hidden, valid, head.pooling)
    if isinstance(spec.stack, Encoder) and spec.stack.pooler:
        first = pool(hidden, valid, "first")
        dense = Kernel(spec, (spec.width, spec.width), bias=True, name="pooler")
        pooled = jnp.tanh(F.linear(first, *dense()))
    match head:
        case TokenHead():
            return HeadOutput(_token_logits(spec, head, hidden, table), pooled)
        case Classifier(classes=classes):
            assert pooled is not None
            kernel = Kernel(spec, (spec.width, classes), bias=True, name="head")
            return HeadOutput(F.linear(pooled, *kernel()), pooled)
        case Tagger(classes=classes):
            kernel = Kernel(spec, (spec.width, classes), bias=True, name="head")
            return HeadOutput(F.linear(hidden, *kernel()), pooled)
        case Embedder(embedding_width=width, unit_length=unit_length):
            assert pooled is not None
            if width is not None:
                pooled = F.linear(pooled, *Kernel(spec, (spec.width, width), name="head")())
            if unit_length:
                one = jnp.ones((), pooled.dtype)
                pooled = F.scale_norm(pooled, one, epsilon=SMALLEST_SQUARE)
            return HeadOutput(None, pooled)


def _token_logits(spec: ModelSpec, head: TokenHead, hidden: Array, table: Array) -> Array:
    D, V = spec.width, spec.vocabulary
    if head.transform:
        dense = Kernel(spec, (D, D), bias=True, name="head_transform")
        hidden = Norm(spec, name="head_norm")(F.gelu(F.linear(hidden, *dense())))
    if head.tied:
        bias = Bias(spec, V, name="head")() if head.bias else None
        scale = D**-0.5 if head.scale_down else None
        logits = F.readout(hidden, table, bias, scale=scale)
    else:
        logits = F.linear(hidden, *Kernel(spec, (D, V), bias=head.bias, name="head")())
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
