"""Initial values of kernels with any number of axes: the fans are what the caller names.

The initialisers of `jax.nn` take the last axis but one for the fan-in and every axis before it
for a convolution's window. For a kernel of heads that is wrong without a word: `[D, N, H]` gets
`D N` in the place of D, the joining `[N, H, D]` gets it right by luck, and a stack of layers
`[L, D, F]` is L times too wide. So the axes have no default here:

    kernel                  fan_in_axes  stacked_axes
    D F   feed-forward      (0,)
    D N H query, key, value (0,)
    N H D output            (0, 1)
    L D N H  layers' query  (1,)         (0,)

Every axis that is neither is fan-out. The draws themselves are those of `jax.nn.initializers`,
in at least float32 and then rounded: drawn in bfloat16, a normal variable has 128 values and none
beyond 2.6 deviations. "truncated_normal" is cut at two standard deviations and widened, so that
the stated deviation is that of the values drawn (as drawn in BERT's code they have 0.88 of it).

Sources: fan-in, LeCun et al. 1998, sec. 4.6, http://yann.lecun.com/exdb/publis/pdf/lecun-98b.pdf;
Xavier, Glorot and Bengio 2010, sec. 4.2, https://proceedings.mlr.press/v9/glorot10a.html; by
depth, Radford et al. 2019 (GPT-2), sec. 2.3,
https://cdn.openai.com/better-language-models/language_models.pdf; DeepNorm, Wang et al. 2022,
sec. 2, figure 2, https://arxiv.org/abs/2203.00555.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jtransformer.functional._arrays import raised_dtype

Distribution = Literal["normal", "truncated_normal", "uniform"]
"""Shape of a distribution whose mean is 0 and whose deviation is given."""
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)


def draw_normal(
    key: PRNGKeyArray,
    shape: Sequence[int],
    dtype: Any = jnp.float32,
    *,
    deviation: float,
    distribution: Literal["normal", "truncated_normal"] = "normal",
) -> Float[Array, "..."]:
    """Draws values around 0 with a given standard deviation, such as 0.02 in BERT and GPT-2.

    Args:
        key: Random key, consumed once.
        shape: Shape of the parameter.
        dtype: Its dtype.
        deviation: Standard deviation of the values drawn, at least 0.
        distribution: With or without the tails beyond two deviations.

    Raises:
        ValueError: If the deviation is negative, the distribution unknown, or `dtype` is no
            floating-point type.
    """
    if not deviation >= 0:
        raise ValueError(f"deviation must be at least 0, got deviation={deviation}.")
    _check_distribution(distribution, ("normal", "truncated_normal"))
    if distribution == "normal":
        return _drawn(jax.nn.initializers.normal(deviation), key, shape, dtype)
    # Deviation of a standard normal variable cut at ±2: 0.8796.
    density, mass = math.exp(-2) / math.sqrt(2 * math.pi), math.erf(math.sqrt(2))
    cut = math.sqrt(1 - 4 * density / mass)
    return _drawn(jax.nn.initializers.truncated_normal(deviation / cut), key, shape, dtype)


def draw_fan_in(
    key: PRNGKeyArray,
    shape: Sequence[int],
    dtype: Any = jnp.float32,
    *,
    fan_in_axes: Sequence[int],
    stacked_axes: Sequence[int] = (),
    distribution: Distribution = "normal",
) -> Float[Array, "..."]:
    """Draws values with variance `1 / fan_in`, which keeps the variance of a linear map (LeCun).

    Args:
        key: Random key, consumed once.
        shape: Shape of the kernel.
        dtype: Its dtype.
        fan_in_axes: Axes that the kernel sums over; see the module docstring.
        stacked_axes: Axes along which kernels of their own are stacked, such as layers.
        distribution: Shape of the distribution.

    Raises:
        ValueError: If there is no fan-in axis, an axis does not exist or is named twice, the
            distribution is unknown, or `dtype` is no floating-point type.
    """
    _check_distribution(distribution, DISTRIBUTIONS)
    axes = _axes(shape, fan_in_axes, stacked_axes)
    start = jax.nn.initializers.variance_scaling(1.0, "fan_in", distribution, **axes)
    return _drawn(start, key, shape, dtype)


def draw_xavier(
    key: PRNGKeyArray,
    shape: Sequence[int],
    dtype: Any = jnp.float32,
    *,
    fan_in_axes: Sequence[int],
    stacked_axes: Sequence[int] = (),
    gain: float = 1.0,
    distribution: Distribution = "normal",
) -> Float[Array, "..."]:
    """Draws values with variance `gain^2 * 2 / (fan_in + fan_out)` (Xavier, Glorot).

    Args:
        key: Random key, consumed once.
        shape: Shape of the kernel.
        dtype: Its dtype.
        fan_in_axes: Axes that the kernel sums over; see the module docstring.
        stacked_axes: Axes along which kernels of their own are stacked, such as layers.
        gain: Factor of the values.
        distribution: Shape of the distribution; the paper's is "uniform".

    Raises:
        ValueError: If there is no fan-in axis, an axis does not exist or is named twice, the
            distribution is unknown, or `dtype` is no floating-point type.
    """
    _check_distribution(distribution, DISTRIBUTIONS)
    axes = _axes(shape, fan_in_axes, stacked_axes)
    start = jax.nn.initializers.variance_scaling(gain**2, "fan_avg", distribution, **axes)
    return _drawn(start, key, shape, dtype)


def draw_depth_scaled(
    key: PRNGKeyArray,
    shape: Sequence[int],
    dtype: Any = jnp.float32,
    *,
    layers: int,
    branches: int = 2,
    deviation: float = 0.02,
    distribution: Literal["normal", "truncated_normal"] = "normal",
) -> Float[Array, "..."]:
    """Draws values with deviation `deviation / sqrt(branches * layers)` (GPT-2).

    For the matrices that write to the residual stream, one for each branch: the sum of all
    branches then starts with a variance that does not grow with depth.

    Args:
        key: Random key, consumed once.
        shape: Shape of the kernel.
        dtype: Its dtype.
        layers: Layers of the stack, at least 1.
        branches: Branches of a layer: 2, or 3 with cross-attention.
        deviation: Standard deviation of the model's other matrices.
        distribution: With or without the tails beyond two deviations.

    Raises:
        ValueError: If `layers` or `branches` is less than 1, the deviation is negative, the
            distribution unknown, or `dtype` is no floating-point type.
    """
    if layers < 1 or branches < 1:
        raise ValueError(
            f"layers and branches must be at least 1, got layers={layers}, branches={branches}."
        )
    scaled = deviation / math.sqrt(branches * layers)
    return draw_normal(key, shape, dtype, deviation=scaled, distribution=distribution)


def draw_deepnorm(
    key: PRNGKeyArray,
    shape: Sequence[int],
    dtype: Any = jnp.float32,
    *,
    part: Literal["query", "key", "value", "out", "ffn"],
    init_gain: float,
    fan_in_axes: Sequence[int],
    stacked_axes: Sequence[int] = (),
) -> Float[Array, "..."]:
    """Draws Xavier normal values with the gain that DeepNorm gives to a part of the layer.

    The gain is `init_gain` for the value and output projections and for every matrix of the
    feed-forward sublayer, 1 for query and key. A packed projection has two gains: draw its
    parts one by one. The authors' later code (torchscale) multiplies the values of its usual
    initialisers by `init_gain` instead, whatever these are.

    Args:
        key: Random key, consumed once.
        shape: Shape of the kernel.
        dtype: Its dtype.
        part: Which matrix of the layer.
        init_gain: The paper's beta; see `deepnorm`.
        fan_in_axes: Axes that the kernel sums over; see the module docstring.
        stacked_axes: Axes along which kernels of their own are stacked, such as layers.

    Raises:
        ValueError: If the part is unknown, there is no fan-in axis, an axis does not exist or is
            named twice, or `dtype` is no floating-point type.
    """
    gains = {"query": 1.0, "key": 1.0, "value": init_gain, "out": init_gain, "ffn": init_gain}
    if part not in gains:
        raise ValueError(f"Unknown part {part!r}; use {', '.join(map(repr, gains))}.")
    return draw_xavier(
        key, shape, dtype, fan_in_axes=fan_in_axes, stacked_axes=stacked_axes, gain=gains[part]
    )


def _drawn(start: Callable[..., Array], key: Array, shape: Sequence[int], dtype: Any) -> Array:
    """Returns the values of an initialiser, drawn in at least float32."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"Initial values need a floating-point dtype, got dtype={dtype}.")
    if 0 in shape:
        # The fans of an empty kernel would be divided by.
        return jnp.zeros(tuple(shape), dtype)
    return start(key, tuple(shape), raised_dtype(dtype)).astype(dtype)


def _check_distribution(distribution: str, known: tuple[str, ...]) -> None:
    if distribution not in known:
        raise ValueError(
            f"Unknown distribution {distribution!r}; use {', '.join(map(repr, known))}."
        )


def _axes(
    shape: Sequence[int], fan_in_axes: Sequence[int], stacked_axes: Sequence[int]
) -> dict[str, list[int]]:
    """Returns the axes as JAX names them; those that are not named are the fan-out."""
    rank = len(shape)
    named = [*fan_in_axes, *stacked_axes]
    places = [axis % rank if -rank <= axis < rank else None for axis in named]
    if len(fan_in_axes) == 0 or None in places or len(set(places)) < len(places):
        raise ValueError(
            f"fan_in_axes (at least one) and stacked_axes must be different axes of the kernel, "
            f"got fan_in_axes={tuple(fan_in_axes)}, stacked_axes={tuple(stacked_axes)} for "
            f"shape={tuple(shape)}."
        )
    rest = [axis for axis in range(rank) if axis not in places]
    return {"in_axis": list(fan_in_axes), "out_axis": rest, "batch_axis": list(stacked_axes)}
