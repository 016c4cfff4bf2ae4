"""Attention by the splash kernel that JAX ships for TPUs.

The kernel computes the softmax of a query as it walks over blocks of keys, forward and backward,
and skips the blocks that no query of a block sees: memory O(T + S), and half the work where a
model is causal. It takes what is seen in two forms, neither of which is a mask of T queries and S
keys: causality and window by place, known when it is compiled, and the documents of queries and
keys, arrays of T and of S numbers; padding is a key of a document that no query has.

It has a reverse mode but no forward mode. Elsewhere than on a TPU Pallas interprets it: slow, for
tests.

JAX's other kernel for TPUs, `flash_attention`, is not called. What it has and splash lacks is a
bias, and it takes one entry for each row, head, query and key, which is what "plain" keeps; it has
no groups of heads, no window and no soft cap.

Sources: Dao et al. 2022, https://arxiv.org/abs/2205.14135; blocks that are skipped,
`jax.experimental.pallas.ops.tpu.splash_attention` of JAX 0.10.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct
from jaxtyping import Array

from jtransformer.functional.visibility import Visibility

LANES = 128
"""Numbers of queries and keys are multiples of this, the width of a TPU's vector registers."""

BLOCKS = (512, 384, 256, 128)
"""Queries and keys of a block: the first that divides their number. At 512 and heads of 256 in
float32 what a block needs fits into the fast memory of a v5e, 16 MiB."""

MAX_WIDTH = 256
"""Widest head for which the kernel was compiled for a v5e."""

KEPT = "splash_attention"
"""Name by which a policy of `jax.checkpoint` knows what the kernel's backward pass needs of its
forward pass: what was read, and one number for each query and head."""

NO_DOCUMENT = jnp.iinfo(jnp.int32).min
"""The document of keys that no query sees."""


def splash_refusal(
    q: Array | ShapeDtypeStruct,
    k: Array | ShapeDtypeStruct,
    v: Array | ShapeDtypeStruct,
    *,
    mask: Array | ShapeDtypeStruct | Visibility | None,
    bias: Array | ShapeDtypeStruct | None,
    drops: bool,
) -> str | None:
    """Says why the kernel does not compute what "plain" computes; None if it does."""
    T, S, H, Hv = q.shape[1], k.shape[1], q.shape[-1], v.shape[-1]
    dtypes = [x.dtype for x in (q, k, v)]
    if drops:
        return "drops no weights, got a key and a dropout_rate above 0"
    if bias is not None:
        return f"adds no bias to the scores, got bias.shape={bias.shape}"
    if dtypes != [q.dtype] * 3 or q.dtype not in (jnp.bfloat16, jnp.float32):
        return f"needs q, k and v all in bfloat16 or float32, got {[*map(str, dtypes)]}"
    if not T or not S or T % LANES or S % LANES:
        return f"needs numbers of queries and keys that are multiples of {LANES}, got {T=}, {S=}"
    if max(H, Hv) > MAX_WIDTH:
        return f"has heads of at most {MAX_WIDTH}, got {H=}, {Hv=}"
    return _refused_mask(mask)


def _refused_mask(mask: Array | ShapeDtypeStruct | Visibility | None) -> str | None:
    """Says why the kernel cannot be told what is seen."""
    if mask is None:
        return None
    if not isinstance(mask, Visibility):
        return f"takes no drawn mask, got mask.shape={mask.shape} where a Visibility could be"
    if mask.prefix_length is not None:
        return "knows of no prefix, got a prefix_length"
    if (mask.causal or mask.window is not None) and not mask.by_place:
        return "needs positions that are places, got a Visibility that is not by_place"
    return None


def splash(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Visibility | None,
    scale: float | None,
    soft_cap: float | None,
    interpret: bool,
) -> Array:
    """Calls the kernel for each row, and gives zeros to a query that sees no key.

    Args:
        q: Queries `B T N H`. They are scaled here, in float32, and rounded to their dtype.
        k: Keys `B S K H`, finite.
        v: Values `B S K Hv`, finite.
        mask: What is seen; None is all.
        scale: Factor of the scores; None is `1/sqrt(H)`.
        soft_cap: Bound of the scores.
        interpret: Whether Pallas interprets the kernel.
    """
    (B, T, N, H), S = q.shape, k.shape[1]
    factor = 1 / math.sqrt(H) if scale is None else scale
    scaled = (q.astype(jnp.float32) * factor).astype(q.dtype)
    kernel = _kernel((T, S), N, mask=mask, soft_cap=soft_cap, interpret=interpret)
    heads = [jnp.swapaxes(x, 1, 2) for x in (scaled, k, v)]
    out = jnp.swapaxes(jax.vmap(kernel)(*heads, _documents(mask, B)), 1, 2)
    sees = seeing(mask)
    return out if sees is None else jnp.where(sees[:, :, None, None], out, 0)


def seeing(mask: Visibility | None) -> Array | None:
    """Says which queries see a key, `B T`; None where all do, whatever the arrays hold."""
    if mask is None or (mask.query_segments is None and mask.key_valid is None):
        return None
    # A query is among the keys that it sees by place.
    if mask.by_place and mask.key_valid is None:
        return None
    T = mask.shape[2]

    def any_key(start: Array) -> Array:
        return jnp.any(mask.of_queries(start, LANES).draw(), axis=(1, 3))

    found = jax.lax.map(any_key, jnp.arange(0, T, LANES))
    return jnp.moveaxis(found, 0, 1).reshape(-1, T)


def _kernel(
    shape: tuple[int, int],
    N: int,
    *,
    mask: Visibility | None,
    soft_cap: float | None,
    interpret: bool,
) -> Any:
    """Makes the kernel for the queries and keys of N heads."""
    # Slow to import, and of no use elsewhere.
    from jax.experimental.pallas.ops.tpu import splash_attention as kernels

    if mask is not None and mask.window is not None:
        before = min(mask.window, *shape) - 1
        seen: Any = kernels.LocalMask(shape, (before, 0 if mask.causal else before), 0)
    elif mask is not None and mask.causal:
        seen = kernels.CausalMask(shape)
    else:
        seen = kernels.FullMask(shape)
    of_q, of_kv = (next(block for block in BLOCKS if size % block == 0) for size in shape)
    return kernels.make_splash_mha(
        kernels.MultiHeadMask([seen] * N),
        block_sizes=kernels.BlockSizes(
            block_q=of_q,
            block_kv=of_kv,
            block_q_dkv=of_q,
            block_kv_dkv=of_kv,
            block_q_dq=of_q,
            block_kv_dq=of_kv,
        ),
        head_shards=1,
        q_seq_shards=1,
        attn_logits_soft_cap=soft_cap,
        residual_checkpoint_name=KEPT,
        interpret=interpret,
    )


def _documents(mask: Visibility | None, B: int) -> Any:
    """Returns the documents of queries and keys; None where all tokens are of one."""
    from jax.experimental.pallas.ops.tpu.splash_attention import SegmentIds

    if mask is None or (mask.query_segments is None and mask.key_valid is None):
        return None
    (_, _, T, S) = mask.shape
    of_q, of_kv = mask.query_segments, mask.key_segments
    of_q = jnp.zeros((1, T), jnp.int32) if of_q is None else of_q.astype(jnp.int32)
    of_kv = jnp.zeros((1, S), jnp.int32) if of_kv is None else of_kv.astype(jnp.int32)
    if mask.key_valid is not None:
        of_kv = jnp.where(mask.key_valid, of_kv, NO_DOCUMENT)
    return SegmentIds(jnp.broadcast_to(of_q, (B, T)), jnp.broadcast_to(of_kv, (B, S)))
