"""Affine map over the last axes of an array.

A product of a three-dimensional array with a matrix makes XLA on CPU materialise transposed
operands for the weight gradient, so the operands are reshaped to two axes first.
"""

import math

from jaxtyping import Array, Float

from jtransformer.functional._arrays import with_rank


def linear(
    x: Float[Array, "*batch_in"],
    kernel: Float[Array, "*in_out"],
    bias: Float[Array, "*out"] | None = None,
    *,
    axes: int = 1,
) -> Float[Array, "*batch_out"]:
    """Computes `x W + b`, contracting the last `axes` of `x` with the first `axes` of `kernel`.

    `axes=1` with a kernel `D N H` makes heads; `axes=2` with a kernel `N Hv D` joins them.

    Args:
        x: Input; its last `axes` axes are the fan-in.
        kernel: Fan-in axes, then fan-out axes.
        bias: Added to the output; its axes are the fan-out axes.
        axes: How many axes are contracted, at least 1.

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
    rows = x.reshape(math.prod(lead), math.prod(fan_in))
    out = rows @ kernel.reshape(math.prod(fan_in), math.prod(fan_out))
    if bias is not None:
        out = out + with_rank(bias.reshape(-1), 2)
    return out.reshape(*lead, *fan_out)
