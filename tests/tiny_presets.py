"""Every published preset, shrunk: all its choices stay, its sizes do not."""

import dataclasses

from jtransformer.spec import EncoderDecoder, Learned, PrefixDecoder, Rope, presets

V, T, S = 13, 8, 5
SIZES = dict(vocabulary=V, width=16, layers=2, heads=2, ffn_width=24)
NAMES = (
    "gpt",
    "gpt2_small",
    "gpt_j_6b",
    "pythia_160m",
    "llama2_7b",
    "llama3_8b",
    "gemma_2b",
    "olmo2_1b",
    "qwen3_0_6b",
    "bert_base_mlm",
    "roberta_base_mlm",
    "transformer_base",
    "t5_small",
    "t5_v1_1_small",
)
"""One of each family; others differ in sizes alone."""


def shrunk(model):
    """Returns a model of the same kind that compiles in a second."""
    grouped = model.K < model.heads
    changes = SIZES | dict(
        key_value_heads=1 if grouped else None, head_width=None if model.head_width is None else 12
    )
    if isinstance(model.stack, EncoderDecoder):
        changes["stack"] = dataclasses.replace(
            model.stack, encoder_layers=2, source_vocabulary=None
        )
    if isinstance(model.position, Learned):
        changes["position"] = dataclasses.replace(model.position, max_length=T)
    if isinstance(model.position, Rope) and model.position.rotary_fraction < 1:
        changes["position"] = dataclasses.replace(model.position, rotary_fraction=0.5)
    return dataclasses.replace(model, **changes)


def models():
    """Returns the shrunk presets by name, and a prefix decoder made of one of them."""
    found = {name: shrunk(presets.PRESETS[name]()) for name in NAMES}
    found["prefix_lm"] = dataclasses.replace(found["llama2_7b"], stack=PrefixDecoder())
    return found
