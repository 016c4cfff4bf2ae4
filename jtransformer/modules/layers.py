"""Parts that own parameters and call one function each.

Parameter paths are public: checkpoints, golden files and other people's code refer to them.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from jtransformer import functional as F
from jtransformer.modules.casting import rounded
from jtransformer.modules.dropping import NO_DROP, Drop
from jtransformer.modules.initial import initialiser
from jtransformer.modules.placement import ONE_DEVICE, Placement
from jtransformer.spec import (
    DynamicTanh,
    FixedScale,
    LayerNorm,
    LayerScale,
    ModelSpec,
    ReZero,
    RMSNorm,
    ScaleNorm,
)


class Parameterised(nn.Module):
    """A module whose parameters start as `initialiser` says for their path."""

    spec: ModelSpec

    def parameter(self, name: str, shape: tuple[int, ...]) -> Array:
        start = initialiser(self.spec, (*self.path, name), shape)
        return self.param(name, start, shape)


class Kernel(Parameterised):
    """A kernel and its bias, or None, as products use them.

    Attributes:
        shape: Of the kernel.
        axes: How many of its axes, from the first on, are its fan-in.
        bias: Whether it has one.
        precision: The floating-point type of the products.
    """

    shape: tuple[int, ...]
    axes: int = 1
    bias: bool = False
    precision: str = "float32"

    @nn.compact
    def __call__(self) -> tuple[Array, Array | None]:
        kernel = rounded(self.parameter("kernel", self.shape), self.precision)
        if not self.bias:
            return kernel, None
        return kernel, rounded(self.parameter("bias", self.shape[self.axes :]), self.precision)


class Bias(Parameterised):
    """A bias whose matrix is another module's."""

    width: int

    @nn.compact
    def __call__(self) -> Float[Array, " width"]:
        return self.parameter("bias", (self.width,))


class Table(Parameterised):
    """A lookup table [rows, width] that a function reads."""

    rows: int
    width: int

    @nn.compact
    def __call__(self) -> Float[Array, "rows width"]:
        return self.parameter("table", (self.rows, self.width))


class Scale(Parameterised):
    """Factors of their own."""

    shape: tuple[int, ...]

    @nn.compact
    def __call__(self) -> Float[Array, "..."]:
        return self.parameter("scale", self.shape)


class Norm(Parameterised):
    """The norm of the spec, over the feature axis."""

    @nn.compact
    def __call__(self, x: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
        D = x.shape[-1]
        match self.spec.norm:
            case LayerNorm(epsilon=epsilon, bias=has_bias):
                scale = self.parameter("scale", (D,))
                bias = self.parameter("bias", (D,)) if has_bias else None
                return F.layer_norm(x, scale, bias, epsilon=epsilon)
            case RMSNorm(epsilon=epsilon, unit_offset=unit_offset):
                offset = 1.0 if unit_offset else 0.0
                scale = self.parameter("scale", (D,))
                return F.rms_norm(x, scale, epsilon=epsilon, scale_offset=offset)
            case ScaleNorm(epsilon=epsilon):
                return F.scale_norm(x, self.parameter("scale", ()), epsilon=epsilon)
            case DynamicTanh():
                alpha = self.parameter("alpha", ())
                scale, bias = self.parameter("scale", (D,)), self.parameter("bias", (D,))
                return F.dynamic_tanh(x, alpha, scale, bias)


def at_least_float32(dtype: DTypeLike) -> jnp.dtype:
    """Returns the dtype in which values of a dtype are added up."""
    return jnp.dtype(dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32)


def branch_scale(spec: ModelSpec, name: str) -> float | Array:
    """Returns the factor of a branch, made in the module that is being called."""
    match spec.branch_scale:
        case FixedScale(value=value):
            return value
        case ReZero():
            return Scale(spec, (), name=name)()
        case LayerScale():
            return Scale(spec, (spec.width,), name=name)()


class FeedForward(Parameterised):
    """Two matrices around an activation, or three with a gate.

    Attributes:
        wanted: Names of the intermediates to return; see `jtransformer.modules.intermediates`.
    """

    wanted: frozenset[str] = frozenset()

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], drop: Drop = NO_DROP, placement: Placement = ONE_DEVICE
    ) -> tuple[Float[Array, "B T D"], dict[str, Float[Array, "B T F"]]]:
        """Computes the sublayer, and its intermediates that are wanted.

        Args:
            x: What it reads.
            drop: Dropout on the hidden units.
            placement: Where they lie.
        """
        spec = self.spec
        D, Fw = spec.width, spec.ffn_width
        kind = F.FFN_KINDS[spec.ffn]
        kept: dict[str, Array] = {}

        def keep(name: str, value: Array) -> Array:
            if name in self.wanted:
                kept[name] = value
            return value

        def activation(hidden: Array) -> Array:
            hidden = keep("gate" if kind.gated else "hidden", placement.hidden(hidden))
            # A hidden unit with a gate is zero, or scaled, where its gate is.
            active = keep("activation", kind.activation(hidden))
            return F.dropout(active, rate=drop.rate, key=drop.key)

        def weights(name: str, *shape: int) -> tuple[Array, Array | None]:
            precision = spec.precision.ffn
            return Kernel(spec, shape, bias=spec.ffn_bias, precision=precision, name=name)()

        options: Any = {"activation": activation, "rows": placement.rows}
        if not kind.gated:
            (w_in, b_in), (w_out, b_out) = weights("in", D, Fw), weights("out", Fw, D)
            out = F.feed_forward(x, w_in, w_out, b_in, b_out, **options)
            return out, kept
        w_gate, b_gate = weights("gate", D, Fw)
        w_up, b_up = weights("up", D, Fw)
        w_down, b_down = weights("down", Fw, D)
        options |= {"b_gate": b_gate, "b_up": b_up, "b_down": b_down}
        out = F.gated_feed_forward(x, w_gate, w_up, w_down, **options)
        if "up" in self.wanted:
            kept["up"] = F.linear(x, w_up, b_up, rows=placement.rows)
        return out, kept
