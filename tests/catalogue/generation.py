"""Rows of the sampling distribution, of the length penalty, and of attention through a cache."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from catalogue.row import B, H, Hv, K, N, Row, S, T, V
from jtransformer import functional as F

LENGTHS = np.array([[1, 4, 9], [2, 3, 17]], np.int32)


def probabilities(logits, **options):
    """Probabilities, since a difference of two logarithms of 0 is no number."""
    return jnp.exp(F.sampling_log_probabilities(logits, **options))


def cut_down(logits, *, temperature=1.0, top_k=None, top_p=None, min_p=None):
    """Takes the tokens in the order of their probability for as long as all filters let it."""
    out = np.zeros_like(logits)
    for index in np.ndindex(logits.shape[:-1]):
        powers = [math.exp(score) ** (1 / temperature) for score in logits[index]]
        ranked = sorted(range(len(powers)), key=lambda token: (-powers[token], token))[:top_k]
        left, reached, kept = sum(powers[token] for token in ranked), 0.0, []
        for token in ranked:
            enough = top_p is not None and reached >= top_p * left
            if enough or powers[token] < (min_p or 0) * powers[ranked[0]]:
                break
            kept.append(token)
            reached += powers[token]
        for token in kept:
            out[(*index, token)] = powers[token] / reached
    return out


def mean_by_length(sums, *, alpha, form="power"):
    out = np.zeros_like(sums)
    for index in np.ndindex(sums.shape):
        length = int(LENGTHS[index])
        counted = length if form == "power" else (5 + length) / 6
        out[index] = sums[index] / math.exp(alpha * math.log(counted))
    return out


WINDOW, PARTS = 2, (2, 2, 1)


# Compiled, because every step alone would compile anew for its shapes.
@jax.jit
def through_ring(q, k, v):
    """Attention of the last T of S tokens, which pass through a ring in parts."""
    cache = F.KVCache.create(B=B, K=K, H=H, Hv=Hv, window=WINDOW, chunk=max(PARTS), dtype=k.dtype)
    outs, start = [], 0
    for size in PARTS:
        positions = cache.next_positions(size)
        cache = cache.append(k[:, start : start + size], v[:, start : start + size])
        slots = cache.read()
        # The queries are the last tokens; the first S - T tokens have none.
        own = q[:, max(start - (S - T), 0) : max(start + size - (S - T), 0)]
        sees = F.visible(
            positions[:, size - own.shape[1] :],
            slots.positions,
            key_valid=slots.valid,
            window=WINDOW,
        )
        outs.append(F.dot_product_attention(own, slots.k, slots.v, mask=sees))
        start += size
    return jnp.concatenate(outs, axis=1)


def seen():
    """Query t is token S - T + t, which sees itself and the tokens less than a window away."""
    sees_TS = np.zeros((T, S), bool)
    for t in range(T):
        for s in range(S):
            sees_TS[t, s] = 0 <= S - T + t - s < WINDOW
    return np.broadcast_to(sees_TS, (B, T, S))


def one_query_at_a_time(q, k, v):
    out = np.zeros((B, T, N, Hv))
    for b, t, n in np.ndindex(B, T, N):
        group = n // (N // K)
        powers = [
            math.exp(q[b, t, n] @ k[b, s, group] / math.sqrt(H)) * seen()[b, t, s] for s in range(S)
        ]
        out[b, t, n] = sum(p * v[b, s, group] for s, p in enumerate(powers)) / sum(powers)
    return out


def distribution(**more):
    return Row(
        probabilities,
        ((B, T, V),),
        cut_down,
        keeps_dtype=False,
        of="sampling_log_probabilities",
        **more,
    )


ROWS = {
    "sampling_log_probabilities": distribution(
        live=dict(temperature=0.5, top_k=3, top_p=0.5, min_p=0.3),
        null=dict(temperature=1.0, top_k=99, top_p=1.0, min_p=0.0),
    ),
    "sampling_log_probabilities cut down": distribution(
        options=dict(temperature=0.8, top_k=7, top_p=0.9, min_p=0.1)
    ),
    "length_normalised": Row(
        lambda sums, **options: F.length_normalised(sums, jnp.array(LENGTHS), **options),
        ((B, T),),
        mean_by_length,
        options=dict(alpha=0.6),
        live=dict(alpha=1.0, form="gnmt"),
        null=dict(form="power"),
        of="length_normalised",
    ),
    "length_normalised gnmt": Row(
        lambda sums, **options: F.length_normalised(sums, jnp.array(LENGTHS), **options),
        ((B, T),),
        mean_by_length,
        options=dict(alpha=0.6, form="gnmt"),
        of="length_normalised",
    ),
    "attention through a ring": Row(
        through_ring,
        ((B, T, N, H), (B, S, K, H), (B, S, K, Hv)),
        one_query_at_a_time,
        batched=3,
        sees_BTS=seen(),
        of="dot_product_attention",
    ),
}
