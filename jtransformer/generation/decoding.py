"""One model call after another: the whole prompt at once, then a token at a time."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jtransformer.generation.inputs import Prompt
from jtransformer.modules import ONE_DEVICE, Placement, build, empty_cache
from jtransformer.spec import DotProduct, Learned, ModelSpec, PrefixDecoder


class Next(NamedTuple):
    """What is known of the next token of every row.

    Attributes:
        logits: Its scores.
        cache: Keys and values of all tokens before it.
    """

    logits: Float[Array, "B V"]
    cache: Any


def prefill(
    model: ModelSpec,
    variables: Any,
    prompt: Prompt,
    *,
    limit: int,
    placement: Placement = ONE_DEVICE,
) -> Next:
    """Reads all prompts in one call; an encoder runs here and never again.

    The cache has room for the prompt and what is added, but for the last token, which nothing
    reads. Layers with a window keep no more than this call needs.
    """
    B, T = prompt.tokens.shape
    valid = prompt.valid
    capacity = T + limit - 1
    if isinstance(model.position, Learned):
        # Padding may be counted in T, and takes no position.
        capacity = min(capacity, model.position.max_length)
    cache = empty_cache(
        model,
        B=B,
        capacity=capacity,
        chunk=T if _has_rings(model) else None,
        source_length=None if prompt.source is None else prompt.source.shape[1],
        dtype=variables["params"]["embedding"]["table"].dtype,
    )
    prefix = None
    if isinstance(model.stack, PrefixDecoder):
        prefix = T if valid is None else jnp.sum(valid, axis=1, dtype=jnp.int32)
    output: Any = build(model, placement).apply(
        variables,
        prompt.tokens,
        valid=valid,
        source=prompt.source,
        source_valid=prompt.source_valid,
        prefix_length=prefix,
        cache=cache,
    )
    if valid is None:
        return Next(output.logits[:, -1], output.cache)
    last_B = T - 1 - jnp.argmax(valid[:, ::-1], axis=1)
    logits = jnp.take_along_axis(output.logits, last_B[:, None, None], axis=1)
    return Next(logits[:, 0], output.cache)


def _has_rings(model: ModelSpec) -> bool:
    """Whether some layers may keep their window alone; layers that are scanned are alike."""
    attention = model.attention
    if not isinstance(attention, DotProduct):
        return False
    of_layer = [attention.window_of(layer) is not None for layer in range(model.layers)]
    return all(of_layer) if model.scan_layers else any(of_layer)


def following(
    model: ModelSpec,
    variables: Any,
    tokens: Int[Array, " B"],
    cache: Any,
    *,
    placement: Placement = ONE_DEVICE,
) -> Next:
    """Reads one more token of every row."""
    output: Any = build(model, placement).apply(variables, tokens[:, None], cache=cache)
    return Next(output.logits[:, 0], output.cache)
