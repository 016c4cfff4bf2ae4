"""Models small enough to be compiled in a test, and their parameters."""

import dataclasses
import functools
import zlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer.modules import build
from jtransformer.spec import (
    Alibi,
    DotProduct,
    DynamicTanh,
    Encoder,
    EncoderDecoder,
    LatentAttention,
    LayerNorm,
    LayerScale,
    Learned,
    LinearAttention,
    ModelSpec,
    NoPosition,
    PrefixDecoder,
    RelativeBias,
    ReZero,
    RMSNorm,
    Rope,
    ScaleNorm,
    Shaw,
    Sinusoidal,
    T5Bias,
    TokenHead,
)

B, T, S, V = 2, 7, 5, 11
BASE = ModelSpec(vocabulary=V, width=12, layers=2, heads=3, ffn_width=20)


def changed(spec=BASE, **changes):
    return dataclasses.replace(spec, **changes)


VARIANTS = {
    "pre": BASE,
    "post": changed(norm_placement="post", position=Learned(max_length=T, first=2), ffn="relu"),
    "sandwich": changed(
        norm_placement="sandwich", norm=RMSNorm(), position=NoPosition(), scale_embedding=True
    ),
    "branch": changed(
        norm_placement="branch", norm=LayerNorm(bias=False), ffn="swiglu", ffn_bias=True
    ),
    "untied": changed(
        head=TokenHead(tied=False, bias=True),
        qkv_bias=True,
        attention_out_bias=True,
        ffn_bias=True,
        position=Sinusoidal(layout="concatenated"),
    ),
    "grouped": changed(
        key_value_heads=1,
        head_width=4,
        position=Rope(pairing="interleaved", rotary_fraction=0.5, window_theta=9.0),
        attention=DotProduct(
            window=3, window_pattern="window,full", query_key_norm="head", soft_cap=5.0
        ),
        qkv_bias=True,
    ),
    "t5": changed(
        position=T5Bias(buckets=4, max_distance=6),
        norm=RMSNorm(unit_offset=True),
        attention=DotProduct(scale=1.0),
        sublayers="parallel",
        ffn="geglu_tanh",
        head=TokenHead(scale_down=True, bias=True),
    ),
    "deepnorm": changed(norm_placement="deepnorm", position=Shaw(max_distance=2, values=True)),
    "scanned": changed(
        position=Alibi(),
        attention=DotProduct(window=3, window_pattern="full,window", heads_off="1.2"),
        scan_layers=True,
        rematerialize="elementwise",
        branch_scale=ReZero(),
    ),
    "linear": changed(attention=LinearAttention(), norm=ScaleNorm(), key_value_heads=1),
    "latent": changed(
        attention=LatentAttention(latent_width=5, rotary_width=2, value_width=3),
        position=Rope(),
        qkv_bias=True,
    ),
    "one_norm": changed(
        position=RelativeBias(max_distance=3),
        norm=DynamicTanh(),
        branch_scale=LayerScale(initial=0.5),
        sublayers="parallel_one_norm",
        attention=DotProduct(query_key_norm="width"),
        head=TokenHead(transform=True, soft_cap=8.0),
        embedding_norm=True,
    ),
}
EVERY_VARIANT = pytest.mark.parametrize("spec", VARIANTS.values(), ids=VARIANTS)
STACKS = {
    "encoder": changed(
        stack=Encoder(token_types=2, pooler=True),
        embedding_norm=True,
        first_norm=False,
        head=TokenHead(transform=True, transform_bias=False),
    ),
    "prefix_decoder": changed(stack=PrefixDecoder(), position=T5Bias(buckets=4, max_distance=6)),
    "encoder_decoder": changed(
        stack=EncoderDecoder(encoder_layers=1, share_embedding=False, source_vocabulary=V + 2),
        attention=DotProduct(query_key_norm="head"),
        key_value_heads=1,
        norm_placement="post",
    ),
    "two_scanned": changed(
        stack=EncoderDecoder(normalize_memory=True),
        position=T5Bias(buckets=4, max_distance=6),
        scan_layers=True,
        rematerialize="everything",
    ),
}


def tokens_of(key, rows=B):
    return jax.random.randint(key, (rows, T), 0, V)


def needed(spec, key):
    """Returns the arguments that a stack cannot do without."""
    if spec.stack.kind == "encoder_decoder":
        return {"source": jax.random.randint(jax.random.fold_in(key, 1), (B, S), 0, V)}
    return {"prefix_length": 3} if spec.stack.kind == "prefix_decoder" else {}


class Jitted:
    """A model whose apply is compiled once, as every user's is."""

    def __init__(self, spec):
        self.apply = quickly(build(spec).apply, static_argnames=("intermediates",))


STARTS = {}
MODELS = {}


def model_of(spec):
    """Returns a compiled model; compiling one takes a while, so tests share it."""
    if spec not in MODELS:
        MODELS[spec] = Jitted(spec)
    return MODELS[spec]


def started(spec):
    """Returns a model and its start, likewise shared."""
    if spec not in STARTS:
        # As every user compiles it: other options move the last bits of what is drawn.
        init = jax.jit(build(spec).init)
        STARTS[spec] = init(jax.random.key(0), jnp.zeros((1, T), jnp.int32))
    return model_of(spec), STARTS[spec]


DRAWN = {}


def drawn(spec):
    """Returns parameters that depend on path and shape alone, far from any start; shared.

    No generator is compiled for them. Layers that are stacked have the values of those in a loop.
    """
    if spec not in DRAWN:
        DRAWN[spec] = jax.tree_util.tree_map_with_path(_drawn_leaf, shapes_of(spec))
    return DRAWN[spec]


def shapes_of(spec):
    # linen's own init: it has the same shapes, and traces no draws of ours.
    init = functools.partial(nn.Module.init, build(spec), **needed(spec, jax.random.key(0)))
    return jax.eval_shape(init, jax.random.key(0), jnp.zeros((B, T), jnp.int32))


def _drawn_leaf(path, leaf):
    names = [entry.key for entry in path]
    if "layers" not in names:
        return jnp.asarray(values_at(names, leaf.shape))
    own = [
        [f"layer_{layer}" if name == "layers" else name for name in names]
        for layer in range(leaf.shape[0])
    ]
    return jnp.asarray(np.stack([values_at(names, leaf.shape[1:]) for names in own]))


def values_at(names, shape):
    generator = np.random.default_rng(zlib.crc32("/".join(names).encode()))
    mean = 1.0 if names[-1] in ("scale", "alpha") else 0.0
    return np.asarray(mean + 0.3 * generator.normal(size=shape), np.float32)


def spread(variables, key):
    """Moves every parameter off its start, so that ones and zeros cannot hide a mistake."""
    leaves, tree = jax.tree.flatten(variables)
    keys = jax.random.split(key, len(leaves))
    moved = [x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, moved)
