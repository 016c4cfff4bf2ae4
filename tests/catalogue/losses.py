"""Rows of the cross-entropy: whole, smoothed, and over chunks of positions."""

import math

import jax.numpy as jnp
import numpy as np

from catalogue.row import B, D, Row, T, V
from jtransformer import functional as F

LABELS = np.array([[0, 8, 2], [2, 2, 5]], np.int32)
WEIGHTS = np.array([[1.0, 0.5, 0.0], [2.0, 1.0, 0.0]], np.float32)
# Sums to 1 exactly in every precision; one token has no share.
REFERENCE = np.array([0.25, 0.125, 0.125, 0, 0.125, 0.125, 0.0625, 0.0625, 0.125], np.float32)


def stacked(sums):
    return jnp.stack([sums.loss_sum, sums.nll_sum, sums.z_sum])


def whole(logits, weights, **options):
    return stacked(F.cross_entropy(logits, jnp.array(LABELS), weights, **options))


def by_position(logits, weights, *, label_smoothing=0.0, z_loss=0.0, reference=None):
    """Target distribution times log-probabilities, one position and token after the other."""
    sums = np.zeros(3)
    for index in np.ndindex(LABELS.shape):
        if not weights[index]:
            continue
        scores = logits[index]
        log_z = math.log(sum(math.exp(score) for score in scores))
        loss = z_loss * log_z**2
        for token, score in enumerate(scores):
            share = 1 / len(scores) if reference is None else float(reference[token])
            target = label_smoothing * share
            target += 1 - label_smoothing if token == LABELS[index] else 0
            loss -= target * (score - log_z)
        nll = log_z - scores[LABELS[index]]
        sums += weights[index] * np.array([loss, nll, log_z**2])
    return sums


def chunked(hidden, kernel, *, head, **options):
    sums = F.chunked_cross_entropy(
        hidden,
        jnp.array(LABELS),
        jnp.array(WEIGHTS),
        head=lambda rows: head(rows, kernel),
        **options,
    )
    return stacked(sums)


def from_hidden(hidden, kernel, *, head, chunk_size, **options):
    """The sums over logits that were made for all positions at once."""
    return by_position(head(hidden, kernel), WEIGHTS, **options)


def product(rows, kernel):
    return rows @ kernel


def product_of_squares(rows, kernel):
    return rows**2 @ kernel


SMOOTHED = dict(label_smoothing=0.1, z_loss=0.2)
REFERRED = dict(label_smoothing=0.3, reference=jnp.array(REFERENCE))
NEUTRAL = dict(label_smoothing=0.0, z_loss=0.0)


def sums(**more):
    return Row(
        whole, ((B, T, V), (B, T)), by_position, batched=0, keeps_dtype=False, **more
    )._replace(of="cross_entropy")


def sums_over_chunks(options, **more):
    return Row(
        chunked,
        ((B, T, D), (D, V)),
        from_hidden,
        options=dict(head=product) | options,
        batched=0,
        keeps_dtype=False,
        of="chunked_cross_entropy",
        **more,
    )


ROWS = {
    "cross_entropy": sums(live=SMOOTHED, null=NEUTRAL),
    "cross_entropy smoothed": sums(
        options=SMOOTHED, live=dict(reference=REFERRED["reference"]), null=dict(reference=None)
    ),
    "cross_entropy with a reference": sums(options=REFERRED, live=dict(reference=None)),
    # Six positions: one chunk of four and two left over; three chunks; one piece.
    "chunked_cross_entropy": sums_over_chunks(
        dict(chunk_size=4),
        live=SMOOTHED | dict(head=product_of_squares),
        null=NEUTRAL | dict(chunk_size=1024, reference=None),
        program=dict(chunk_size=3),
    ),
    "chunked_cross_entropy smoothed": sums_over_chunks(
        SMOOTHED | dict(chunk_size=2), live=dict(reference=REFERRED["reference"])
    ),
    "chunked_cross_entropy with a reference": sums_over_chunks(REFERRED | dict(chunk_size=6)),
}
