"""Marian (Junczys-Dowmunt et al. 2018), of OPUS-MT: post-norm, all sines before all cosines.

Source and target have one table, or one each; its logits have a bias that is stored as a buffer.
Reference: `MarianMTModel`, https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.families.bart import (
    ALIASES,
    IRRELEVANT,
    LOGITS_BIAS,
    bias_rules,
    read_stacks,
    stack_rules,
    write_stacks,
)
from jtransformer.interop.family import Family
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rules import Rule, dense, table
from jtransformer.spec import EncoderDecoder, ModelSpec, Sinusoidal, TokenHead

SHARED = "share_encoder_decoder_embeddings"


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    config.only("normalize_embedding", False)
    config.only("static_position_embeddings", True)
    shared, source = config.flag(SHARED, default=True), config.integer("vocab_size", default=58_101)
    vocabulary = config.integer("decoder_vocab_size", default=source)
    tied = config.flag("tie_word_embeddings", default=True)
    if shared and vocabulary != source:
        raise config.refusal("decoder_vocab_size", f"differs from vocab_size={source} of one table")
    if shared and not tied:
        raise config.refusal("tie_word_embeddings", f"would take {SHARED}=true apart")
    return read_stacks(
        config,
        stack=EncoderDecoder(
            encoder_layers=config.integer("encoder_layers", default=12),
            source_vocabulary=None if vocabulary == source else source,
            share_embedding=shared,
        ),
        vocabulary=vocabulary,
        position=Sinusoidal(layout="split"),
        embedding_norm=False,
        head=TokenHead(tied=tied, bias=LOGITS_BIAS in config.stored),
    )


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    of_kind(spec, "position", Sinusoidal)
    return write_stacks(spec) | {
        "vocab_size": spec.source_vocabulary,
        "decoder_vocab_size": spec.vocabulary,
        SHARED: of_kind(spec, "stack", EncoderDecoder).share_embedding,
    }


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    tied = of_kind(spec, "head", TokenHead).tied
    head = ("lm_head",) if tied else ()
    encoder, decoder = "model.encoder.embed_tokens", "model.decoder.embed_tokens"
    if of_kind(spec, "stack", EncoderDecoder).share_embedding:
        yield table("model.shared", "embedding", copies=(encoder, decoder, *head))
    else:
        yield table(encoder, "source_embedding")
        yield table(decoder, "embedding", copies=head)
    yield from stack_rules(spec)
    if not tied:
        yield from dense("lm_head", "head", bias=False)
    yield from bias_rules(spec)


MARIAN = Family(
    name="marian",
    model_types=("marian",),
    architectures=("MarianMTModel",),
    read=read,
    write=write,
    rules=rules,
    irrelevant=IRRELEVANT | {"max_position_embeddings": "bounds no fixed position"},
    aliases=ALIASES,
    # Fixed sines and cosines, which older versions stored.
    buffers=(r"model\.(encoder|decoder)\.embed_positions\.weight",),
    unnamed={
        "decoder_start_token_id": 0,
        "eos_token_id": None,
        "forced_eos_token_id": None,
        "pad_token_id": None,
    },
    prefix="model.",
)
"""Marian."""
