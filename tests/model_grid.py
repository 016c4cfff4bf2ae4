"""Small models of every kind, drawn so that every choice occurs beside many others."""

import dataclasses
import random
import typing

from jtransformer.spec import (
    Alibi,
    Classifier,
    Decoder,
    DotProduct,
    Embedder,
    Encoder,
    EncoderDecoder,
    FixedScale,
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
    Rope,
    Shaw,
    Sinusoidal,
    SpecError,
    T5Bias,
    Tagger,
    TokenHead,
)
from jtransformer.spec.norms import Norm

CHOICES = {
    "width": (12, 20),
    "layers": (1, 2),
    "heads": (2, 6),
    "key_value_heads": (None, 1, 2),
    "head_width": (None, 4, 10),
    "stack": (
        Decoder(),
        PrefixDecoder(),
        Encoder(),
        Encoder(token_types=3, pooler=True),
        EncoderDecoder(encoder_layers=3),
        EncoderDecoder(encoder_layers=1, share_embedding=False, source_vocabulary=23),
        EncoderDecoder(encoder_layers=1, normalize_memory=True),
    ),
    "attention": (
        DotProduct(),
        DotProduct(query_key_norm="head", scale=1.0),
        DotProduct(query_key_norm="width", window=3),
        DotProduct(window=2, window_pattern="window,full", soft_cap=5.0),
        LinearAttention(),
        LatentAttention(latent_width=7),
        LatentAttention(latent_width=3, rotary_width=2, value_width=5),
    ),
    "qkv_bias": (False, True),
    "attention_out_bias": (False, True),
    "ffn": ("relu", "gelu_tanh", "swiglu", "bilinear"),
    "ffn_width": (7, 33),
    "ffn_bias": (False, True),
    "norm_placement": ("pre", "post", "sandwich", "branch", "deepnorm", "none"),
    "norm": (*(kind() for kind in typing.get_args(Norm)), LayerNorm(bias=False)),
    "final_norm": (None, True, False),
    "sublayers": ("sequential", "parallel", "parallel_one_norm"),
    "branch_scale": (FixedScale(), ReZero(), LayerScale()),
    "position": (
        NoPosition(),
        Sinusoidal(),
        Sinusoidal(layout="split"),
        Learned(max_length=13, first=2),
        Rope(),
        Rope(window_theta=9.0),
        T5Bias(buckets=8, max_distance=9),
        Alibi(),
        RelativeBias(max_distance=3),
        Shaw(max_distance=3),
        Shaw(max_distance=2, values=True),
    ),
    "embedding_norm": (False, True),
    "first_norm": (True, False),
    "head": (
        TokenHead(),
        TokenHead(tied=False),
        TokenHead(bias=True, transform=True),
        TokenHead(transform=True, transform_bias=False),
        TokenHead(tied=False, bias=True),
        Classifier(classes=3, pooling="first"),
        Tagger(classes=4),
        Embedder(pooling="first"),
        Embedder(pooling="first", embedding_width=9),
    ),
    "scan_layers": (False, True),
}


def models(count, seed=0):
    """Draws models until there are `count`, and goes on until every choice has occurred."""
    draw, found = random.Random(seed), []
    missing = {(name, value) for name, values in CHOICES.items() for value in values}
    while len(found) < count or missing:
        settings = {name: draw.choice(values) for name, values in CHOICES.items()}
        try:
            model = ModelSpec(vocabulary=17, **settings)
        except SpecError:
            continue
        new = set(settings.items()) & missing
        if len(found) < count or new:
            found.append(model)
            missing -= new
    return found


def arguments_of(model, tokens, *, source):
    """Returns what a call of a model needs besides parameters."""
    given = {}
    if model.has_encoder:
        given["source"] = source
    if isinstance(model.stack, PrefixDecoder):
        given["prefix_length"] = 2
    return (tokens,), given


def with_layers(model, layers):
    return dataclasses.replace(model, layers=layers)
