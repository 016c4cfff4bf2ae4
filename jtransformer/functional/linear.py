"""Affine map over the last axes of an array.

A product of a three-dimensional array with a matrix makes XLA on CPU materialise transposed
operands for the weight gradient, so the operands are reshaped to two axes first. Only where two of
the merged axes lie over several devices they must not be: an axis can lie over devices in blocks,
and blocks of both are none of the merged one, so that all rows would be gathered on each device.

XLA on CPU forms the gradient of a kernel with a wide fan-in and a narrow fan-out fastest as its
transpose (0.65 times as long for 1024 to 256 features), but undoes every transposition that it
sees.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jtransformer.functional._arrays import with_rank

Rows = Literal["merged", "merged_cpu", "apart"]
"""Whether the leading axes of a product's input become one, and for which machine."""


def linear(
    x: Float[Array, "*batch_in"],
    kernel: Float[Array, "*in_out"],
    bias: Float[Array, "*out"] | None = None,
    *,
    axes: int = 1,
    rows: Rows = "merged",
) -> Float[Array, "*batch_out"]:
    """Computes `x W + b`, contracting the last `axes` of `x` with the first `axes` of `kernel`.

    `axes=1` with a kernel `D N H` makes heads; `axes=2` with a kernel `N Hv D` joins them.

    Args:
        x: Input; its last `axes` axes are the fan-in.
        kernel: Fan-in axes, then fan-out axes.
        bias: Added to the output; its axes are the fan-out axes.
        axes: How many axes are contracted, at least 1.
        rows: "apart" where two of the leading axes lie over several devices; else "merged", or
            "merged_cpu" on a CPU, are as fast or faster. The values are the same, and gradients
            are up to rounding.

    Returns:
        The leading axes of `x`, then the fan-out axes of `kernel`.

    Raises:
        ValueError: If the contracted axes or the bias do not fit.
    """
    fan_in, fan_out = kernel.shape[:axes], kernel.shape[axes:]
    if axes < 1 or kernel.ndim < axes or x.ndim < axes or x.shape[-axes:] != fan_in:
        raise ValueError(
            f"linear contracts the last axes of x with the first of kernel, got x.shape={x.shape}, "
            f"kernel.shape={kernel.shape}, axes={axes}; these axes must be equal."
        )
    if bias is not None and bias.shape != fan_out:
        raise ValueError(
            f"The bias of linear must have the fan-out axes {fan_out} of the kernel, "
            f"got bias.shape={bias.shape}."
        )
    lead = x.shape[: x.ndim - axes]
    if rows == "apart":
        out = jnp.tensordot(x, kernel, axes)
        return out if bias is None else out + with_rank(bias, out.ndim)
    merged = x.reshape(math.prod(lead), math.prod(fan_in))
    matrix = kernel.reshape(math.prod(fan_in), math.prod(fan_out))
    if rows == "merged_cpu" and matrix.shape[0] > matrix.shape[1]:
        matrix = _with_transposed_gradient(matrix)
    out = merged @ matrix
    if bias is not None:
        out = out + with_rank(bias.reshape(-1), 2)
    return out.reshape(*lead, *fan_out)


@jax.custom_jvp
def _with_transposed_gradient(matrix: Array) -> Array:
    """Returns the matrix; its gradient is formed as that of the transpose."""
    return matrix


@_with_transposed_gradient.defjvp
def _with_transposed_gradient_jvp(primals, tangents):
    return primals[0], jax.lax.optimization_barrier(tangents[0].T).T
