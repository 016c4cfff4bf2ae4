"""RoBERTa (Liu et al. 2019): BERT with positions that are counted from the padding id + 1.

Rows of the table up to that of the padding id belong to no token; they are kept as they are.
Reference: `RobertaForMaskedLM` and `RobertaModel`, https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.families.bert import (
    encoder_rules,
    read_encoder,
    read_head,
    write_encoder,
)
from jtransformer.interop.family import Family
from jtransformer.interop.layouts import Flat
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rules import Rule, dense, norm
from jtransformer.spec import Learned, ModelSpec, SpecError, TokenHead

TOKENS, BARE = "RobertaForMaskedLM", "RobertaModel"


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    first = config.integer("pad_token_id", default=1) + 1
    rows = config.integer("max_position_embeddings", default=512)
    if rows <= first:
        raise config.refusal(
            "max_position_embeddings", f"leaves no position, as they are counted from {first}"
        )
    position = Learned(max_length=rows - first, first=first)
    vocabulary = config.integer("vocab_size", default=50_265)
    return read_encoder(
        config, vocabulary, position=position, head=read_head(config, BARE, "lm_head.")
    )


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    position = of_kind(spec, "position", Learned)
    if not position.first:
        raise SpecError(
            "position.learned.first",
            "= 0 has no counterpart, as positions are counted from the padding id + 1; use 2.",
        )
    return write_encoder(spec, TOKENS, BARE) | {
        "max_position_embeddings": position.first + position.max_length,
        "pad_token_id": position.first - 1,
    }


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    yield from encoder_rules(spec, "roberta", "lm_head.decoder")
    if isinstance(spec.head, TokenHead):
        yield from dense("lm_head.dense", "head_transform", bias=True)
        yield from norm(spec, "lm_head.layer_norm", "head_norm")
        yield Rule("lm_head.bias", ("head/bias",), Flat(), ("lm_head.decoder.bias",))


ROBERTA = Family(
    name="roberta",
    model_types=("roberta",),
    architectures=(TOKENS, BARE),
    read=read,
    write=write,
    rules=rules,
    irrelevant={"classifier_dropout": "belongs to a head that is not read"},
    buffers=(r"roberta\.embeddings\.position_ids",),
    prefix="roberta.",
)
"""RoBERTa."""
