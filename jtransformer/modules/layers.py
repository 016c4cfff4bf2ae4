"""Sublayers that own parameters and call one function each.

Parameter paths are public: checkpoints, golden files and other people's code refer to them.
"""

from collections.abc import Callable

import flax.linen as nn
from jaxtyping import Array, Bool, Float

from jtransformer import functional as F
from jtransformer.modules.initial import initialiser
from jtransformer.spec import LayerNorm, ModelSpec


class Parameterised(nn.Module):
    """A module whose parameters start as `initialiser` says for their path."""

    spec: ModelSpec

    def parameter(self, name: str, shape: tuple[int, ...]) -> Array:
        start = initialiser(self.spec, (*self.path, name), shape)
        return self.param(name, start, shape)


class Kernel(Parameterised):
    """A kernel and its bias, or None; the first `axes` axes of the kernel are its fan-in."""

    shape: tuple[int, ...]
    axes: int = 1
    bias: bool = False

    @nn.compact
    def __call__(self) -> tuple[Array, Array | None]:
        kernel = self.parameter("kernel", self.shape)
        return kernel, self.parameter("bias", self.shape[self.axes :]) if self.bias else None


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
        q, k, v = (
            F.linear(x, *Kernel(spec, (D, N, H), bias=bias, name=name)())
            for name in ("query", "key", "value")
        )
        heads_BTNH = F.dot_product_attention(q, k, v, mask=mask)
        out = Kernel(spec, (N, H, D), axes=2, bias=bias, name="out")()
        return F.linear(heads_BTNH, *out, axes=2)


class FeedForward(Parameterised):
    """Two matrices around an activation, or three with a gate."""

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        spec = self.spec
        D, Fw = spec.width, spec.ffn_width
        gated, activation = F.FFN_KINDS[spec.ffn]

        def weights(name: str, *shape: int) -> tuple[Array, Array | None]:
            return Kernel(spec, shape, bias=spec.ffn_bias, name=name)()

        if not gated:
            (w_in, b_in), (w_out, b_out) = weights("in", D, Fw), weights("out", Fw, D)
            return F.feed_forward(x, w_in, w_out, b_in, b_out, activation=activation)
        w_gate, b_gate = weights("gate", D, Fw)
        w_up, b_up = weights("up", D, Fw)
        w_down, b_down = weights("down", Fw, D)
        biases = {"b_gate": b_gate, "b_up": b_up, "b_down": b_down}
        return F.gated_feed_forward(x, w_gate, w_up, w_down, activation=activation, **biases)


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
        norms = {slot: Norm(self.spec, name=f"{name}_{slot}") for slot in self.spec.norm_slots}
        return F.residual(
            x,
            sublayer,
            norm_in=norms.get("norm_in"),
            norm_branch=norms.get("norm_branch"),
            norm_out=norms.get("norm_out"),
        )
