"""What stands between the embeddings and the head."""

import dataclasses
from typing import ClassVar

from jtransformer.spec.fields import Checked, number

MOST_LAYERS = 100_000
"""Beyond any model; a spec's layers are listed one by one in more places than one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoder(Checked):
    """One stack; a token sees itself and what is before it."""

    kind: ClassVar[str] = "decoder"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrefixDecoder(Checked):
    """A decoder whose first tokens, as many as a call says, see each other (Raffel et al. 2019)."""

    kind: ClassVar[str] = "prefix_decoder"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoder(Checked):
    """One stack; every token sees every other.

    Attributes:
        token_types: Rows of a second table that is added to the embeddings; None is no table.
        pooler: A dense layer with tanh on the first token, as in BERT.
    """

    kind: ClassVar[str] = "encoder"
    token_types: int | None = number(None, minimum=1)
    pooler: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderDecoder(Checked):
    """Two stacks; every decoder layer reads the encoder's last output (Vaswani et al. 2017).

    Attributes:
        encoder_layers: Layers of the encoder; the model's `layers` are those of the decoder.
        source_vocabulary: Token ids of the source; None is the model's own.
        share_embedding: Source and target have one embedding table, and one vocabulary.
        normalize_memory: Every decoder layer norms what it reads of the encoder once more.
    """

    kind: ClassVar[str] = "encoder_decoder"
    encoder_layers: int = number(2, minimum=1, maximum=MOST_LAYERS)
    source_vocabulary: int | None = number(None, minimum=2)
    share_embedding: bool = True
    normalize_memory: bool = False


Stack = Decoder | PrefixDecoder | Encoder | EncoderDecoder
