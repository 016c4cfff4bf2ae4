"""Tiny reference models of `transformers` with random weights, and what they compute.

Sizes are pairwise different and no matrix of theirs is square where the family allows it, so that
a transposed matrix or swapped axes fail. Every parameter is random: with a norm's scale at 1 and
its bias at 0 half of the mapping could be missing unseen.
"""

import contextlib
import dataclasses
import sys
import types
import zlib
from typing import Any, Literal

import numpy as np
import torch
import transformers

PAD = 0
"""Id in the place of padding; nothing depends on it but what RoBERTa and its kin count."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A reference.

    Attributes:
        name: Of the row.
        family: Name of the family that must read it.
        model: Class of `transformers`.
        config: Settings of its config.
        kind: What it is.
        length: Tokens of a batch's rows; beyond the window where there is one.
        left: How the reference counts positions with padding on the left (of the source, where
            there is one): by `position_ids` that are given, by the mask or the tokens on its own,
            by place with the padding counted ("placed"); "never" where it has no left padding.
        is_double: Whether the reference can be computed in float64 throughout.
        has_gradients: Whether gradients are compared.
        generates: Whether it continues prompts.
        square: Names of parameters (parts of them) that the family makes square.
        has_head: Whether it scores tokens; its states are compared where it does not.
        own_head: Whether a head is taken apart from the table, to which the library ties every T5
            that it makes, though not every one that it reads.
    """

    name: str
    family: str
    model: str
    config: dict[str, Any]
    kind: Literal["decoder", "encoder", "encoder_decoder"] = "decoder"
    length: int = 13
    left: Literal["given", "counted", "placed", "never"] = "given"
    is_double: bool = True
    has_gradients: bool = False
    generates: bool = True
    square: tuple[str, ...] = ()
    has_head: bool = True
    own_head: bool = False


def reference(row: Row, dtype: torch.dtype = torch.float32) -> Any:
    """Makes the model of a row, in evaluation."""
    cls = getattr(transformers, row.model)
    config = cls.config_class(**row.config)
    config._attn_implementation = "eager"
    model = cls(config).to(dtype).eval()
    if row.own_head:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
        model.all_tied_weights_keys.pop("lm_head.weight")
    # Sinusoids are parameters too in some, without a gradient; a bias of logits is a buffer.
    drawn = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    drawn |= {name: tensor for name, tensor in model.named_buffers() if name.endswith("_bias")}
    with torch.no_grad():
        for name, tensor in drawn.items():
            tensor.copy_(torch.from_numpy(values(name, tuple(tensor.shape))))
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=getattr(config, "decoder_start_token_id", None)
    )
    return model


def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draws a parameter, as its name and shape decide; the float32 values are exact in float64."""
    drawn = np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape)
    if len(shape) > 1:
        drawn *= 1.5 / shape[-1] ** 0.5
    elif name.endswith(("weight", "gamma")):
        drawn = 1 + 0.3 * drawn
    else:
        drawn *= 0.3
    return drawn.astype(np.float32)


@contextlib.contextmanager
def in_double():
    """Makes `transformers` compute in float64 where it asks for float32, as it does by name.

    Softmax, norms, rotary angles and sinusoids are in float32 there whatever the model is in. In
    this context its modules find float64 under that name, so that two codes can be compared beyond
    rounding.
    """
    names = {"float32": torch.float64, "float": torch.float64, "FloatTensor": torch.DoubleTensor}

    class Doubled(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            return names[name] if name in names else getattr(torch, name)

    doubled = Doubled("torch")
    changed = [
        module
        for name, module in sys.modules.items()
        if name.startswith("transformers.") and vars(module).get("torch") is torch
    ]
    before = torch.get_default_dtype(), torch.Tensor.float
    for module in changed:
        vars(module)["torch"] = doubled
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.set_default_dtype(before[0])
        torch.Tensor.float = before[1]
        for module in changed:
            vars(module)["torch"] = torch


@dataclasses.dataclass(frozen=True)
class Batch:
    """Two rows of tokens, the second one shorter.

    Attributes:
        tokens: Of the model; of the target where there is a source.
        valid: False at padding.
        source: Of the encoder, where there are two stacks.
        source_valid: Likewise.
    """

    tokens: np.ndarray
    valid: np.ndarray
    source: np.ndarray | None = None
    source_valid: np.ndarray | None = None


def batch(row: Row, side: str, length: int | None = None) -> Batch:
    """Makes a batch of a row, padded on a side: "left", "right" or "none".

    Of two sequences the source is padded; the target on its right alone, as a loss pads it.
    """
    generator, T = np.random.default_rng(1), length or row.length
    config = row.config

    def padded(tokens: int, vocabulary: int, side: str, which: int) -> tuple[Any, Any]:
        # No drawn token is the one of padding, which some embed as zeros and do not count.
        drawn = generator.integers(5, vocabulary, (2, tokens))
        valid = np.ones(drawn.shape, bool)
        if side != "none":
            size = min(4, tokens - 1)
            valid[which, slice(-size, None) if side == "right" else slice(size)] = False
        pad = config.get("pad_token_id") or PAD
        return np.where(valid, drawn, pad).astype(np.int32), valid

    if row.kind != "encoder_decoder":
        return Batch(*padded(T, config["vocab_size"], side, 1))
    target = padded(T, config.get("decoder_vocab_size") or config["vocab_size"], "right", 1)
    return Batch(*target, *padded(T - 2, config["vocab_size"], side, 0))


def theirs(row: Row, model: Any, given: Batch, side: str) -> dict[str, Any]:
    """Returns the arguments of a call of the reference."""
    del model
    tokens, valid = torch.from_numpy(given.tokens).long(), torch.from_numpy(given.valid)
    if row.kind == "encoder_decoder":
        return {
            "input_ids": torch.from_numpy(given.source).long(),
            "attention_mask": torch.from_numpy(given.source_valid).long(),
            "decoder_input_ids": tokens,
            "decoder_attention_mask": valid.long(),
        }
    found = {"input_ids": tokens, "attention_mask": valid.long()}
    if side == "left" and row.left == "given":
        found["position_ids"] = (valid.long().cumsum(1) - 1).clamp(min=0)
    return found


def ours(row: Row, given: Batch) -> dict[str, Any]:
    """Returns the arguments of a call of ours, besides the tokens."""
    found: dict[str, Any] = {"valid": given.valid}
    if row.kind == "encoder_decoder":
        found |= {"source": given.source, "source_valid": given.source_valid}
    if row.left == "placed":
        name = "source_positions" if row.kind == "encoder_decoder" else "positions"
        shape = given.valid.shape if given.source is None else given.source.shape
        found[name] = np.arange(shape[1], dtype=np.int32)[None]
    return found


def read_for_labels(row: Row, given: Batch) -> np.ndarray:
    """Returns what a model reads to score the tokens of a batch.

    A decoder with a source reads a start, then all labels but the last.
    """
    if row.kind != "encoder_decoder":
        return given.tokens
    start = np.full((len(given.tokens), 1), row.config["decoder_start_token_id"], np.int32)
    return np.concatenate([start, given.tokens[:, :-1]], axis=1)
