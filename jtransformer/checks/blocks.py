"""Whole blocks worked out by hand, composed of a model's parts, with every value on the way."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.checks.law import Law
from jtransformer.checks.parts import Parts
from jtransformer.checks.worked import GROUP, figures, given, worked

Record = dict[str, Any]

VARIANTS = {
    "pre_ln_causal_relu_eps0": ("pre", "layer_norm", True, "relu", 0.0),
    "pre_ln_bidirectional_relu_eps0": ("pre", "layer_norm", False, "relu", 0.0),
    "pre_ln_causal_relu_eps1e-5": ("pre", "layer_norm", True, "relu", 1e-5),
    "post_ln_causal_relu_eps1e-5": ("post", "layer_norm", True, "relu", 1e-5),
    "pre_rms_causal_relu_eps1e-6": ("pre", "rms_norm", True, "relu", 1e-6),
    "pre_ln_causal_gelu_eps1e-5": ("pre", "layer_norm", True, "gelu", 1e-5),
    "pre_rms_bidirectional_relu_eps1e-6": ("pre", "rms_norm", False, "relu", 1e-6),
}
"""Placement, norm, causal, activation, epsilon."""
BLOCK_PARTS = (
    "layer_norm",
    "rms_norm",
    "attention",
    "attention_weights",
    "feed_forward",
    "activations",
    "causal_mask",
)


def _noting(record: Record, name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the function, which writes its result into a record."""

    def noted(x: Any) -> Any:
        record[name] = function(x)
        return record[name]

    return noted


def _wired(parts: Parts, x: Any, sublayer: Any, norm_in: Any, norm_out: Any) -> Any:
    if parts.residual is not None:
        return parts.residual(x, sublayer, norm_in, norm_out)
    y = x + sublayer(x if norm_in is None else norm_in(x))
    return y if norm_out is None else norm_out(y)


def _square(mask: Any) -> Any:
    return jnp.asarray(mask).reshape(jnp.shape(mask)[-2:])


def _one_head(parts: Parts, known: Mapping[str, Any], variant: str) -> Record:
    """Computes both sublayers, the end of the stack and the loss; all projections are 1."""
    placement, norm_name, causal, activation, epsilon = VARIANTS[variant]
    x, w1, w2, w_out = (given(known[n]) for n in ("x", "w1", "w2", "w_out"))
    assert parts.causal_mask and parts.attention and parts.attention_weights
    assert parts.feed_forward and parts.activations
    attend, weigh, network = parts.attention, parts.attention_weights, parts.feed_forward
    act = parts.activations[activation]
    mask = _square(parts.causal_mask(2)) if causal else None
    record: Record = {}

    def norm(h: Any) -> Any:
        return getattr(parts, norm_name)(h, epsilon)

    def attention(h: Any) -> Any:
        heads = h[None, :, None]
        record["attention_weights"] = weigh(heads, heads, mask)[0, 0]
        return attend(heads, heads, heads, mask)[0, :, 0]

    def feed_forward(h: Any) -> Any:
        return network(h, w1, w2, act)

    sublayers = (("attention_out", attention, "1"), ("ffn_out", feed_forward, "2"))
    for name, sublayer, number in sublayers:
        noted = _noting(record, f"norm{number}", norm)
        norms = (noted, None) if placement == "pre" else (None, noted)
        x = _wired(parts, x, _noting(record, name, sublayer), *norms)
        record[f"residual{number}"] = x
    record["final"] = norm(x) if placement == "pre" else x
    record["logits"] = record["final"] @ w_out
    record["probs"] = jax.nn.softmax(record["logits"])
    labels = jnp.asarray(known["targets"], jnp.int32)
    if parts.cross_entropy is not None:
        record["nll"] = parts.cross_entropy(record["logits"], labels, jnp.ones(2), 0.0)
    return record


def _one_head_blocks(parts: Parts) -> dict[str, tuple[Any, Any]]:
    known, pairs = figures("worked_block"), {}
    for variant in VARIANTS:
        record = _one_head(parts, known, variant)
        own = known[variant]
        pairs |= {f"{n} of {variant}": (record[n], own[n]) for n in own if n in record}
    return pairs


def _two_heads(parts: Parts, known: Mapping[str, Any], x: Any, variant: str) -> Record:
    """Computes a block of two heads of width 2 on a stream of width 4.

    Args:
        parts: What it is composed of.
        known: Its weights.
        x: The stream.
        variant: What it is: placement, `causal` or `full`, a head that is off, `rms`.
    """
    wq, wk, wv = (jnp.swapaxes(given(known[n]), 0, 1) for n in ("wq", "wk", "wv"))
    wo = given(known["wo"]).reshape(2, 2, 4)
    w1, w2 = (given(known[n]) for n in ("w1", "w2"))
    assert parts.causal_mask and parts.attention and parts.attention_weights
    assert parts.feed_forward and parts.activations
    attend, weigh, network = parts.attention, parts.attention_weights, parts.feed_forward
    relu, layer, rms = parts.activations["relu"], parts.layer_norm, parts.rms_norm
    mask = _square(parts.causal_mask(len(x))) if "causal" in variant else None
    on = np.array(["head1_off" not in variant, "head2_off" not in variant])
    record: Record = {}

    def norm(h: Any) -> Any:
        assert layer is not None and rms is not None
        return rms(h, 1e-6) if "rms" in variant else layer(h, known["epsilon"])

    def attention(h: Any) -> Any:
        q, k, v = (jnp.einsum("TD,DNH->TNH", h, w)[None] for w in (wq, wk, wv))
        record["weights"] = weigh(q, k, mask)[0]
        heads = jnp.where(on[:, None], attend(q, k, v, mask)[0], 0.0)
        record["heads"] = jnp.swapaxes(heads, 0, 1)
        if parts.attention_layer is not None and on.all():
            record["attention"] = parts.attention_layer(h, (wq, wk, wv, wo), mask)
        else:
            record["attention"] = jnp.einsum("TNH,NHD->TD", heads, wo)
        return record["attention"]

    def feed_forward(h: Any) -> Any:
        record["ffn"] = network(h, w1, w2, relu)
        return record["ffn"]

    norms = (None, norm) if variant.startswith("post") else (norm, None)
    x = record["after_norm1"] = _wired(parts, x, attention, *norms)
    x = _wired(parts, x, feed_forward, *norms)
    record["output"] = x if variant.startswith("post") else norm(x)
    return record


def _two_head_blocks(parts: Parts) -> dict[str, tuple[Any, Any]]:
    known, pairs = figures("two_head_block"), {}
    block = known["block"]
    x = given(block["x"])
    record = _two_heads(parts, block, x, "post_full")
    for name in ("weights", "heads", "attention", "after_norm1", "ffn", "output"):
        pairs[name] = (record[name], block[name])
    for variant, expected in known["variants"].items():
        pairs[variant] = (_two_heads(parts, block, x, variant)["output"], expected)
    law = known["permutation_law"]
    rows = jnp.asarray(law["rows"])
    for variant, figure in (("post_full", "full"), ("post_causal", "causal")):
        turned = _two_heads(parts, block, x[rows], variant)["output"]
        there = _two_heads(parts, block, x, variant)["output"][rows]
        name = f"change by another order of rows, {figure}"
        pairs[name] = (jnp.abs(turned - there).max(), law[f"{figure}_max_difference"])
    return pairs


LAWS = (
    Law(GROUP, "blocks of one head", ("parts",), worked(BLOCK_PARTS, _one_head_blocks)),
    Law(GROUP, "blocks of two heads", ("parts",), worked(BLOCK_PARTS, _two_head_blocks)),
)
