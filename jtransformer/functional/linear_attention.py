"""Linear attention: the softmax replaced by a product of features, at a cost linear in length.

With a weight `φ(q) φ(k)` in the place of `exp(q k)` the sum over the keys can be formed before
any query is known. Without causality it is one matrix per head; with causality it grows token
by token, and what decoding has to keep is that sum, whose size does not depend on the length.

Source: Katharopoulos et al. 2020, sec. 3.2 to 3.4, https://arxiv.org/abs/2006.16236. Where we
differ: the causal sum goes through chunks of tokens, quadratic inside a chunk, which is the
same function; no epsilon is added to the normaliser, and where it is zero the answer is zero.
Values must be finite, later ones too, since inside a chunk they are multiplied by zero; and
features whose products fall below the smallest float count as zero.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from jtransformer.functional._arrays import raised_dtype, statistics_dtype, with_rank
from jtransformer.functional._weights import check_heads
from jtransformer.functional.activations import elu_plus_one

FeatureMap = Callable[[Float[Array, "..."]], Float[Array, "..."]]
"""Maps the last axis, of width H, to features that are not negative, of any width C."""


class LinearAttentionState(NamedTuple):
    """What a causal linear attention keeps of the tokens it has read.

    Attributes:
        sums: `Σ_s φ(k_s) v_sᵀ`, with the axes B K C Hv, in at least float32.
        normaliser: `Σ_s φ(k_s)`, with the axes B K C.
    """

    sums: Float[Array, "B K C Hv"]
    normaliser: Float[Array, "B K C"]

    @classmethod
    def empty(
        cls, B: int, K: int, C: int, Hv: int, *, dtype: DTypeLike = jnp.float32
    ) -> "LinearAttentionState":
        """Returns the state before the first token.

        Args:
            B: Batch.
            K: Key and value heads.
            C: Width of the features; that of a key head for `elu_plus_one`.
            Hv: Width of a value head.
            dtype: In which the tokens are added up; at least float32.

        Raises:
            ValueError: If `dtype` is no floating-point type of at least 32 bits.
        """
        if not jnp.issubdtype(dtype, jnp.floating) or raised_dtype(dtype) != jnp.dtype(dtype):
            raise ValueError(
                f"dtype must be a floating-point type of at least 32 bits, got dtype={dtype}; the "
                "sums lose what they add in fewer."
            )
        return cls(jnp.zeros((B, K, C, Hv), dtype), jnp.zeros((B, K, C), dtype))


def linear_attention(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K Hv"],
    *,
    feature_map: FeatureMap = elu_plus_one,
    causal: bool = True,
    key_valid: Bool[Array, "#B S"] | None = None,
    chunk_size: int = 64,
) -> Float[Array, "B T N Hv"]:
    """Reads the values with weights in proportion to `φ(q) φ(k)`.

    `Σ_s (φ(q_t) φ(k_s)) v_s / Σ_s φ(q_t) φ(k_s)`, over all s, or over s <= t. Query head n reads
    key and value head `n // (N // K)`.

    Args:
        q: Queries; no scale is applied to them.
        k: Keys.
        v: Values; a value head may have a width of its own.
        feature_map: The φ.
        causal: Whether a query reads its own and earlier tokens only.
        key_valid: Which keys are real tokens and no padding; None is all.
        chunk_size: How many tokens the causal form reads at once. It changes time and memory,
            not the function.

    Returns:
        What each query head read, in `q.dtype`; features and sums are at least float32. A query
        whose weights are all zero, as where it sees no valid key, gets zeros and sends back zero
        gradients.

    Raises:
        ValueError: If shapes do not fit, N is no multiple of K, `key_valid` is not boolean, or,
            in the causal form, T differs from S or `chunk_size` is below 1.
    """
    _check(q, k, v, key_valid)
    dtype = statistics_dtype(q)
    q_features, k_features, v_raised = _features(
        q, k, v, dtype=dtype, feature_map=feature_map, key_valid=key_valid
    )
    K, C = k_features.shape[2:]
    if causal:
        state = LinearAttentionState.empty(q.shape[0], K, C, v.shape[-1], dtype=dtype)
        out = _scan(state, q_features, k_features, v_raised, chunk_size)[1]
    else:
        sums = jnp.einsum("BSKC,BSKV->BKCV", k_features, v_raised)
        read = jnp.einsum("BTKGC,BKCV->BTKGV", q_features, sums)
        total = jnp.einsum("BTKGC,BKC->BTKG", q_features, k_features.sum(1))
        out = _ratio(read, total)
    return out.reshape(*q.shape[:3], v.shape[-1]).astype(q.dtype)


def linear_attention_step(
    state: LinearAttentionState,
    q: Float[Array, "B T N H"],
    k: Float[Array, "B T K H"],
    v: Float[Array, "B T K Hv"],
    *,
    feature_map: FeatureMap = elu_plus_one,
    key_valid: Bool[Array, "#B T"] | None = None,
    chunk_size: int = 64,
) -> tuple[LinearAttentionState, Float[Array, "B T N Hv"]]:
    """Continues the causal `linear_attention` from a state, by one token or by many.

    A prompt is read with one call from the empty state, then each token with one more.

    Args:
        state: What earlier tokens left; `LinearAttentionState.empty` before the first.
        q: Queries of the new tokens.
        k: Keys of the new tokens.
        v: Values of the new tokens.
        feature_map: As for `linear_attention`; the same in every call.
        key_valid: As for `linear_attention`, of the new tokens.
        chunk_size: As for `linear_attention`.

    Returns:
        The state after the new tokens, in the dtype of the state before; and what each of
        their query heads read, in `q.dtype`.

    Raises:
        ValueError: As the causal `linear_attention`, or if the state has other axes or is of
            a lower precision than the sums need.
    """
    _check(q, k, v, key_valid)
    dtype = statistics_dtype(state.sums)
    features = _features(q, k, v, dtype=dtype, feature_map=feature_map, key_valid=key_valid)
    B, _, K, C = features[1].shape
    needed = ((B, K, C, v.shape[-1]), (B, K, C))
    if (state.sums.shape, state.normaliser.shape) != needed:
        raise ValueError(
            f"The state must have the axes B K C Hv and B K C, got sums.shape={state.sums.shape}, "
            f"normaliser.shape={state.normaliser.shape}; use {needed}."
        )
    least = statistics_dtype(q)
    dtypes = {state.sums.dtype, state.normaliser.dtype}
    if dtypes != {dtype} or jnp.finfo(dtype).bits < jnp.finfo(least).bits:
        raise ValueError(
            f"The state must be of one dtype, at least {least} for q.dtype={q.dtype}, got "
            f"sums.dtype={state.sums.dtype}, normaliser.dtype={state.normaliser.dtype}."
        )
    state, out = _scan(state, *features, chunk_size)
    return state, out.reshape(*q.shape[:3], v.shape[-1]).astype(q.dtype)


def _check(q: Array, k: Array, v: Array, key_valid: Array | None) -> None:
    check_heads(q, k, v)
    if key_valid is None:
        return
    fits = key_valid.shape in ((1, k.shape[1]), k.shape[:2])
    if key_valid.dtype != jnp.bool_ or not fits:
        raise ValueError(
            "key_valid must be boolean (True = may look) with the axes B S, B full or 1, got "
            f"dtype={key_valid.dtype}, key_valid.shape={key_valid.shape} for k.shape={k.shape}."
        )


def _features(
    q: Array,
    k: Array,
    v: Array,
    *,
    dtype: jnp.dtype,
    feature_map: FeatureMap,
    key_valid: Array | None,
) -> tuple[Array, Array, Array]:
    """Maps queries to features `B T K G C` and keys to `B S K C`, and empties invalid keys."""
    k, v = k.astype(dtype), v.astype(dtype)
    if key_valid is not None:
        valid = key_valid[:, :, None, None]
        # The keys as well, since a feature map may spoil the gradient of what lies in a padding.
        k, v = jnp.where(valid, k, 0), jnp.where(valid, v, 0)
    k_features, q_features = feature_map(k), feature_map(q.astype(dtype))
    if key_valid is not None:
        k_features = jnp.where(key_valid[:, :, None, None], k_features, 0)
    K, C = k_features.shape[2:]
    B, T, N, _ = q_features.shape
    return q_features.reshape(B, T, K, N // K, C), k_features, v


def _scan(
    state: LinearAttentionState, q: Array, k: Array, v: Array, chunk_size: int
) -> tuple[LinearAttentionState, Array]:
    """Reads features `B T K G C`, `B T K C` and values `B T K Hv` chunk by chunk."""
    T = q.shape[1]
    if k.shape[1] != T:
        raise ValueError(
            f"Causal linear attention reads one key per query, got T={T}, S={k.shape[1]}; use "
            "causal=False, or linear_attention_step for queries that follow earlier keys."
        )
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got chunk_size={chunk_size}.")
    size = max(1, min(chunk_size, T))
    chunks = -(-T // size)

    def by_chunk(x):
        """Puts chunks first and tokens behind the heads; zeros fill up the last chunk."""
        padding = [(0, chunks * size - T if axis == 1 else 0) for axis in range(x.ndim)]
        split = jnp.pad(x, padding).reshape(x.shape[0], chunks, size, *x.shape[2:])
        return jnp.moveaxis(split, (1, 2), (0, -2))

    q, k, v = by_chunk(q), by_chunk(k), by_chunk(v)
    if chunks == 1:
        state, out = _read_chunk(state, (q[0], k[0], v[0]))
        out = out[None]
    else:
        state, out = jax.lax.scan(_read_chunk, state, (q, k, v))
    _, B, K, G, _, V = out.shape
    return state, jnp.moveaxis(out, (0, -2), (1, 2)).reshape(B, chunks * size, K, G, V)[:, :T]


def _read_chunk(
    state: LinearAttentionState, chunk: tuple[Array, Array, Array]
) -> tuple[LinearAttentionState, Array]:
    """Reads what came before the chunk from the state, and the chunk itself pair by pair."""
    q_BKGTC, k_BKTC, v_BKTV = chunk
    T = k_BKTC.shape[2]
    weights = jnp.einsum("BKGTC,BKSC->BKGTS", q_BKGTC, k_BKTC)
    weights = jnp.where(with_rank(jnp.tril(jnp.ones((T, T), bool)), 5), weights, 0)
    read = jnp.einsum("BKGTS,BKSV->BKGTV", weights, v_BKTV)
    read = read + jnp.einsum("BKGTC,BKCV->BKGTV", q_BKGTC, state.sums)
    total = weights.sum(-1) + jnp.einsum("BKGTC,BKC->BKGT", q_BKGTC, state.normaliser)
    sums = state.sums + jnp.einsum("BKSC,BKSV->BKCV", k_BKTC, v_BKTV)
    return LinearAttentionState(sums, state.normaliser + k_BKTC.sum(2)), _ratio(read, total)


# Its rule divides by the total once. That of a quotient divides by its square, which is zero in
# float32 from totals of 1e-23 on: a query that is -53 everywhere has such features.
@jax.custom_jvp
def _ratio(read: Array, total: Array) -> Array:
    """Divides by the total weight; zero where that is zero."""
    return _divided(read, total)


@_ratio.defjvp
def _ratio_jvp(primals, tangents):
    (read, total), (read_dot, total_dot) = primals, tangents
    out = _ratio(read, total)
    return out, _divided(read_dot - out * total_dot[..., None], total)


def _divided(x: Array, total: Array) -> Array:
    empty = total[..., None] == 0
    return jnp.where(empty, 0, x / jnp.where(empty, 1, total[..., None]))
