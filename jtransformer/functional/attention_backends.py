"""Which program computes dot-product attention, and the one that JAX brings for GPUs.

All compute one function, up to rounding:

* "plain": the scores of all queries at once; memory O(T S), the same on every machine.
* "stepped": the same arithmetic for a few blocks of queries, each with the keys alone that it may
  see: 5/8 of the products and scores of a causal model, and blocks that lie in the cache.
* "blockwise": the same arithmetic for one block of queries at a time; memory O(T + S). The
  backward pass computes each block again.
* "fused": `jax.nn.dot_product_attention`, cuDNN's kernel where that computes the same, with the
  answer for a query that sees no key mended. cuDNN has a reverse mode but no forward mode, and
  `vmap` over a part of its arguments, or of its gradient, fails in JAX 0.10
  (https://github.com/jax-ml/jax/issues/38495): ask for another backend there.
* "splash": JAX's kernel for TPUs, see `tpu_attention`; memory O(T + S), no forward mode.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct
from jaxtyping import Array, Bool, Float

from jtransformer.functional._arrays import statistics_dtype
from jtransformer.functional.dropout import DropoutKey, may_drop
from jtransformer.functional.tpu_attention import splash_refusal
from jtransformer.functional.visibility import Visibility

Backend = Literal["plain", "fused", "stepped", "blockwise", "splash"]

PLAIN_SCORES = 2**23
"""Scores B·N·T·S beyond which "blockwise" is chosen. On CPU, forward and backward, it takes 0.9 to
1.1 times as long as "plain" at 2^22, 0.7 to 1.0 at 2^23, 0.8 to 0.9 from 2^25 to 2^27."""

STEPPED_QUERIES = 128
"""Fewest queries for which "stepped" is chosen. On CPU, forward and backward, it takes 0.5 to 0.9
times as long as "plain" at 256 queries, and as long at 64."""

CUDNN_MAX_WIDTH = 128
"""Widest head of cuDNN's kernel on every GPU that has it."""

DROPS_OTHERS = "would drop other weights than 'plain', got a key and a dropout_rate above 0"


def attention_backend(
    q: Float[Array | ShapeDtypeStruct, "B T N H"],
    k: Float[Array | ShapeDtypeStruct, "B S K H"],
    v: Float[Array | ShapeDtypeStruct, "B S K Hv"],
    *,
    mask: Bool[Array | ShapeDtypeStruct, "..."] | Visibility | None = None,
    bias: Float[Array | ShapeDtypeStruct, "..."] | None = None,
    soft_cap: float | None = None,
    dropout_rate: float | Float[Array, ""] = 0.0,
    key: DropoutKey | None = None,
    platform: str | None = None,
) -> Backend:
    """Says what `dot_product_attention(..., backend="auto")` chooses for these arguments.

    "fused" on an NVIDIA GPU where cuDNN computes the same function: bfloat16, or float16 without
    a mask (cuDNN hides keys by a finite number, -2^15 in float16, which a score can outweigh); no
    bias (cuDNN rounds it, and has its gradient for some shapes only), no soft cap, no dropout;
    heads of one width, a multiple of 8 up to 128; with a mask, even T and S. "splash" on a TPU
    where that kernel computes the same function: bfloat16 or float32, T and S multiples of 128,
    heads at most 256 wide, no bias, no dropout, and a mask, if any, that is a `Visibility` without
    a prefix, `by_place` where it is causal or has a window. Otherwise, where nothing is dropped,
    "blockwise" for more than 2^23 scores, and "stepped" on a CPU for at least 128 queries that are
    causal or have a window, `by_place`; else "plain".

    Args:
        q: Queries, or their shape and dtype.
        k: Keys, likewise.
        v: Values, likewise.
        mask: As for `dot_product_attention`; so are the other options.
        bias: Summand of the scores.
        soft_cap: Bound of the scores.
        dropout_rate: Probability with which a weight is zeroed.
        key: Random key of the dropout; None drops nothing.
        platform: What the program is compiled for, "gpu" or "cuda", "tpu" or "cpu"; None is the
            default one of this process, where "gpu" counts only if it is NVIDIA's, of compute
            capability 8.0 or newer.

    Returns:
        The name of the backend.
    """
    drops = key is not None and may_drop(dropout_rate)
    if has_cudnn(platform) and cudnn_computes(q, k, mask=mask, bias=bias):
        if fused_refusal(q, k, v, soft_cap=soft_cap, drops=drops) is None:
            return "fused"
    if (
        runs_on("tpu", platform)
        and splash_refusal(q, k, v, mask=mask, bias=bias, drops=drops) is None
    ):
        return "splash"
    (B, T, N, _), S = q.shape, k.shape[1]
    if B * N * T * S > PLAIN_SCORES and not drops:
        return "blockwise"
    if T >= STEPPED_QUERIES and runs_on("cpu", platform):
        return "plain" if stepped_refusal(q, k, mask=mask, drops=drops) else "stepped"
    return "plain"


def refusal(
    backend: str,
    arrays: tuple[Array, Array, Array],
    *,
    mask: Array | Visibility | None,
    bias: Array | None,
    soft_cap: float | None,
    drops: bool,
) -> str | None:
    """Says why a backend does not compute what "plain" computes; None if it does."""
    match backend:
        case "plain":
            return None
        case "stepped":
            return stepped_refusal(*arrays[:2], mask=mask, drops=drops)
        case "blockwise":
            return DROPS_OTHERS if drops else None
        case "fused":
            return fused_refusal(*arrays, soft_cap=soft_cap, drops=drops)
        case "splash":
            return splash_refusal(*arrays, mask=mask, bias=bias, drops=drops)
        case _:
            return "is unknown"


def stepped_refusal(
    q: Array | ShapeDtypeStruct,
    k: Array | ShapeDtypeStruct,
    *,
    mask: Array | ShapeDtypeStruct | Visibility | None,
    drops: bool,
) -> str | None:
    """Says why blocks with keys of their own are not what "plain" computes, or leave none out."""
    if drops:
        return DROPS_OTHERS
    if not isinstance(mask, Visibility) or not mask.by_place or q.shape[1] != k.shape[1]:
        return "needs queries and keys that are the same tokens, a Visibility by_place"
    if mask.prefix_length is not None or not (mask.causal or mask.window is not None):
        return "leaves out keys that are hidden by place, got a prefix_length or all to be seen"
    return None


def fused_refusal(
    q: Array | ShapeDtypeStruct,
    k: Array | ShapeDtypeStruct,
    v: Array | ShapeDtypeStruct,
    *,
    soft_cap: float | None,
    drops: bool,
) -> str | None:
    """Says why JAX's own attention does not compute what "plain" computes; None if it does."""
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


def runs_on(name: str, platform: str | None) -> bool:
    """Says whether a program is for "cpu" or "tpu"; None is where this process runs."""
    return (jax.default_backend() if platform is None else platform) == name


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


def is_causal_alone(mask: Array | Visibility | None) -> bool:
    """Says whether a mask is causality and a window by place, and nothing else."""
    if not isinstance(mask, Visibility) or not (mask.causal and mask.by_place):
        return False
    return mask.prefix_length is mask.query_segments is mask.key_valid is None


def fused(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | Visibility | None,
    bias: Array | None,
    scale: float | None,
    platform: str | None,
) -> Array:
    """Calls JAX's attention, and gives zeros to a query that sees no key.

    Args:
        q: Queries `B T N H`.
        k: Keys `B S K H`.
        v: Values `B S K H`.
        mask: Mask of four axes, or what one is drawn from.
        bias: Bias of four axes.
        scale: Factor of the scores; None is `1/sqrt(H)`.
        platform: What the program is compiled for; None is where this process runs.
    """
    by_cudnn = has_cudnn(platform) and cudnn_computes(q, k, mask=mask, bias=bias)
    if by_cudnn and is_causal_alone(mask):
        assert isinstance(mask, Visibility)
        # Told by name, cuDNN skips what is hidden, and no mask is kept: half the work.
        near = None if mask.window is None else (min(mask.window, q.shape[1]) - 1, 0)
        return jax.nn.dot_product_attention(
            q, k, v, scale=scale, is_causal=True, local_window_size=near, implementation="cudnn"
        )
    if isinstance(mask, Visibility):
        mask = mask.draw()
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
