"""A tiny run of every family of models, from its preset where it has one."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import tiny_run

from jtransformer.spec import (
    Adafactor,
    Classifier,
    DataSpec,
    Dropout,
    Embedder,
    EncoderDecoder,
    Learned,
    LossSpec,
    MaskedLM,
    ModelSpec,
    Muon,
    Noam,
    OptimizerSpec,
    PrefixDecoder,
    PrefixLM,
    RunSpec,
    Sgd,
    SpanCorruption,
    Tagger,
    TextFile,
    TrainingSpec,
    WarmupCosine,
    WarmupInverseSqrt,
    presets,
)

UPDATES = 5


class Family(NamedTuple):
    """A run, and the model whose head it is trained with.

    Attributes:
        run: Batches, optimizer and seed; and the model, where it scores tokens.
        model: With a head that no objective trains, it is trained here on made-up answers.
    """

    run: RunSpec
    model: ModelSpec


def small(spec: ModelSpec, **changes: Any) -> ModelSpec:
    """Returns a model in small, by itself as published."""
    sizes: dict[str, Any] = dict(vocabulary=256, width=16, layers=1, heads=2, ffn_width=24)
    if isinstance(spec.position, Learned):
        sizes["position"] = dataclasses.replace(spec.position, max_length=16)
    return dataclasses.replace(spec, **(sizes | changes))


def families(directory: pathlib.Path) -> dict[str, Family]:
    """Returns every family by name.

    Args:
        directory: Where the text that they read is written.
    """
    text = DataSpec(
        source=TextFile(path=str(tiny_run.text(directory))),
        length=12,
        validation_fraction=0.1,
        test_fraction=0.1,
    )
    base = RunSpec(
        model=small(presets.gpt2_small()),
        data=text,
        optimizer=OptimizerSpec(learning_rate=1e-2),
        schedule=WarmupCosine(warmup_steps=2),
        training=TrainingSpec(steps=UPDATES, batch_size=4, evaluation_batch_size=8),
    )

    def run(model: ModelSpec, **changes: Any) -> Family:
        return Family(dataclasses.replace(base, model=model, **changes), model)

    encoder = small(presets.bert_base_mlm(), vocabulary=257, dropout=Dropout())
    masked = run(encoder, objective=MaskedLM())
    # Adam does not see the size of a gradient, and so neither where it is clipped; this rule does.
    plain = OptimizerSpec(learning_rate=0.5, gradient_clip=0.5, rule=Sgd())
    answering = dataclasses.replace(masked.run, optimizer=plain)
    of_2017 = presets.translation(width=16, layers=1)
    return {
        "decoder_gpt2": run(base.model),
        "decoder_llama": run(
            small(presets.llama3_8b(), key_value_heads=1),
            optimizer=OptimizerSpec(learning_rate=1e-2, rule=Muon()),
        ),
        "prefix_gemma": run(
            small(presets.gemma_2b(), stack=PrefixDecoder(), key_value_heads=1, head_width=8),
            objective=PrefixLM(),
            loss=LossSpec(z_loss=1e-3),
        ),
        "encoder_bert": masked,
        "encoder_decoder_2017": Family(
            dataclasses.replace(
                of_2017, training=base.training, schedule=Noam(warmup_steps=UPDATES)
            ),
            of_2017.model,
        ),
        "encoder_decoder_t5": run(
            small(
                presets.t5_small(),
                vocabulary=263,
                stack=EncoderDecoder(encoder_layers=1),
                dropout=Dropout(),
            ),
            data=dataclasses.replace(text, length=32),
            objective=SpanCorruption(),
            optimizer=OptimizerSpec(learning_rate=0.1, weight_decay=0.0, rule=Adafactor()),
            schedule=WarmupInverseSqrt(warmup_steps=2),
        ),
        **{
            f"head_{head.kind}": Family(answering, dataclasses.replace(encoder, head=head))
            for head in (Classifier(classes=3), Tagger(classes=3), Embedder(embedding_width=3))
        },
    }
