"""What arms can be made equal in, each as one figure of a model."""

from typing import Literal, get_args

from jtransformer.accounting.caches import cache_bytes
from jtransformer.accounting.flops import flops
from jtransformer.accounting.parameters import parameters
from jtransformer.spec import Encoder, ModelSpec, SpecError, TokenHead, nearest

Quantity = Literal[
    "parameters", "non_embedding_parameters", "training_flops", "inference_flops", "kv_bytes"
]
"""What may be held equal."""
QUANTITIES: tuple[str, ...] = get_args(Quantity)
"""Each of them, in the order of tables."""
OF_PARAMETERS = QUANTITIES[:2]
"""Those that depend on the model alone; the others are per token of a length."""


def quantity(
    model: ModelSpec,
    name: Quantity,
    *,
    length: int | None = None,
    source_length: int | None = None,
) -> float:
    """Returns one figure of a model; a whole number is an integer.

    Args:
        model: The model.
        name: "parameters": all of them. "non_embedding_parameters": those between embeddings and
            head, see `Parameters.non_embedding`. "training_flops": forward and backward, scores
            as computed, per token. "inference_flops": one more token behind a cache of `length`
            tokens, see `Flops.decoding`; the forward pass per token of what is not decoded, an
            encoder or a model without a token head. "kv_bytes": what a cache of `length` tokens
            holds in the type of attention, divided by them; 0 for an encoder alone.
        length: Tokens of a sequence [T], of the target where there is a source; for the last
            three alone.
        source_length: Tokens of the source [S]; None is `length`.

    Raises:
        SpecError: If the name is unknown, a length is below 1, is missing or would do nothing.
    """
    if name not in QUANTITIES:
        raise SpecError("equal", f"= {name!r} is unknown; {nearest(str(name), QUANTITIES)}.")
    if name in OF_PARAMETERS:
        for what, given in (("length", length), ("source_length", source_length)):
            if given is not None:
                raise SpecError(
                    what,
                    f"= {given} would do nothing, because {name} depend on none; leave it out.",
                )
        counts = parameters(model)
        return counts.total if name == "parameters" else counts.non_embedding
    if length is None:
        raise SpecError(
            "length", f"is missing: {name} are per token of a sequence; give its tokens."
        )
    lengths = {"length": length, "source_length": source_length}
    if name == "kv_bytes":
        held = cache_bytes(model, **lengths)
        return held // length if held % length == 0 else held / length
    figures = flops(model, **lengths)
    if name == "training_flops":
        return figures.training
    decodes = isinstance(model.head, TokenHead) and not isinstance(model.stack, Encoder)
    return figures.decoding if decodes else figures.forward
