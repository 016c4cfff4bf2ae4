"""Norms over the feature axis of one position, and the bounded map that can take their place.

Statistics take two passes (the mean first, then the mean square of what is left) in at least
float32: the one-pass `E[x^2] - E[x]^2` loses all digits of activations with a large mean.
Epsilon is added inside the root. The functions accept epsilon = 0; then a constant vector
(layer norm) or a zero vector (the others) has no defined output and gives NaN, while with any
epsilon > 0 it gives zeros.

Squares are summed as they are: from a length of 1.84e19 on (1.34e154 in float64), of the vector
or for layer norm of what is left without the mean, the sum overflows and the output is zeros
(NaN where a mean overflows as well).
Dividing by the largest entry first would move that edge, at the price of one more pass.

Published RMS norms differ in where the scale enters; in float32 these are one function:

* Gemma multiplies by 1 + scale in float32, then casts: `scale_offset=1.0`.
* OLMo 2 multiplies by the scale in float32, then casts: the defaults.
* Llama and T5 cast, then multiply by the scale: `cast="before"`. (Where the dtype of the scale
  is not that of x, Llama returns the wider of the two, and T5 casts to that of the scale; here
  the scale is cast too and the result has the dtype of x.)

Sources: Ba, Kiros and Hinton 2016, sec. 3, https://arxiv.org/abs/1607.06450; Zhang and
Sennrich 2019, sec. 4, https://arxiv.org/abs/1910.07467; ScaleNorm, Nguyen and Salazar 2019,
sec. 2, https://arxiv.org/abs/1910.05895; DyT, Zhu et al. 2025, sec. 4,
https://arxiv.org/abs/2503.10622. The published models are read as in Hugging Face transformers
5.24 (`models/{gemma,olmo2,llama,t5}`).
"""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jtransformer.functional._arrays import raised_dtype, statistics_dtype, with_rank


def layer_norm(
    x: Float[Array, "*batch D"],
    scale: Float[Array, " D"] | None = None,
    bias: Float[Array, " D"] | None = None,
    *,
    epsilon: float = 1e-5,
) -> Float[Array, "*batch D"]:
    """Computes `scale * (x - mean) / sqrt(variance + epsilon) + bias`.

    The variance is that of the population (divided by D).

    Args:
        x: Positions to normalise, each on its own.
        scale: One factor per feature; None is all ones.
        bias: One summand per feature; None is all zeros.
        epsilon: Added to the variance, at least 0; for 0 see the module docstring.

    Returns:
        The normalised positions in `x.dtype`.

    Raises:
        ValueError: If epsilon is negative, `x` is no floating-point array, or `scale` or
            `bias` has another width.
    """
    check_norm(x, {"scale": scale, "bias": bias}, epsilon)
    out = _standardise(x.astype(statistics_dtype(x)), epsilon)
    return _affine(out, scale, bias).astype(x.dtype)


def rms_norm(
    x: Float[Array, "*batch D"],
    scale: Float[Array, " D"] | None = None,
    *,
    epsilon: float = 1e-6,
    scale_offset: float = 0.0,
    cast: Literal["after", "before"] = "after",
) -> Float[Array, "*batch D"]:
    """Computes `(scale_offset + scale) x / sqrt(mean(x^2) + epsilon)`.

    No mean is taken off, no bias added.

    Args:
        x: Positions to normalise, each on its own.
        scale: One factor per feature, less the offset; None is a factor of 1.
        epsilon: Added to the mean square, at least 0; for 0 see the module docstring.
        scale_offset: Added to the scale, in at least float32: 1 lets a scale of 0 be neutral,
            and weight decay pull towards it (Gemma).
        cast: Whether the result is rounded to `x.dtype` after the scale, or before it and again
            after a product in `x.dtype`; for who does which see the module docstring.

    Returns:
        The normalised positions in `x.dtype`.

    Raises:
        ValueError: If epsilon is negative, `x` is no floating-point array, `scale` has another
            width or is missing where there is an offset, or `cast` is unknown.
    """
    check_norm(x, {"scale": scale}, epsilon)
    if cast not in ("after", "before"):
        raise ValueError(f"Unknown cast {cast!r}; use 'after' or 'before'.")
    dtype = statistics_dtype(x)
    raised = x.astype(dtype)
    mean_square = jnp.mean(jnp.square(raised), axis=-1, keepdims=True)
    out = raised * jax.lax.rsqrt(mean_square + epsilon)
    if scale is None:
        if scale_offset != 0:
            raise ValueError(
                f"scale_offset needs a scale to be added to, got scale=None, "
                f"scale_offset={scale_offset}; pass a scale of zeros, or no offset."
            )
        return out.astype(x.dtype)
    factor = scale.astype(dtype)
    if scale_offset != 0:
        factor = factor + scale_offset
    if cast == "before":
        out, factor = _rounded(out, x.dtype), factor.astype(x.dtype)
    return (out * with_rank(factor, x.ndim)).astype(x.dtype)


def scale_norm(
    x: Float[Array, "*batch D"], scale: Float[Array, ""], *, epsilon: float = 1e-5
) -> Float[Array, "*batch D"]:
    """Computes `scale * x / sqrt(sum(x^2) + epsilon)`: every position gets the length `scale`.

    This is `rms_norm` with one factor for all features, `scale / sqrt(D)`, and an epsilon D
    times as large. The paper has no epsilon, and published code bounds the length from below
    by it (`max(|x|, epsilon)`); here it is added to the squared length, so that the function
    is smooth at 0.

    Args:
        x: Positions to normalise, each on its own.
        scale: The length of the result; the paper starts it at sqrt(D).
        epsilon: Added to the squared length, at least 0; for 0 see the module docstring.

    Returns:
        The normalised positions in `x.dtype`.

    Raises:
        ValueError: If epsilon is negative, `x` is no floating-point array, or `scale` no scalar.
    """
    check_norm(x, {}, epsilon)
    _check_scalar("scale", scale)
    dtype = statistics_dtype(x)
    raised = x.astype(dtype)
    square = jnp.sum(jnp.square(raised), axis=-1, keepdims=True)
    return (raised * jax.lax.rsqrt(square + epsilon) * scale.astype(dtype)).astype(x.dtype)


def dynamic_tanh(
    x: Float[Array, "*batch D"],
    alpha: Float[Array, ""],
    scale: Float[Array, " D"] | None = None,
    bias: Float[Array, " D"] | None = None,
) -> Float[Array, "*batch D"]:
    """Computes `scale * tanh(alpha x) + bias`, which replaces a norm without statistics (DyT).

    Args:
        x: Positions, each entry mapped on its own.
        alpha: Slope at 0, learned; the paper starts it at 0.5.
        scale: One factor per feature; None is all ones.
        bias: One summand per feature; None is all zeros.

    Returns:
        The bounded positions in `x.dtype`, computed in at least float32.

    Raises:
        ValueError: If `x` is no floating-point array, `alpha` no scalar, or `scale` or `bias`
            has another width.
    """
    check_norm(x, {"scale": scale, "bias": bias})
    _check_scalar("alpha", alpha)
    dtype = statistics_dtype(x)
    out = jnp.tanh(alpha.astype(dtype) * x.astype(dtype))
    return _affine(out, scale, bias).astype(x.dtype)


def _affine(x: Array, scale: Array | None, bias: Array | None) -> Array:
    if scale is not None:
        x = x * with_rank(scale.astype(x.dtype), x.ndim)
    if bias is not None:
        x = x + with_rank(bias.astype(x.dtype), x.ndim)
    return x


def _rounded(x: Array, dtype: jnp.dtype) -> Array:
    """Casts to `dtype` so that no compiler leaves the rounding out.

    XLA may drop a conversion to a narrower type that is converted back for the next product.
    """
    if raised_dtype(dtype) != dtype:
        # The exponent keeps its eight bits: with five, small float16 numbers would become 0.
        x = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=jnp.finfo(dtype).nmant)
    return x.astype(dtype)


def _check_scalar(name: str, value: Array) -> None:
    if value.shape != ():
        raise ValueError(f"{name} must be a scalar array, got {name}.shape={value.shape}.")


def check_norm(x: Array, parameters: dict[str, Array | None], epsilon: float = 0.0) -> None:
    """Refuses a negative epsilon and parameters of another width."""
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be at least 0, got epsilon={epsilon}.")
    for name, value in parameters.items():
        if value is not None and value.shape != x.shape[-1:]:
            raise ValueError(
                f"{name} must have one entry per feature, got {name}.shape={value.shape} for "
                f"x.shape={x.shape}; use {x.shape[-1:]}."
            )


def _standardise_with_inverse(x: Array, epsilon: float) -> tuple[Array, Array]:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(variance + epsilon)
    return centred * inverse, inverse


# The derivative rule needs two means where automatic differentiation needs four passes: a
# training step of a small model is 1.08 times as fast. The same rule gains nothing for RMS norm.
@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _standardise(x: Array, epsilon: float) -> Array:
    return _standardise_with_inverse(x, epsilon)[0]


@_standardise.defjvp
def _standardise_jvp(epsilon, primals, tangents):
    (x,), (x_dot,) = primals, tangents
    out, inverse = _standardise_with_inverse(x, epsilon)
    along_out = out * jnp.mean(out * x_dot, axis=-1, keepdims=True)
    return out, (x_dot - jnp.mean(x_dot, axis=-1, keepdims=True) - along_out) * inverse
