"""What the tests of probes measure: batches with padding and unscored positions, and their loss."""

import jax
import jax.numpy as jnp
import numpy as np
from tiny_model import B, S, T, V, drawn

from jtransformer import functional as F
from jtransformer.modules import build
from jtransformer.probes import Sample
from jtransformer.spec import Encoder, EncoderDecoder, PrefixDecoder

LENGTHS, SOURCE_LENGTHS = (T, T - 2), (S - 1, S)
"""Real tokens of each row; the last row has padding, the first the longer text."""


def sample_of(spec, *, vocabulary=V, source_vocabulary=V, seed=0, rows=1):
    """Draws `2 rows` rows, each second one padded, in which some real positions are not scored."""
    draw = np.random.default_rng(seed)
    lengths = np.tile(LENGTHS, rows)
    valid = np.arange(T) < lengths[:, None]
    weights = valid & (np.arange(T) != 2) & (np.arange(T) < lengths[:, None] - 1)
    inputs = {"valid": valid}
    if isinstance(spec.stack, EncoderDecoder):
        inputs["source"] = draw.integers(source_vocabulary, size=(B * rows, S)).astype(np.int32)
        inputs["source_valid"] = np.arange(S) < np.tile(SOURCE_LENGTHS, rows)[:, None]
    if isinstance(spec.stack, PrefixDecoder):
        inputs["prefix_length"] = np.tile(np.int32([2, 3]), rows)
        weights &= np.arange(T) >= inputs["prefix_length"][:, None]
    tokens = draw.integers(vocabulary, size=(B * rows, T)).astype(np.int32)
    return jax.tree.map(jnp.asarray, Sample(tokens, weights.astype(np.float32), inputs))


def loss_of(spec, sample):
    """Returns the loss of a sample as a function of the parameters: of the next token, or any."""

    def loss(parameters):
        output = build(spec).apply({"params": parameters}, sample.tokens, **sample.inputs)
        if spec.head.kind != "tokens":
            return sum(
                jnp.sum(jnp.square(x)) for x in (output.logits, output.pooled) if x is not None
            )
        labels = jnp.roll(sample.tokens, -1, axis=1)
        sums = F.cross_entropy(output.logits, labels, sample.weights)
        return sums.loss_sum / sums.weight_sum

    return loss


def parameters_of(spec):
    return drawn(spec)["params"]


def masks_of(spec, sample):
    """Says which positions of each stack count, from what `sample_of` has drawn."""
    main = "encoder" if isinstance(spec.stack, Encoder) else "decoder"
    masks = {main: np.asarray(sample.weights) > 0}
    if isinstance(spec.stack, EncoderDecoder):
        masks["encoder"] = np.asarray(sample.inputs["source_valid"])
    return masks
