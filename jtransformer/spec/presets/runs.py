"""Whole runs to start from, small enough for a CPU; change what the question is about.

The first four differ in stack and objective alone: pre-norm blocks with GELU and
sinusoidal positions, on bytes of the embedded text, with the special tokens that the objective
needs behind the 256 bytes. Widths and layers are those of each stack.
"""

import dataclasses

from jtransformer.spec.data import DataSpec, Words
from jtransformer.spec.model import ModelSpec
from jtransformer.spec.objectives import LossSpec, MaskedLM, PrefixLM, Seq2Seq, SpanCorruption
from jtransformer.spec.optimizer import Adam, Noam, OptimizerSpec
from jtransformer.spec.presets.encoder_decoders import transformer_base
from jtransformer.spec.run import RunSpec, TrainingSpec
from jtransformer.spec.sources import Synthetic
from jtransformer.spec.stacks import Encoder, EncoderDecoder, PrefixDecoder


def decoder_lm(*, width: int = 64, layers: int = 2) -> RunSpec:
    """A pre-LN GELU decoder over bytes of the embedded text.

    Args:
        width: Width of the residual stream; heads are 16 wide where that divides it.
        layers: Attention + feed-forward pairs.
    """
    return RunSpec(model=_model(width=width, layers=layers))


def encoder_lm(*, width: int = 64, layers: int = 2) -> RunSpec:
    """The same blocks as an encoder that is asked for masked bytes (Devlin et al. 2018).

    Args:
        width: As for `decoder_lm`.
        layers: As for `decoder_lm`.
    """
    model = _model(width=width, layers=layers, vocabulary=256 + 1)
    return RunSpec(model=dataclasses.replace(model, stack=Encoder()), objective=MaskedLM())


def prefix_lm(*, width: int = 64, layers: int = 2) -> RunSpec:
    """The same blocks as a decoder whose prefix sees itself both ways (Raffel et al. 2019).

    Args:
        width: As for `decoder_lm`.
        layers: As for `decoder_lm`.
    """
    model = dataclasses.replace(_model(width=width, layers=layers), stack=PrefixDecoder())
    return RunSpec(model=model, objective=PrefixLM())


def span_corruption(*, width: int = 64, layers: int = 2) -> RunSpec:
    """The same blocks as encoder and decoder, asked for dropped spans (Raffel et al. 2019).

    Rows of 64 bytes lose 10 of them in 3 spans: padding, begin, end and 4 sentinels.

    Args:
        width: As for `decoder_lm`.
        layers: Layers of each stack.
    """
    model = _model(width=width, layers=layers, vocabulary=256 + 3 + 4)
    stack = EncoderDecoder(encoder_layers=layers)
    return RunSpec(model=dataclasses.replace(model, stack=stack), objective=SpanCorruption())


def translation(*, width: int = 64, layers: int = 2) -> RunSpec:
    """The recipe of Vaswani et al. 2017 in small, on pairs that need no download.

    `transformer_base` with its dropout, Adam(0.9, 0.98, 1e-9) without clipping or decay, the
    schedule of the paper at its factor of 1, label smoothing 0.1. The pairs are 4 to 12 words out
    of 16 and their reversal; give `data.source` and `model.vocabulary` for pairs of your own.

    Args:
        width: As for `decoder_lm`.
        layers: Layers of each stack.
    """
    # 16 words, one for unknown ones, padding, begin and end.
    sizes = _model(width=width, layers=layers, vocabulary=16 + 1 + 3)
    model = dataclasses.replace(
        transformer_base(vocabulary=sizes.vocabulary),
        width=width,
        layers=layers,
        heads=sizes.heads,
        ffn_width=sizes.ffn_width,
        stack=EncoderDecoder(encoder_layers=layers),
    )
    return RunSpec(
        model=model,
        data=DataSpec(
            source=Synthetic(task="reverse"),
            tokenizer=Words(),
            length=16,
            source_length=16,
            rows="padded",
        ),
        objective=Seq2Seq(),
        loss=LossSpec(label_smoothing=0.1),
        optimizer=OptimizerSpec(
            learning_rate=1.0,
            weight_decay=0.0,
            gradient_clip=None,
            rule=Adam(beta1=0.9, beta2=0.98, epsilon=1e-9),
        ),
        schedule=Noam(warmup_steps=400),
        training=TrainingSpec(steps=2000),
    )


def _model(*, width: int, layers: int, vocabulary: int = 256) -> ModelSpec:
    heads = width // 16 if width % 16 == 0 else 1
    return ModelSpec(
        vocabulary=vocabulary, width=width, layers=layers, heads=heads, ffn_width=4 * width
    )
