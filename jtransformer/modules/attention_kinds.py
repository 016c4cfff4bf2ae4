"""Self-attention without a softmax, and from a latent; and the choice among the kinds.

Sources: Katharopoulos et al. 2020, https://arxiv.org/abs/2006.16236; DeepSeek-AI 2024, sec. 2.1,
https://arxiv.org/abs/2405.04434. Where we differ: queries come straight from the stream, and the
rotary channels of queries have a matrix of their own, so that models with and without rotary
positions start with the same values of the rest; the maps from the latent have no biases.
"""

from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from jtransformer import functional as F
from jtransformer.modules.attention import Attended, Attention, DotProductAttention, inner_epsilon
from jtransformer.modules.context import Own, Shared, seen
from jtransformer.modules.layers import Scale
from jtransformer.modules.positions import position_plan
from jtransformer.spec import DotProduct, LatentAttention, LinearAttention, ModelSpec


class LinearSelfAttention(Attention):
    """Self-attention by products of features; what it keeps does not grow with the length."""

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"], shared: Shared, own: Own) -> Attended:
        spec, kept, state = self.spec, {}, None
        q = self.project(shared, "query", x, spec.heads, spec.H)
        k, v = (self.project(shared, name, x, spec.K, spec.H) for name in ("key", "value"))
        if own.cache is None:
            causal, valid = self.part.causal, shared.valid
            attend = self.attending(F.linear_attention)
            heads = attend(q, k, v, causal=causal, key_valid=valid)
        else:
            assert isinstance(own.cache.state, F.LinearAttentionState)
            state, heads = F.linear_attention_step(own.cache.state, q, k, v, key_valid=shared.valid)
        self.keep(kept, query=q, key=k, value=v, mixed=heads)
        return Attended(self.joined(shared, heads), state, kept)


class LatentSelfAttention(Attention):
    """Self-attention whose keys and values come from one latent per token."""

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"], shared: Shared, own: Own) -> Attended:
        spec, kind, kept = self.spec, self.spec.attention, {}
        assert isinstance(kind, LatentAttention)
        C, N = kind.latent_width, spec.heads
        q = self.project(shared, "query", x, N, spec.H)
        scale = Scale(spec, (C,), name="latent_norm")
        latent = F.rms_norm(
            self.project(shared, "latent", x, C), scale(), epsilon=inner_epsilon(spec)
        )
        q_rotary, k_rotary = self.rotary(x, shared)
        w_k, _ = self.kernel("key", (C, N, spec.H))
        w_v, _ = self.kernel("value", (C, N, spec.Hv))
        self.keep(kept, query=q, query_turned=q_rotary)
        self.keep(kept, key_turned=None if k_rotary is None else k_rotary[:, :, None])
        for name, w in {"key": w_k, "value": w_v}.items():
            if name in self.wanted:
                kept[name] = F.linear(latent, w)
        cache = read = None
        if own.cache is not None:
            assert isinstance(own.cache.state, F.KVCache)
            # Without rotary channels a cache still has a value: one that is never read.
            nothing = jnp.zeros((*latent.shape[:2], 1), latent.dtype)
            value = nothing if k_rotary is None else k_rotary
            cache = own.cache.state.append(
                latent[:, :, None], value[:, :, None], valid=shared.valid
            )
            read = cache.read()
            latent = read.k[:, :, 0].astype(latent.dtype)
            k_rotary = None if k_rotary is None else read.v[:, :, 0].astype(k_rotary.dtype)
        view = seen(spec, self.part, self.windowed, shared=shared, own=own, read=read)
        heads = F.latent_attention(
            q,
            latent,
            w_k,
            w_v,
            q_rotary=q_rotary,
            k_rotary=k_rotary,
            mask=view.mask,
            bias=view.bias,
            form=cheaper_form(q.shape[1], latent.shape[1], spec),
            attend=self.attending(shared.placement.attend),
            **self.drops(shared, own, "attention"),
        )
        self.keep(kept, mixed=heads)
        if self.wanted & {"scores", "weights"}:
            k = F.linear(latent, w_k)
            if q_rotary is not None and k_rotary is not None:
                turned = jnp.broadcast_to(k_rotary[:, :, None], (*k.shape[:3], k_rotary.shape[-1]))
                q, k = jnp.concatenate([q, q_rotary], -1), jnp.concatenate([k, turned], -1)
            self.keep_scores(kept, q, k, {"mask": view.mask, "bias": view.bias})
        return Attended(self.joined(shared, heads), cache, kept)

    def rotary(self, x: Array, shared: Shared) -> tuple[Array | None, Array | None]:
        """Returns the turned channels of the queries and of the one key that heads share."""
        spec, plan = self.spec, position_plan(self.spec, causal=self.part.causal)
        assert isinstance(spec.attention, LatentAttention)
        Hr = spec.attention.rotary_width
        if Hr is None or plan.turn is None:
            return None, None
        q = self.project(shared, "query_rotary", x, spec.heads, Hr)
        k = self.project(shared, "key_rotary", x, Hr)[:, :, None]
        q, k = (plan.turn(heads, shared.positions, False) for heads in (q, k))
        return q, k[:, :, 0]


def cheaper_form(T: int, S: int, spec: ModelSpec) -> Literal["absorbed", "expanded"]:
    """Returns the form of latent attention with fewer products for T queries and S keys."""
    assert isinstance(spec.attention, LatentAttention)
    C, widths = spec.attention.latent_width, spec.H + spec.Hv
    expanded = S * C * widths + T * S * widths
    absorbed = T * C * widths + T * S * 2 * C
    return "absorbed" if absorbed < expanded else "expanded"


def self_attention(spec: ModelSpec) -> type[Attention]:
    """Returns the module of a model's self-attention."""
    match spec.attention:
        case DotProduct():
            return DotProductAttention
        case LinearAttention():
            return LinearSelfAttention
        case LatentAttention():
            return LatentSelfAttention
