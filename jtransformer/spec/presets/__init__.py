"""Models and runs to start from.

A preset of a published model is a function that returns its ModelSpec; its docstring says how many
parameters that has and what is counted. A preset of a run returns a RunSpec; `with_budget` and
`for_accelerator` make another run of one.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from jtransformer.spec.model import ModelSpec
from jtransformer.spec.presets.budgets import for_accelerator, with_budget
from jtransformer.spec.presets.decoders import (
    gemma_2b,
    gpt,
    gpt2_large,
    gpt2_medium,
    gpt2_small,
    gpt2_xl,
    gpt_j_6b,
    llama2_7b,
    llama3_8b,
    olmo2_1b,
    pythia_160m,
    qwen3_0_6b,
)
from jtransformer.spec.presets.encoder_decoders import (
    bart_base,
    bart_large,
    opus_mt_en_de,
    t5_base,
    t5_large,
    t5_small,
    t5_v1_1_base,
    t5_v1_1_small,
    transformer_base,
    transformer_big,
)
from jtransformer.spec.presets.encoders import (
    bert_base,
    bert_base_mlm,
    bert_large,
    modernbert_base,
    modernbert_base_mlm,
    roberta_base,
    roberta_base_mlm,
)
from jtransformer.spec.presets.runs import (
    decoder_lm,
    encoder_lm,
    prefix_lm,
    span_corruption,
    translation,
)
from jtransformer.spec.run import RunSpec

PRESETS: Mapping[str, Callable[[], ModelSpec | RunSpec]] = MappingProxyType(
    {
        preset.__name__: preset
        for preset in (
            gpt,
            gpt2_small,
            gpt2_medium,
            gpt2_large,
            gpt2_xl,
            gpt_j_6b,
            pythia_160m,
            llama2_7b,
            llama3_8b,
            gemma_2b,
            olmo2_1b,
            qwen3_0_6b,
            bert_base,
            bert_base_mlm,
            bert_large,
            roberta_base,
            roberta_base_mlm,
            modernbert_base,
            modernbert_base_mlm,
            bart_base,
            bart_large,
            transformer_base,
            transformer_big,
            opus_mt_en_de,
            t5_small,
            t5_base,
            t5_large,
            t5_v1_1_small,
            t5_v1_1_base,
            decoder_lm,
            encoder_lm,
            prefix_lm,
            span_corruption,
            translation,
        )
    }
)
"""Every preset by its name; each can be called without arguments."""

__all__ = [
    "PRESETS",
    "bart_base",
    "bart_large",
    "bert_base",
    "bert_base_mlm",
    "bert_large",
    "decoder_lm",
    "encoder_lm",
    "for_accelerator",
    "gemma_2b",
    "gpt",
    "gpt2_large",
    "gpt2_medium",
    "gpt2_small",
    "gpt2_xl",
    "gpt_j_6b",
    "llama2_7b",
    "llama3_8b",
    "modernbert_base",
    "modernbert_base_mlm",
    "olmo2_1b",
    "opus_mt_en_de",
    "prefix_lm",
    "pythia_160m",
    "qwen3_0_6b",
    "roberta_base",
    "roberta_base_mlm",
    "span_corruption",
    "t5_base",
    "t5_large",
    "t5_small",
    "t5_v1_1_base",
    "t5_v1_1_small",
    "transformer_base",
    "transformer_big",
    "translation",
    "with_budget",
]
