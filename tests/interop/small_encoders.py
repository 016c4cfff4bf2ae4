"""Small configs of families with an encoder."""

from typing import Any

from jtransformer.interop import family_of
from jtransformer.interop.expressing import read_with
from jtransformer.spec import ModelSpec

SIZES = {
    "bert": dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=2),
    "roberta": dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=2),
    "modernbert": dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=2),
    "t5": dict(d_model=20, d_kv=6, num_heads=5, num_layers=2),
    "mt5": dict(d_model=20, d_kv=6, num_heads=5, num_layers=2),
    "bart": dict(d_model=32, encoder_layers=2, decoder_layers=1),
    "marian": dict(d_model=32, encoder_layers=2, decoder_layers=1),
}


def read(fields: dict[str, Any], stored: frozenset[str] = frozenset()) -> ModelSpec:
    """Reads a config with the tensors that come with it."""
    return read_with(family_of(fields), fields, "config.json", stored)


def small(family: str, **changes: Any) -> dict[str, Any]:
    """Returns a small config of a family."""
    return {"model_type": family, "vocab_size": 53} | SIZES[family] | changes
