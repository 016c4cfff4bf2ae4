"""Rules over several fields of a model; there is no other place for them."""

from typing import TYPE_CHECKING

from jtransformer.spec.attention import DotProduct, LatentAttention, LinearAttention
from jtransformer.spec.errors import SpecError
from jtransformer.spec.heads import Classifier, Embedder, TokenHead
from jtransformer.spec.positions import Alibi, RelativeBias, Rope, Shaw, T5Bias
from jtransformer.spec.residual import FixedScale
from jtransformer.spec.stacks import Decoder, Encoder, EncoderDecoder, PrefixDecoder

if TYPE_CHECKING:
    from jtransformer.spec.model import ModelSpec

MOST_HEADS_OFFERED = 1024
"""An error message offers no divisor of the width beyond this."""


def check_model(model: "ModelSpec") -> None:
    """Checks the rules.

    Raises:
        SpecError: For the first one that is broken.
    """
    for rule in (
        _heads,
        _attention,
        _attention_positions,
        _bases,
        _wiring,
        _first_norm,
        _stack,
        _head,
    ):
        rule(model)


def _divisors(number: int) -> str:
    found = [n for n in range(1, min(number, MOST_HEADS_OFFERED) + 1) if number % n == 0]
    return ", ".join(map(str, found))


def _heads(model: "ModelSpec") -> None:
    if model.head_width is None and model.width % model.heads:
        raise SpecError(
            "heads",
            f"must divide the width, got heads={model.heads}, width={model.width}; "
            f"use one of {_divisors(model.width)}, or set head_width.",
        )
    if model.key_value_heads is not None and model.heads % model.key_value_heads:
        raise SpecError(
            "key_value_heads",
            f"must divide heads, got key_value_heads={model.key_value_heads}, "
            f"heads={model.heads}; use one of {_divisors(model.heads)}.",
        )


def _attention(model: "ModelSpec") -> None:
    attention = model.attention
    if isinstance(attention, LatentAttention) and model.key_value_heads is not None:
        raise SpecError(
            "key_value_heads",
            f"= {model.key_value_heads} would do nothing with latent attention, whose heads all "
            "read one latent; leave it out.",
        )
    if isinstance(attention, LinearAttention):
        if model.dropout.attention:
            raise SpecError(
                "dropout.attention",
                f"= {model.dropout.attention} needs attention weights, and linear attention has "
                "none; use 0.",
            )
        if isinstance(model.stack, PrefixDecoder):
            raise SpecError(
                "attention.kind",
                "= 'linear' has one state for all queries, so it cannot show a prefix to itself; "
                "use stack.kind 'decoder' or 'encoder'.",
            )
    if isinstance(attention, DotProduct):
        most = _most_layers(model)
        if attention.window and not any(map(attention.window_of, range(most))):
            raise SpecError(
                "attention.dot_product.window",
                f"= {attention.window} would do nothing, as window_pattern "
                f"{attention.window_pattern!r} gives it to none of {most} layers; name an earlier "
                "one, or leave window out.",
            )
        for word in attention.heads_off.split(",") if attention.heads_off else ():
            layer, head = map(int, word.split("."))
            if layer >= most or head >= model.heads:
                raise SpecError(
                    "attention.dot_product.heads_off",
                    f"names {word}, but layers go from 0 to {most - 1} and heads from 0 to "
                    f"{model.heads - 1}.",
                )


def _attention_positions(model: "ModelSpec") -> None:
    attention, position = model.attention, model.position
    if isinstance(position, Rope):
        rotary = int(model.H * position.rotary_fraction)
        if isinstance(attention, LatentAttention):
            if attention.rotary_width is None or position.rotary_fraction != 1:
                raise SpecError(
                    "attention.latent.rotary_width",
                    f"= {attention.rotary_width} with rotary positions and rotary_fraction="
                    f"{position.rotary_fraction}: latent attention turns channels of their own; "
                    "set rotary_width to an even number and leave rotary_fraction at 1.",
                )
            rotary = attention.rotary_width
        if rotary < 2 or rotary % 2:
            raise SpecError(
                "position.rope.rotary_fraction",
                f"= {position.rotary_fraction} turns {rotary} channels of a head of "
                f"{model.H}; rotary positions need an even number of at least 2.",
            )
    elif isinstance(attention, LatentAttention) and attention.rotary_width is not None:
        raise SpecError(
            "attention.latent.rotary_width",
            f"= {attention.rotary_width} would do nothing without rotary positions; leave it out "
            "or set position.kind to 'rope'.",
        )
    if isinstance(attention, LinearAttention) and isinstance(
        position, Rope | T5Bias | RelativeBias | Alibi | Shaw
    ):
        raise SpecError(
            "position.kind",
            f"= {position.kind!r} acts on scores, and linear attention has none; use 'none', "
            "'sinusoidal' or 'learned'.",
        )
    if (
        isinstance(position, T5Bias)
        and position.buckets < 4
        and not isinstance(model.stack, Decoder)
    ):
        raise SpecError(
            "position.t5_bias.buckets",
            f"= {position.buckets} leaves less than two for each direction, and stack.kind "
            f"{model.stack.kind!r} looks in both; use at least 4.",
        )
    if isinstance(position, Shaw) and not isinstance(attention, DotProduct):
        raise SpecError(
            "position.kind", f"= 'shaw' needs attention.kind 'dot_product', got {attention.kind!r}."
        )
    if isinstance(position, Shaw) and isinstance(attention, DotProduct):
        for name, value in (("soft_cap", attention.soft_cap), ("heads_off", attention.heads_off)):
            if value:
                raise SpecError(
                    f"attention.dot_product.{name}",
                    f"= {value!r} is not defined with Shaw's relative positions; leave it out.",
                )


def _bases(model: "ModelSpec") -> None:
    attention, position = model.attention, model.position
    if not isinstance(position, Rope) or position.window_theta is None:
        return
    name = "position.rope.window_theta"
    if not isinstance(attention, DotProduct) or attention.window is None:
        raise SpecError(
            name,
            f"= {position.window_theta} would do nothing, as no layer has a window; leave it out, "
            "or set attention.dot_product.window.",
        )
    if all(map(attention.window_of, range(_most_layers(model)))):
        raise SpecError(
            name,
            f"= {position.window_theta} leaves nothing to theta={position.theta}, as every layer "
            "has the window; set theta alone, or give full attention to a layer.",
        )


def _most_layers(model: "ModelSpec") -> int:
    """Returns the layers of the deepest stack."""
    stack = model.stack
    return max(model.layers, stack.encoder_layers if isinstance(stack, EncoderDecoder) else 0)


def _first_norm(model: "ModelSpec") -> None:
    if model.first_norm:
        return
    if not model.embedding_norm:
        raise SpecError(
            "first_norm",
            "= False leaves the first attention without a norm, as embedding_norm=False; set "
            "embedding_norm to True or leave first_norm at True.",
        )
    if "norm_in" not in model.norm_slots:
        raise SpecError(
            "first_norm",
            f"= False would do nothing, as norm_placement {model.norm_placement!r} has no norm "
            "before attention; leave it at True.",
        )
    if model.sublayers == "parallel_one_norm":
        raise SpecError(
            "first_norm",
            "= False with sublayers 'parallel_one_norm' would take the norm of the feed-forward "
            "network too; use sublayers 'parallel'.",
        )
    if model.scan_layers:
        raise SpecError(
            "first_norm",
            "= False gives the first layer other parameters than the rest, and layers of one "
            "program have the same; use scan_layers=False.",
        )


def _wiring(model: "ModelSpec") -> None:
    if model.norm_placement == "deepnorm":
        if model.stream_scale != 1:
            raise SpecError(
                "stream_scale",
                f"= {model.stream_scale} contradicts norm_placement 'deepnorm', which sets it; "
                "use 1.",
            )
        if model.sublayers != "sequential":
            raise SpecError(
                "sublayers",
                f"= {model.sublayers!r} is not defined for norm_placement 'deepnorm', whose "
                "factors count sublayers; use 'sequential'.",
            )
    if model.sublayers != "sequential" and model.has_encoder:
        raise SpecError(
            "sublayers",
            f"= {model.sublayers!r} is defined for attention and feed-forward alone, and the "
            "decoder has cross-attention too; use 'sequential'.",
        )
    if model.sublayers == "parallel_one_norm" and model.norm_slots != ("norm_in",):
        raise SpecError(
            "sublayers",
            "= 'parallel_one_norm' shares the norm before the sublayers, got norm_placement="
            f"{model.norm_placement!r}; use norm_placement 'pre' or sublayers 'parallel'.",
        )
    no_branch = isinstance(model.branch_scale, FixedScale) and model.branch_scale.value == 0
    if model.stream_scale == 0 and no_branch:
        raise SpecError("branch_scale.fixed.value", "= 0 without a residual path leaves nothing.")


def _stack(model: "ModelSpec") -> None:
    stack = model.stack
    if isinstance(stack, EncoderDecoder) and stack.share_embedding:
        if stack.source_vocabulary not in (None, model.vocabulary):
            raise SpecError(
                "stack.encoder_decoder.share_embedding",
                f"needs one vocabulary, got source_vocabulary={stack.source_vocabulary}, "
                f"vocabulary={model.vocabulary}; use share_embedding=False.",
            )
    if isinstance(stack, Encoder) and stack.pooler:
        if isinstance(model.head, Classifier | Embedder) and model.head.pooling != "first":
            raise SpecError(
                "stack.encoder.pooler",
                f"reads the first state, so head.{model.head.kind}.pooling must be 'first', got "
                f"{model.head.pooling!r}.",
            )


def _head(model: "ModelSpec") -> None:
    head = model.head
    if not isinstance(head, TokenHead):
        return
    if head.scale_down and not head.tied:
        raise SpecError(
            "head.tokens.scale_down",
            "belongs to a tied head, whose matrix is as large as the embeddings; use tied=True.",
        )
    if not head.transform_bias and not head.transform:
        raise SpecError(
            "head.tokens.transform_bias",
            "= False would do nothing, as transform=False; leave it at True, or set transform.",
        )
