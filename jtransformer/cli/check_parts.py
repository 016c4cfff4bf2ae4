"""The functions of `jtransformer.functional` as the parts that worked figures ask for."""

from typing import Any

from jtransformer.checks import Parts


def functional_parts() -> Parts:
    """Returns every part, as `jtransformer.checks.Parts` says what it is called with."""
    import functools

    import jax.numpy as jnp

    from jtransformer import functional as F

    def drawn(mask: Any) -> Any:
        return None if mask is None else jnp.asarray(mask)[None, None]

    def attention_layer(x: Any, kernels: Any, mask: Any) -> Any:
        *inwards, wo = kernels
        q, k, v = (F.linear(x[None], kernel) for kernel in inwards)
        return F.linear(F.dot_product_attention(q, k, v, mask=drawn(mask)), wo, axes=2)[0]

    def residual(x: Any, sublayer: Any, norm_in: Any, norm_out: Any) -> Any:
        return F.residual(x, sublayer, norm_in=norm_in, norm_out=norm_out)

    def cross_entropy(logits: Any, labels: Any, weights: Any, smoothing: float) -> Any:
        sums = F.cross_entropy(logits, labels, weights, label_smoothing=smoothing)
        return sums.loss_sum / sums.weight_sum

    def with_mask(function: Any) -> Any:
        return lambda *heads: function(*heads[:-1], mask=drawn(heads[-1]))

    return Parts(
        layer_norm=lambda x, epsilon: F.layer_norm(x, epsilon=epsilon),
        rms_norm=lambda x, epsilon: F.rms_norm(x, epsilon=epsilon),
        attention=with_mask(F.dot_product_attention),
        attention_weights=with_mask(F.attention_weights),
        attention_layer=attention_layer,
        feed_forward=lambda x, w_in, w_out, act: F.feed_forward(x, w_in, w_out, activation=act),
        activations={
            "relu": F.relu,
            "gelu": F.gelu,
            "gelu_tanh": F.gelu_tanh,
            "silu": F.silu,
            "sigmoid": F.sigmoid,
        },
        residual=residual,
        rope={
            pairing: functools.partial(F.rope, pairing=pairing)
            for pairing in ("half", "interleaved")
        },
        sinusoidal=F.sinusoidal_positions,
        causal_mask=F.causal_mask,
        prefix_mask=F.prefix_mask,
        cross_entropy=cross_entropy,
    )
