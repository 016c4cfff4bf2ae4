"""Which program computes dot-product attention, and the one that JAX brings.

All compute one function, up to rounding:

* "plain": the scores of all queries at once; memory O(T S), the same on every machine.
* "blockwise": the same arithmetic for one block of queries at a time; memory O(T + S). The
  backward pass computes each block again.
* "fused": `jax.nn.dot_product_attention`, cuDNN's kernel where that computes the same, with the
  answer for a query that sees no key mended. cuDNN has a reverse mode but no forward mode, and
  `vmap` over a part of its arguments, or of its gradient, fails in JAX 0.10
  (https://github.com/jax-ml/jax/issues/38495): ask for another backend there.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jtransformer.functional._arrays import statistics_dtype
from jtransformer.functional.dropout import may_drop
from jtransformer.functional.visibility import Visibility

Backend = Literal["plain", "fused", "blockwise"]

PLAIN_SCORES = 2**23
"""Scores B·N·T·S beyond which "blockwise" is chosen. On CPU, forward and backward, it takes 0.9 to
1.1 times as long as "plain" at 2^22, 0.7 to 1.0 at 2^23, 0.8 to 0.9 from 2^25 to 2^27."""

CUDNN_MAX_WIDTH = 128
"""Widest head of cuDNN's kernel on every GPU that has it."""


def attention_backend(
    q: Float[Array | ShapeDtypeStruct, "B T N H"],
    k: Float[Array | ShapeDtypeStruct, "B S K H"],
    v: Float[Array | ShapeDtypeStruct, "B S K Hv"],
    *,
    mask: Bool[Array | ShapeDtypeStruct, "..."] | Visibility | None = None,
    bias: Float[Array | ShapeDtypeStruct, "..."] | None = None,
    soft_cap: float | None = None,
    dropout_rate: float | Float[Array, ""] = 0.0,
    key: PRNGKeyArray | None = None,
    platform: str | None = None,
) -> Backend:
    """Says what `dot_product_attention(..., backend="auto")` chooses for these arguments.

    "fused" on an NVIDIA GPU where cuDNN computes the same function: bfloat16, or float16 without
    a mask (cuDNN hides keys by a finite number, -2^15 in float16, which a score can outweigh); no
    bias (cuDNN rounds it, and has its gradient for some shapes only), no soft cap, no dropout;
    heads of one width, a multiple of 8 up to 128; with a mask, even T and S. Otherwise
    "blockwise" where there are more than 2^23 scores and nothing is dropped, else "plain".

    Args:
        q: Queries, or their shape and dtype.
        k: Keys, likewise.
        v: Values, likewise.
        mask: As for `dot_product_attention`; so are the other options.
        bias: Summand of the scores.
        soft_cap: Bound of the scores.
        dropout_rate: Probability with which a weight is zeroed.
        key: Random key of the dropout; None drops nothing.
        platform: "gpu" or "cuda", "tpu" or "cpu"; None is the default one of this process, where
            "gpu" counts only if it is NVIDIA's, of compute capability 8.0 or newer.

    Returns:
        The name of the backend.
    """
    drops = key is not None and may_drop(dropout_rate)
    allowed = refusal("fused", q, k, v, soft_cap=soft_cap, drops=drops) is None
    if allowed and has_cudnn(platform) and cudnn_computes(q, k, mask=mask, bias=bias):
        return "fused"
    (B, T, N, _), S = q.shape, k.shape[1]
    return "blockwise" if B * N * T * S > PLAIN_SCORES and not drops else "plain"


def refusal(
    backend: str,
    q: Array | ShapeDtypeStruct,
    k: Array | ShapeDtypeStruct,
    v: Array | ShapeDtypeStruct,
    *,
    soft_cap: float | None,
    drops: bool,
) -> str | None:
    """Says why a backend does not compute what "plain" computes; None if it does."""
    if backend not in ("plain", "fused", "blockwise"):
        return "is unknown"
    if drops and backend == "blockwise":
        return "would drop other weights than 'plain', got a key and a dropout_rate above 0"
    if backend != "fused":
        return None
    if drops:
        return "drops no weights, got a key and a dropout_rate above 0"
    if soft_cap is not None:
        return f"has no soft cap, got soft_cap={soft_cap}"
    if q.shape[-1] != v.shape[-1]:
        return f"needs values as wide as the keys, got H={q.shape[-1]}, Hv={v.shape[-1]}"
    dtypes = [x.dtype for x in (q, k, v)]
    if dtypes != [q.dtype] * 3 or q.dtype not in (jnp.bfloat16, jnp.float16, jnp.float32):
        return f"needs q, k and v in one dtype of at most 32 bits, got {[*map(str, dtypes)]}"
    if 0 in (q.shape[1], k.shape[1]):
        return f"needs a query and a key, got T={q.shape[1]}, S={k.shape[1]}"
    return None


def has_cudnn(platform: str | None) -> bool:
    """Says whether cuDNN's attention runs there; None is where this process runs."""
    if platform is not None:
        return platform in ("gpu", "cuda")
    if jax.default_backend() != "gpu":
        return False
    device = jax.devices()[0]
    return "cuda" in device.client.platform_version and float(device.compute_capability) >= 8


def cudnn_computes(
    q: Array | ShapeDtypeStruct,
    k: Array | ShapeDtypeStruct,
    *,
    mask: Array | ShapeDtypeStruct | Visibility | None,
    bias: Array | ShapeDtypeStruct | None,
) -> bool:
    """Says whether cuDNN computes what is not refused, as "plain" does."""
    H = q.shape[-1]
    if bias is not None or H % 8 or H > CUDNN_MAX_WIDTH:
        return False
    if mask is None:
        return q.dtype in (jnp.bfloat16, jnp.float16)
    return q.dtype == jnp.bfloat16 and q.shape[1] % 2 == k.shape[1] % 2 == 0


def fused(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | None,
    bias: Array | None,
    scale: float | None,
) -> Array:
    """Calls JAX's attention, and gives zeros to a query that sees no key.

    Args:
        q: Queries `B T N H`.
        k: Keys `B S K H`.
        v: Values `B S K H`.
        mask: Drawn mask of four axes.
        bias: Bias of four axes.
        scale: Factor of the scores; None is `1/sqrt(H)`.
    """
    by_cudnn = has_cudnn(None) and cudnn_computes(q, k, mask=mask, bias=bias)
    if bias is not None:
        # A row of -inf alone is 0/0 there; as a mask it is a row that sees nothing.
        finite = ~jnp.isneginf(bias)
        mask = finite if mask is None else mask & finite
        # JAX hides a key by 0.7 of the lowest number; a bias below that would show it again.
        lowest = 0.1 * float(jnp.finfo(statistics_dtype(q)).min)
        bias = jnp.maximum(jnp.where(finite, bias, 0).astype(statistics_dtype(q)), lowest)
    if by_cudnn:
        arrays, implementation = (q, k, v), "cudnn"
        given = (
            None
            if mask is None
            else jnp.broadcast_to(mask, (*mask.shape[:2], q.shape[1], k.shape[1]))
        )
    else:
        # Its own raising of bfloat16 has no derivative under strict promotion of dtypes.
        arrays, implementation = [x.astype(statistics_dtype(x)) for x in (q, k, v)], "xla"
        given = mask
    out = jax.nn.dot_product_attention(
        *arrays, bias=bias, mask=given, scale=scale, implementation=implementation
    ).astype(q.dtype)
    if mask is None:
        return out
    sees_BTNx = jnp.swapaxes(jnp.any(mask, axis=-1, keepdims=True), 1, 2)
    return jnp.where(sees_BTNx, out, 0)
