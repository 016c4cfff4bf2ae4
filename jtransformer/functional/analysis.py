"""What a sublayer does to a small change of its input: products with its Jacobian, its size.

Jacobians map changes of the input to changes of the output: `J[i, j] = d out_i / d x_j`. Through
depth they multiply in order, the last layer leftmost; the product of their spectral norms is
only an upper bound of that of the chain.

Sources: products with a Jacobian, Baydin et al. 2018, sec. 3, https://arxiv.org/abs/1502.05767;
power iteration for a spectral norm, Miyato et al. 2018, appendix A,
https://arxiv.org/abs/1802.05957 (there one step on a matrix for each training step; here on a
Jacobian, until it is done, with the remaining error); the Jacobian of layer norm, Xiong et al.
2020, appendix, https://arxiv.org/abs/2002.04745 (there as a product, without epsilon).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jtransformer.functional._arrays import statistics_dtype, with_rank
from jtransformer.functional.norms import check_norm

Function = Callable[[Float[Array, "..."]], Float[Array, "..."]]
"""Any function of one array, such as a sublayer with its parameters."""


def jacobian_vector_product(
    function: Function, x: Float[Array, "*shape"], tangent: Float[Array, "*shape"]
) -> Float[Array, "..."]:
    """Computes `J(x) tangent`: how the output moves when the input moves along the tangent.

    Forward mode; the Jacobian is never formed. Attention inside needs its "plain" backend: "auto"
    may choose cuDNN on an NVIDIA GPU, which has no forward mode.

    Args:
        function: The function.
        x: Where it is linearised.
        tangent: Change of the input.

    Returns:
        Change of the output, in its shape and dtype.

    Raises:
        ValueError: If the tangent has another shape or dtype than `x`.
    """
    _check_alike("tangent", tangent, "x", x)
    return jax.jvp(function, (x,), (tangent,))[1]


def vector_jacobian_product(
    function: Function, x: Float[Array, "*shape"], cotangent: Float[Array, "..."]
) -> Float[Array, "*shape"]:
    """Computes `J(x)^T cotangent`: the gradient of `sum(cotangent * function(x))`.

    Reverse mode; the Jacobian is never formed.

    Args:
        function: The function.
        x: Where it is linearised.
        cotangent: Weight of each entry of the output.

    Returns:
        The gradient, in the shape and dtype of `x`.

    Raises:
        ValueError: If the cotangent has another shape or dtype than the output.
    """
    out, pull = jax.vjp(function, x)
    _check_alike("cotangent", cotangent, "function(x)", out)
    return pull(cotangent)[0]


class SpectralNorm(NamedTuple):
    """The largest stretch of a Jacobian, as far as power iteration has found it.

    Attributes:
        value: Stretch of `vector`: at most the spectral norm, but for rounding.
        vector: Direction of the input, of length 1.
        residual: `|J^T J v - value^2 v| / value^2`: some singular value s of J satisfies
            `|s^2 / value^2 - 1| <= residual`. It need not be the largest, but for a start in
            general position it is. 0 where the stretch is 0.
    """

    value: Float[Array, ""]
    vector: Float[Array, "..."]
    residual: Float[Array, ""]


def spectral_norm(
    function: Function, x: Float[Array, "..."], *, key: PRNGKeyArray, iterations: int = 50
) -> SpectralNorm:
    """Computes the largest singular value of the Jacobian at `x` by power iteration on `J^T J`.

    The Jacobian is that of the whole array `x`; map the function over a batch for one value
    each. The error shrinks like `(s_2 / s_1)^(4 iterations)` with the two largest singular
    values, so that a second one close to the first needs many: read `residual`. It needs
    forward mode, as `jacobian_vector_product` does.

    Args:
        function: The function.
        x: Where it is linearised.
        key: Random key of the first direction.
        iterations: Steps, at least 1; each costs one product with J and one with its transpose.

    Returns:
        The value and its residual in at least float32, the direction in `x.dtype`.

    Raises:
        ValueError: If `iterations` is less than 1, or the function is not real or has nothing to
            map.
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got iterations={iterations}.")
    dtype = statistics_dtype(x)
    out, push = jax.linearize(function, x)
    if not jnp.issubdtype(out.dtype, jnp.floating) or 0 in (x.size, out.size):
        raise ValueError(
            "spectral_norm needs a real function of at least one entry, got "
            f"{out.dtype}{out.shape} from x.shape={x.shape}."
        )
    pull = jax.linear_transpose(push, x)

    def stretched(v: Array) -> tuple[Array, Array]:
        """Returns `|J v|` and `J^T J v / |J v|`."""
        length, along = _length_and_direction(push(v.astype(x.dtype)).astype(dtype))
        return length, pull(along.astype(out.dtype))[0].astype(dtype)

    def step(v: Array, _: None) -> tuple[Array, None]:
        length, pulled = stretched(v)
        # In the kernel of J there is no direction to turn to.
        return jnp.where(length > 0, _length_and_direction(pulled)[1], v), None

    _, start = _length_and_direction(jax.random.normal(key, x.shape, dtype))
    v, _ = jax.lax.scan(step, start, length=iterations)
    value, pulled = stretched(v)
    off, _ = _length_and_direction(pulled - value * v)
    residual = jnp.where(value > 0, off / jnp.where(value > 0, value, 1), 0)
    return SpectralNorm(value, v.astype(x.dtype), residual)


def layer_norm_jacobian(
    x: Float[Array, "*batch D"], scale: Float[Array, " D"] | None = None, *, epsilon: float = 1e-5
) -> Float[Array, "*batch D D"]:
    """Computes `diag(scale) (P / s - c c^T / (D s^3))`, the Jacobian of `layer_norm`.

    `P = I - 1 1^T / D` takes off the mean, `c = P x`, `s^2 = c c^T / D + epsilon`. The vector of
    ones is in its kernel.

    Args:
        x: Positions, each with a Jacobian of its own.
        scale: Scale of the norm; None is all ones. (Its bias does not matter.)
        epsilon: Epsilon of the norm.

    Returns:
        One matrix for each position, outputs by inputs, in `x.dtype`.

    Raises:
        ValueError: If epsilon is negative, `x` is no floating-point array, or `scale` has
            another width.
    """
    check_norm(x, {"scale": scale}, epsilon)
    raised = x.astype(statistics_dtype(x))
    centred = raised - jnp.mean(raised, axis=-1, keepdims=True)
    D = x.shape[-1]
    projector_DD = jnp.eye(D, dtype=raised.dtype) - 1 / D
    return _norm_jacobian(centred, projector_DD, scale, epsilon).astype(x.dtype)


def rms_norm_jacobian(
    x: Float[Array, "*batch D"], scale: Float[Array, " D"] | None = None, *, epsilon: float = 1e-6
) -> Float[Array, "*batch D D"]:
    """Computes `diag(scale) (I / r - x x^T / (D r^3))`, the Jacobian of `rms_norm`.

    `r^2 = mean(x^2) + epsilon`.

    Args:
        x: Positions, each with a Jacobian of its own.
        scale: Factor of each feature (an offset included); None is all ones.
        epsilon: Epsilon of the norm.

    Returns:
        One matrix for each position, outputs by inputs, in `x.dtype`.

    Raises:
        ValueError: If epsilon is negative, `x` is no floating-point array, or `scale` has
            another width.
    """
    check_norm(x, {"scale": scale}, epsilon)
    raised = x.astype(statistics_dtype(x))
    eye_DD = jnp.eye(x.shape[-1], dtype=raised.dtype)
    return _norm_jacobian(raised, eye_DD, scale, epsilon).astype(x.dtype)


def _norm_jacobian(
    x: Array, projector_DD: Array, scale: Array | None, epsilon: float
) -> Float[Array, "*batch D D"]:
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + epsilon)
    # Normalised first: the third power of a length overflows where the length does not.
    unit = x * inverse
    outer = unit[..., :, None] * unit[..., None, :] / x.shape[-1]
    out = (with_rank(projector_DD, outer.ndim) - outer) * inverse[..., None]
    return out if scale is None else out * with_rank(scale.astype(x.dtype)[:, None], out.ndim)


def _length_and_direction(x: Array) -> tuple[Array, Array]:
    """Returns the Euclidean length of a whole array and the array with length 1.

    Zero has length 0 and direction 0, with finite slopes. Squares neither over- nor underflow.
    """
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(x)))
    is_zero = largest == 0
    x = x / jnp.where(is_zero, 1, largest)
    square = jnp.sum(jnp.square(x))
    relative = jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, square)))
    return largest * relative, x / jnp.where(is_zero, 1, relative)


def _check_alike(name: str, value: Array, other: str, expected: Array) -> None:
    if value.shape != expected.shape or value.dtype != expected.dtype:
        raise ValueError(
            f"{name} must have the shape and dtype of {other}, got {value.dtype}{value.shape} "
            f"for {expected.dtype}{expected.shape}."
        )
