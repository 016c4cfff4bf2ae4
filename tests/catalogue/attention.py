"""Rows of dot-product attention and of its weights."""

import math
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from catalogue.row import B, H, Hv, K, N, Row, S, T
from jtransformer import functional as F
from jtransformer.functional import attention

HEADS = ((B, T, N, H), (B, S, K, H), (B, S, K, Hv))
GENERATOR = np.random.default_rng(0)


def drawn(mask, b, n, t, s):
    """Whether query t of head n may look at key s, read off a mask or a `Visibility`."""
    if mask is None:
        return True
    if not isinstance(mask, F.Visibility):
        mask = np.asarray(mask)
        mask = mask[None, None] if mask.ndim == 2 else mask
        index = (b, n, t, s)
        return mask[tuple(i if size > 1 else 0 for i, size in zip(index, mask.shape, strict=True))]

    def at(name, place):
        """The entry of row b, where an array may have one row for all."""
        array = np.asarray(getattr(mask, name))
        row = array if array.ndim == 0 else array[b if len(array) > 1 else 0]
        return row if place is None else row[place]

    i, j = at("query_positions", t), at("key_positions", s)
    looks = [not mask.causal or j <= i]
    if mask.prefix_length is not None:
        length = at("prefix_length", None)
        looks = [j < length if i < length else j <= i]
    if mask.window is not None:
        looks.append(abs(int(i) - int(j)) < mask.window)
    if mask.query_segments is not None:
        looks.append(at("query_segments", t) == at("key_segments", s))
    if mask.key_valid is not None:
        looks.append(at("key_valid", s))
    return all(looks)


def scores(q, k, *, bias=None, scale=None, soft_cap=None):
    """One score after the other."""
    out = np.zeros((B, N, T, S))
    for b, n, t, s in np.ndindex(B, N, T, S):
        key = k[b, s, n // (N // k.shape[2])]
        score = sum(x * y for x, y in zip(q[b, t, n], key, strict=True))
        score *= 1 / math.sqrt(H) if scale is None else scale
        if soft_cap is not None:
            score = soft_cap * math.tanh(score / soft_cap)
        if bias is not None:
            score += float(np.broadcast_to(np.asarray(bias), out.shape)[b, n, t, s])
        out[b, n, t, s] = score
    return out


def weights(q, k, *, mask=None, **options):
    """One row after the other."""
    out, each = np.zeros((B, N, T, S)), scores(q, k, **options)
    for b, n, t in np.ndindex(B, N, T):
        visible = [s for s in range(S) if drawn(mask, b, n, t, s)]
        exponentials = {s: math.exp(each[b, n, t, s]) for s in visible}
        for s, exponential in exponentials.items():
            out[b, n, t, s] = exponential / sum(exponentials.values())
    return out


def attended(q, k, v, *, dropout_rate=0, key=None, heads_on=None, backend=None, **options):
    """A sum over the keys of weight times value."""
    each = weights(q, k, **options)
    if key is not None:
        each /= 1 - dropout_rate
        each[~np.asarray(jax.random.bernoulli(key, 1 - dropout_rate, each.shape))] = 0
    out = np.zeros((B, T, N, Hv))
    for b, t, n, s in np.ndindex(B, T, N, S):
        if heads_on is None or heads_on[n]:
            out[b, t, n] += each[b, n, t, s] * v[b, s, n // (N // v.shape[2])]
    return out


def biased(q, k, v, bias, **options):
    return F.dot_product_attention(q, k, v, bias=bias, **options)


def in_blocks(q, k, v, bias, **options):
    """Attention in a block of two queries and a rest of one."""
    with mock.patch.object(attention, "block_rows", lambda shape: 2):
        return biased(q, k, v, bias, backend="blockwise", **options)


def sight(mask):
    """What is seen by any head, as `B T S`."""
    seen = [any(drawn(mask, b, n, t, s) for n in range(N)) for b, t, s in np.ndindex(B, T, S)]
    return np.reshape(seen, (B, T, S))


def row(function=F.dot_product_attention, shapes=HEADS, mask=None, **rest):
    """A row of `attended`; its mask says what it sees."""
    options = rest.pop("options", {}) | ({} if mask is None else {"mask": mask})
    reference = rest.pop("reference", attended)
    rest = {"batched": 3, "sees_BTS": sight(mask), "of": "dot_product_attention", **rest}
    return Row(function, shapes, reference, options=options, **rest)


def with_bias(q, k, v, bias, **options):
    return attended(q, k, v, bias=bias, **options)


# Causal, aligned to the end, padded; a query of one head sees nothing, and one of all heads.
VALID = np.array([[True, True, False, True, True], [True, True, False, False, False]])
BLIND = np.tril(np.ones((T, S), bool), S - T) & VALID[:, None, None]
BLIND = np.repeat(BLIND, N, axis=1)
BLIND[0, 1, 2] = BLIND[1, :, 0] = False
BLIND = jnp.array(BLIND)

QUERIES = jnp.array([[2, 3, 4], [0, 2, 3]])
KEYS = jnp.array([[0, 1, 2, 3, 4]])
WINDOWED = F.Visibility(
    QUERIES,
    KEYS,
    window=3,
    query_segments=jnp.array([[0, 0, 1], [1, 1, 2]]),
    key_segments=jnp.array([[0, 0, 0, 0, 1], [0, 1, 1, 1, 2]]),
)
PREFIXED = F.Visibility(QUERIES, KEYS, prefix_length=jnp.array([4, 0]), key_valid=jnp.array(VALID))
AROUND = F.Visibility(QUERIES, KEYS, causal=False, window=2)

RATE, KEY = 0.4, jax.random.key(1)
KEPT = np.asarray(jax.random.bernoulli(KEY, 1 - RATE, (B, N, T, S)))
BIAS_NTS = jnp.array(GENERATOR.normal(size=(1, N, T, S)), jnp.float32)
HEADS_ON = jnp.array([True, False, True, True])
ONE_KEY = jnp.arange(S)[None] < 1

LIVE = dict(mask=ONE_KEY, bias=BIAS_NTS, scale=0.2, soft_cap=0.3)
NULL = dict(mask=jnp.ones((T, S), bool), bias=jnp.zeros((1, N, 1, S)), scale=H**-0.5, soft_cap=None)

ROWS = {
    "attention": row(
        live=dict(**LIVE, heads_on=HEADS_ON),
        null=dict(**NULL, heads_on=jnp.ones(N, bool), backend="plain"),
        program=dict(backend="blockwise"),
    ),
    "attention with blind queries": row(mask=BLIND, live=dict(mask=BLIND.at[0, :, 2].set(False))),
    "attention masked by head": row(mask=jnp.array(GENERATOR.random((1, N, 1, S)) < 0.7)),
    "attention capped and scaled": row(
        options=dict(soft_cap=1.5, scale=0.9), live=dict(soft_cap=0.5, scale=0.3)
    ),
    "attention biased": row(biased, (*HEADS, (B, 1, T, S)), reference=with_bias),
    "attention with dropout": row(
        options=dict(dropout_rate=RATE, key=KEY),
        live=dict(dropout_rate=0.7, key=jax.random.key(2)),
        null=dict(dropout_rate=0.0, key=None),
        sees_BTS=KEPT.any(axis=1),
    ),
    "attention with a head off": row(
        options=dict(heads_on=HEADS_ON), live=dict(heads_on=~HEADS_ON)
    ),
    **{
        f"attention of {heads} key heads": row(
            shapes=(HEADS[0], (B, S, heads, H), (B, S, heads, Hv)), live=LIVE
        )
        for heads in (1, N)
    },
    "attention in a window of documents": row(mask=WINDOWED, live=dict(mask=AROUND)),
    "attention around": row(mask=AROUND),
    "attention with a prefix": row(mask=PREFIXED),
    "attention in blocks": row(
        in_blocks, (*HEADS, (1, N, T, S)), BLIND, reference=with_bias, live=dict(heads_on=HEADS_ON)
    ),
    "attention in blocks of broadcast axes": row(
        in_blocks,
        (*HEADS, (B, N, 1, S)),
        jnp.array(VALID)[:, None, None],
        reference=with_bias,
        options=dict(soft_cap=1.5, scale=0.9),
        live=dict(soft_cap=0.5, scale=0.3),
    ),
    "attention in blocks of a visibility": row(
        in_blocks, (*HEADS, (1, 1, T, S)), PREFIXED, reference=with_bias, live=dict(mask=WINDOWED)
    ),
    "attention_scores": Row(
        F.attention_scores,
        HEADS[:2],
        scores,
        batched=2,
        live={name: LIVE[name] for name in ("bias", "scale", "soft_cap")},
        null={name: NULL[name] for name in ("bias", "scale", "soft_cap")},
    ),
    "attention_weights": Row(
        F.attention_weights, HEADS[:2], weights, batched=2, live=LIVE, null=NULL
    ),
    "attention_weights of all": Row(
        F.attention_weights,
        HEADS[:2],
        weights,
        options=dict(mask=BLIND, bias=BIAS_NTS, scale=0.9, soft_cap=1.5),
        live=dict(mask=PREFIXED, bias=-BIAS_NTS, scale=0.3, soft_cap=0.5),
        batched=2,
    ),
}
