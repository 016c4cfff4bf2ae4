"""Rows of the norms of queries and keys, and of latent, linear and relative attention."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from catalogue.feed_forward import by_number
from catalogue.row import B, H, Hv, K, N, Row, S, T
from jtransformer import functional as F

C, Hr, M = 7, 2, 5
HEADS = ((B, T, N, H), (B, S, K, H), (B, S, K, Hv))
SQUARE = ((B, S, N, H), (B, S, K, H), (B, S, K, Hv))
GENERATOR = np.random.default_rng(5)
BIAS = GENERATOR.normal(size=(1, N, T, S)).astype(np.float32)
# The last query of the second batch row sees nothing.
SEES = np.array(
    [
        [[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]],
        [[1, 0, 0, 0, 0], [0, 1, 1, 0, 1], [0, 0, 0, 0, 0]],
    ],
    bool,
)
# The first query of the second batch row sees nothing, since its only key is padding.
VALID = np.array([[True, True, False, True, True], [False, True, True, False, True]])
CAUSAL = np.tril(np.ones((S, S), bool)) & VALID[:, None]
DROPPED = dict(dropout_rate=0.3, key=jax.random.key(3))


def unit_length(x, scale, axes, epsilon):
    """A vector of length sqrt(its width), up to epsilon, times the scale."""
    out = np.zeros_like(x)
    lead = x.shape[: x.ndim - axes]
    for index in np.ndindex(*lead):
        width = x[index].size
        squared_length = math.fsum(u * u for u in x[index].flat)
        out[index] = scale * x[index] * math.sqrt(width / (squared_length + width * epsilon))
    return out


def kept(shape, dropout_rate, key):
    """What dropout multiplies the weights with: the draw is JAX's."""
    if key is None:
        return np.ones(shape)
    return np.asarray(jax.random.bernoulli(key, 1 - dropout_rate, shape)) / (1 - dropout_rate)


def softmax_read(q, values, width, score, *, mask=None, dropout_rate=0.0, key=None):
    """One query after the other; `score` and `values` say what it finds at (b, t, n, s)."""
    B, T, N, _ = q.shape
    out, factors = np.zeros((B, T, N, width)), kept((B, N, T, S), dropout_rate, key)
    sees = np.ones((B, N, T, S), bool) if mask is None else np.broadcast_to(mask, (B, N, T, S))
    for b, t, n in np.ndindex(B, T, N):
        found = {s: math.exp(score(b, t, n, s)) for s in range(S) if sees[b, n, t, s]}
        for s, exponential in found.items():
            weight = factors[b, n, t, s] * exponential / sum(found.values())
            out[b, t, n] += weight * values(b, t, n, s)
    return out


def latent_function(q, k_rotary, latent, q_rotary, w_k, w_v, /, **options):
    """The rotary key and the latent have a head axis here, as keys and values do."""
    rotary = dict(q_rotary=q_rotary, k_rotary=k_rotary[:, :, 0])
    return F.latent_attention(q, latent[:, :, 0], w_k, w_v, **{**rotary, **options})


def latent_heads(
    q, k_rotary, latent, q_rotary, w_k, w_v, *, form, bias=None, scale=None, **options
):
    """The paper's form: each head has its own key and value, the rotary key is repeated."""
    scale = 1 / math.sqrt(q.shape[-1] + q_rotary.shape[-1]) if scale is None else scale
    added = np.zeros((1, N, T, S)) if bias is None else np.asarray(bias, float)

    def score(b, t, n, s):
        query = np.concatenate([q[b, t, n], q_rotary[b, t, n]])
        own_key = np.concatenate([w_k[:, n].T @ latent[b, s, 0], k_rotary[b, s, 0]])
        return scale * sum(query * own_key) + added[0, n, t, s]

    def value(b, t, n, s):
        return w_v[:, n].T @ latent[b, s, 0]

    return softmax_read(q, value, Hv, score, **options)


def computed_again(*heads, **options):
    return jax.checkpoint(lambda *given: F.dot_product_attention(*given, **options))(*heads)


def latent(live=None, null=None, program=None, sees_BTS=None, **options):
    shapes = ((B, T, N, H), (B, S, 1, Hr), (B, S, 1, C), (B, T, N, Hr), (C, N, H), (C, N, Hv))
    return Row(
        latent_function,
        shapes,
        latent_heads,
        options=options,
        live=live or {},
        null=null or {},
        program=program or {},
        batched=4,
        sees_BTS=sees_BTS,
        of="latent_attention",
    )


def plain_latent(q, latent, w_k, w_v):
    nothing = np.zeros((B, S, 1, 0)), np.zeros((B, T, N, 0))
    return latent_heads(q, nothing[0], latent[:, :, None], nothing[1], w_k, w_v, form=None)


def kernel_read(q, k, v, *, feature_map=F.elu_plus_one, causal=True, key_valid=None, chunk_size=0):
    """The normalised sum of kernel values, one query and one key after the other."""
    phi = by_number(feature_map)
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, t, n in np.ndindex(*q.shape[:3]):
        group, total = n // (N // K), 0.0
        for s in range(t + 1 if causal else S):
            if key_valid is None or key_valid[b, s]:
                kernel = math.fsum(phi(q[b, t, n]) * phi(k[b, s, group]))
                total += kernel
                out[b, t, n] += kernel * v[b, s, group]
        out[b, t, n] /= total or 1
    return out


def continued(q, k, v, *, key_valid=None, **options):
    """Three tokens, then two more from the state that they leave."""
    dtype = jnp.float64 if q.dtype == jnp.float64 else jnp.float32
    state, outs = F.LinearAttentionState.empty(B, K, H, Hv, dtype=dtype), []
    for tokens in (slice(0, 3), slice(3, S)):
        valid = None if key_valid is None else key_valid[:, tokens]
        state, out = F.linear_attention_step(
            state, q[:, tokens], k[:, tokens], v[:, tokens], key_valid=valid, **options
        )
        outs.append(out)
    return jnp.concatenate(outs, axis=1)


def linear(function, live=None, null=None, shapes=SQUARE, sees_BTS=CAUSAL, **options):
    causal = options.get("causal", True)
    return Row(
        function,
        shapes,
        kernel_read,
        options=options,
        live=dict(feature_map=F.sigmoid, **(live or {})),
        null=dict(feature_map=F.elu_plus_one, key_valid=jnp.ones((1, S), bool), **(null or {})),
        program=dict(chunk_size=1) if causal else {},
        batched=3,
        sees_BTS=sees_BTS,
        of=function.__name__ if function is not continued else "linear_attention_step",
    )


def relative_read(
    q, k, v, key_table, value_table=None, *, query_positions, key_positions, scale=None, **options
):
    """Equations 3 and 4 of the paper, with a row looked up for each pair."""
    scale = H**-0.5 if scale is None else scale

    def row(table, b, t, s):
        query, key = (
            np.broadcast_to(x, (B, x.shape[1]))[b]
            for x in (np.asarray(query_positions), np.asarray(key_positions))
        )
        return table[max(0, min(M - 1, int(key[s]) - int(query[t]) + M // 2))]

    def score(b, t, n, s):
        own_key = k[b, s, n // (N // K)] + row(key_table, b, t, s)
        return scale * math.fsum(q[b, t, n] * own_key)

    def value(b, t, n, s):
        own = v[b, s, n // (N // K)]
        return own if value_table is None else own + row(value_table, b, t, s)

    return softmax_read(q, value, Hv, score, **options)


POSITIONS = dict(
    query_positions=jnp.array([[2, 3, 4], [7, 0, 3]]),
    key_positions=jnp.array([[0, 1, 2, 3, 4], [5, 1, 9, 3, 2]]),
)
MOVED = dict(query_positions=jnp.array([[0, 1, 2]]), key_positions=jnp.array([[3, 1, 2, 0, 4]]))


def relative(*tables, live=None, null=None, sees_BTS=None, **options):
    return Row(
        F.relative_attention,
        (*HEADS, *tables),
        relative_read,
        options={**POSITIONS, **options},
        live=live or {},
        null=null or {},
        batched=3,
        sees_BTS=sees_BTS,
    )


def biases(table):
    """Each head's number for each pair, looked up by a search through the distances."""
    distances = list(range(-(M // 2), M // 2 + 1))
    query, key = (np.asarray(POSITIONS[name]) for name in ("query_positions", "key_positions"))
    out = np.zeros((B, N, T, S))
    for b, t, s in itertools.product(range(B), range(T), range(S)):
        nearest = min(distances, key=lambda d: abs(d - (int(key[b, s]) - int(query[b, t]))))
        out[b, :, t, s] = table[distances.index(nearest)]
    return out


VISIBLE = jnp.array(SEES[:, None])
EVERYTHING = jnp.ones((T, S), bool)
OTHER_DROPS = dict(dropout_rate=0.6, key=jax.random.key(4))
NO_DROPS = dict(dropout_rate=0.0, key=None)

ROWS = {
    "head_norm": Row(
        F.head_norm,
        ((B, T, N, H), (H,)),
        lambda x, scale, epsilon: unit_length(x, scale, 1, epsilon),
        options=dict(epsilon=1e-6),
        live=dict(epsilon=0.3),
        null=dict(epsilon=1e-6),
    ),
    "width_norm": Row(
        F.width_norm,
        ((B, T, N, H), (N, H)),
        lambda x, scale, epsilon: unit_length(x, scale, 2, epsilon),
        options=dict(epsilon=0.1),
        live=dict(epsilon=1.5),
        null=dict(epsilon=1e-6),
    ),
    "latent attention": latent(
        form="expanded",
        **DROPPED,
        live=dict(
            q_rotary=jnp.ones((B, T, N, Hr)),
            k_rotary=jnp.arange(S * Hr, dtype=jnp.float32).reshape(1, S, Hr).repeat(B, 0),
            mask=VISIBLE,
            bias=jnp.array(BIAS),
            scale=1.0,
            **OTHER_DROPS,
        ),
        null=dict(
            mask=EVERYTHING,
            bias=jnp.zeros((1, N, 1, S)),
            scale=(H + Hr) ** -0.5,
            form="expanded",
            attend=F.dot_product_attention,
            **NO_DROPS,
        ),
        program=dict(form="absorbed", attend=computed_again),
    ),
    "latent attention masked": latent(form="expanded", mask=VISIBLE, sees_BTS=SEES),
    "latent attention absorbed": latent(
        form="absorbed", mask=VISIBLE, bias=jnp.array(BIAS), scale=0.9, sees_BTS=SEES
    ),
    "latent attention without rotary part": Row(
        F.latent_attention,
        ((B, T, N, H), (B, S, C), (C, N, H), (C, N, Hv)),
        plain_latent,
        null=dict(q_rotary=None, k_rotary=None),
        batched=2,
    ),
    "linear attention": linear(
        F.linear_attention,
        chunk_size=2,
        key_valid=jnp.array(VALID),
        live=dict(causal=False, key_valid=jnp.array(VALID[::-1])),
        null=dict(causal=True),
    ),
    "linear attention of all keys": linear(
        F.linear_attention,
        causal=False,
        shapes=HEADS,
        sees_BTS=np.ones((B, T, S), bool),
        null=dict(chunk_size=64),
    ),
    "linear attention by steps": linear(
        continued,
        key_valid=jnp.array(VALID),
        live=dict(key_valid=jnp.array(VALID[::-1])),
        null=dict(chunk_size=64),
    ),
    "relative keys": relative(
        (M, H),
        **DROPPED,
        live=dict(**MOVED, mask=VISIBLE, scale=1.0, **OTHER_DROPS),
        null=dict(mask=EVERYTHING, scale=H**-0.5, **NO_DROPS),
    ),
    "relative keys and values": relative((M, H), (M, Hv), mask=VISIBLE, sees_BTS=SEES),
    "relative_bias": Row(
        lambda table: F.relative_bias(table, **POSITIONS),
        ((M, N),),
        biases,
        batched=0,
        of="relative_bias",
    ),
}
