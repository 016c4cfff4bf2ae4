"""Pointwise non-linearities.

Two of them are easy to confuse and are different functions: `gelu` is the exact form with
the normal distribution function (BERT), `gelu_tanh` an approximation that published models
were trained with (GPT-1, GPT-2, T5 v1.1, Gemma).

Sources: ReLU, Nair and Hinton 2010, sec. 2,
https://www.cs.toronto.edu/~hinton/absps/reluICML.pdf; squared ReLU, So et al. 2021, sec. 4,
https://arxiv.org/abs/2109.08668; GELU and its tanh form, Hendrycks and Gimpel 2016, sec. 2,
https://arxiv.org/abs/1606.08415; SiLU, Elfwing et al. 2017, sec. 2,
https://arxiv.org/abs/1702.03118 (Swish with beta = 1: Ramachandran et al. 2017,
https://arxiv.org/abs/1710.05941); ELU, Clevert et al. 2015, sec. 3,
https://arxiv.org/abs/1511.07289, plus one as the feature map of Katharopoulos et al. 2020,
sec. 3.2.1, https://arxiv.org/abs/2006.16236.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jtransformer.functional._arrays import statistics_dtype


def identity(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns `x`: the gate of a bilinear unit."""
    return x


def relu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes `max(x, 0)` with slope 0 at 0.

    `jnp.maximum(x, 0)` alone has slope 1/2 there. NaN stays NaN.
    """
    return jnp.where(x <= 0, jnp.zeros_like(x), x)


def relu_squared(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes `max(x, 0)^2`."""
    return jnp.square(relu(x))


def gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes `x Phi(x)` exactly, Phi being the standard normal distribution function.

    Written with erfc, which keeps its relative precision far to the left.

    Returns:
        The activation in `x.dtype`, computed in at least float32.
    """
    return _gated(_normal_distribution, x)


def gelu_tanh(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`, which is not `gelu`.

    It differs from `gelu` by up to 4.7e-4 (at |x| = 2.7).

    Returns:
        The activation in `x.dtype`, computed in at least float32 (a float16 cube overflows
        at 41).
    """
    return _gated(_tanh_distribution, x)


def sigmoid(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes `1 / (1 + exp(-x))`, in at least float32."""
    return jax.lax.logistic(x.astype(statistics_dtype(x))).astype(x.dtype)


def silu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes `x sigmoid(x)`, in at least float32: unbounded above, never below -0.279."""
    return _gated(jax.lax.logistic, x)


def tanh(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes the hyperbolic tangent, in at least float32."""
    return jnp.tanh(x.astype(statistics_dtype(x))).astype(x.dtype)


def elu_plus_one(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes `exp(x)` left of 0 and `x + 1` right of it: positive, with slope 1 at 0.

    Returns:
        The feature in `x.dtype`, computed in at least float32.
    """
    raised = x.astype(statistics_dtype(x))
    # The exponential is never formed right of 0, where it may overflow and spoil the slope.
    left = jnp.exp(jnp.where(raised < 0, raised, jnp.zeros_like(raised)))
    return jnp.where(raised < 0, left, raised + 1).astype(x.dtype)


def _normal_distribution(x: Array) -> Array:
    return 0.5 * jax.lax.erfc(x * -math.sqrt(0.5))


def _tanh_distribution(x: Array) -> Array:
    # The tanh is 1 to the last digit long before 1e3, where the cube cannot overflow yet.
    bounded = jnp.clip(x, -1e3, 1e3)
    inner = math.sqrt(2 / math.pi) * (bounded + 0.044715 * bounded * bounded * bounded)
    return 0.5 * (1 + jnp.tanh(inner))


def _gated(gate: Callable[[Array], Array], x: Array) -> Array:
    """Computes `x gate(x)` in at least float32, in `x.dtype`."""
    return _times_gate(gate, x.astype(statistics_dtype(x))).astype(x.dtype)


# With a rule of its own the backward pass reads one array, the slope, where automatic
# differentiation keeps several: a feed-forward network takes 0.93 to 0.98 times as long on CPU.
@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _times_gate(gate: Callable[[Array], Array], x: Array) -> Array:
    return x * gate(x)


@_times_gate.defjvp
def _times_gate_jvp(gate, primals, tangents):
    (x,), (x_dot,) = primals, tangents
    share, slope = jax.jvp(gate, primals, (jnp.ones_like(x),))
    return x * share, x_dot * (share + x * slope)
