"""Sublayers that own parameters and call one function each.

Parameter paths are public: checkpoints, golden files and other people's code refer to them.
"""

from collections.abc import Callable

import flax.linen as nn
from jaxtyping import Array, Bool, Float

from jtransformer import functional as F
from jtransformer.modules.initial import initialiser
from jtransformer.spec import LayerNorm, ModelSpec

NORM_SLOTS = {
    "pre": ("norm_in",),
    "post": ("norm_out",),
    "sandwich": ("norm_in", "norm_branch"),
    "branch": ("norm_branch",),
}
"""The norms of the residual formula that each placement has."""


class Parameterised(nn.Module):
    """A module whose parameters start as `initialiser` says for their path."""

    spec: ModelSpec

    def parameter(self, name: str, shape: tuple[int, ...]) -> Array:
        start = initialiser(self.spec, (*self.path, name), shape)
        return self.param(name, start, shape)


class Linear(Parameterised):
    """A kernel that contracts the last `axes` axes of its input, and a bias if wanted."""

    shape: tuple[int, ...]
    axes: int = 1
    bias: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.parameter("kernel", self.shape)
        bias = self.parameter("bias", self.shape[self.axes :]) if self.bias else None
        return F.linear(x, kernel, bias, axes=self.axes)


class Norm(Parameterised):
    """The norm of the spec, over the feature axis."""

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        norm, D = self.spec.norm, x.shape[-1]
        scale = self.parameter("scale", (D,))
        if isinstance(norm, LayerNorm):
            return F.layer_norm(x, scale, self.parameter("bias", (D,)), epsilon=norm.epsilon)
        return F.rms_norm(x, scale, epsilon=norm.epsilon)


class Attention(Parameterised):
    """Self-attention: projections, dot products, and the way back to the stream."""

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], mask: Bool[Array, "#B 1 T T"]
    ) -> Float[Array, "B T D"]:
        spec = self.spec
        D, N, H, bias = spec.width, spec.heads, spec.head_width, spec.attention_bias
        q = Linear(spec, (D, N, H), bias=bias, name="query")(x)
        k = Linear(spec, (D, N, H), bias=bias, name="key")(x)
        v = Linear(spec, (D, N, H), bias=bias, name="value")(x)
        heads_BTNH = F.dot_product_attention(q, k, v, mask=mask)
        return Linear(spec, (N, H, D), axes=2, bias=bias, name="out")(heads_BTNH)


class FeedForward(Parameterised):
    """Two matrices around an activation, or three with a gate."""

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        spec = self.spec
        D, Fw = spec.width, spec.ffn_width
        gated, activation = F.FFN_KINDS[spec.ffn]
        matrices = {"gate": (D, Fw), "up": (D, Fw), "down": (Fw, D)} if gated else {
            "in": (D, Fw), "out": (Fw, D)}  # fmt: skip
        kernels = [
            Kernel(spec, shape, spec.ffn_bias, name=name) for name, shape in matrices.items()
        ]
        weights, biases = zip(*(kernel() for kernel in kernels), strict=True)
        if gated:
            names = ("b_gate", "b_up", "b_down")
            named = dict(zip(names, biases, strict=True))
            return F.gated_feed_forward(x, *weights, activation=activation, **named)
        return F.feed_forward(x, *weights, *biases, activation=activation)


class Kernel(Parameterised):
    """A matrix and its bias, or None, for a function that takes several of them."""

    shape: tuple[int, ...]
    bias: bool

    @nn.compact
    def __call__(self) -> tuple[Array, Array | None]:
        kernel = self.parameter("kernel", self.shape)
        return kernel, self.parameter("bias", self.shape[1:]) if self.bias else None


class Block(nn.Module):
    """Attention, then feed-forward, each wired into the residual stream by one formula."""

    spec: ModelSpec

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], mask: Bool[Array, "#B 1 T T"]
    ) -> Float[Array, "B T D"]:
        attention = Attention(self.spec, name="attention")
        x = self.wired("attention", lambda y: attention(y, mask), x)
        return self.wired("ffn", FeedForward(self.spec, name="ffn"), x)

    def wired(self, name: str, sublayer: Callable[[Array], Array], x: Array) -> Array:
        slots = NORM_SLOTS[self.spec.norm_placement]
        norms = {slot: Norm(self.spec, name=f"{name}_{slot}") for slot in slots}
        return F.residual(
            x,
            sublayer,
            norm_in=norms.get("norm_in"),
            norm_branch=norms.get("norm_branch"),
            norm_out=norms.get("norm_out"),
        )
