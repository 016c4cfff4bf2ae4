"""Bytes that decoding keeps per layer: keys and values, a latent, or a state.

L·K·(H + Hv)·T numbers for dot products (Shazeer 2019, sec. 3, https://arxiv.org/abs/1911.02150),
L·(C + Hr)·T for latent attention (DeepSeek-AI 2024, sec. 2.1.3, https://arxiv.org/abs/2405.04434),
and L·K·H·(Hv + 1), whatever the length, for linear attention.
"""

from collections.abc import Iterator

from jtransformer.accounting.flops import check_lengths
from jtransformer.accounting.stacks import StackView, stacks_of, windows_of
from jtransformer.spec import (
    FLOAT_BYTES,
    Encoder,
    LatentAttention,
    LinearAttention,
    ModelSpec,
    SpecError,
)

LEAST_STATE_BYTES = 4
"""Linear attention adds up in at least float32."""


def cache_bytes(
    model: ModelSpec,
    *,
    length: int,
    source_length: int | None = None,
    rows: int = 1,
    bytes_per_number: int | None = None,
    chunk: int | None = 1,
) -> int:
    """Counts the bytes of a cache of `length` tokens.

    Args:
        model: The model; an encoder alone keeps nothing.
        length: Tokens that each row can hold [T].
        source_length: Tokens of the memory that each row reads [S]; None is `length`.
        rows: Sequences that are decoded together [B].
        bytes_per_number: 4 for float32, 2 for bfloat16; None is that of the model's attention.
        chunk: Tokens that a layer with a window is given at a time: it keeps that many less one
            beyond its window. None lets every layer hold `length` tokens, as all do where
            layers are scanned and some have no window: their caches are of one size.

    Raises:
        SpecError: If a size is below 1, or a source length is given to a model without a source.
    """
    S = check_lengths(model, length, source_length)
    for name, size in (("rows", rows), ("bytes_per_number", bytes_per_number), ("chunk", chunk)):
        if size is not None and size < 1:
            raise SpecError(name, f"must be at least 1, got {size}.")
    if bytes_per_number is None:
        bytes_per_number = FLOAT_BYTES[model.precision.attention]
    if isinstance(model.stack, Encoder):
        return 0
    stack = stacks_of(model)[-1]
    memory = stack.layers * S * model.K * 2 * model.H if stack.reads_memory else 0
    attention = model.attention
    if isinstance(attention, LinearAttention):
        state = stack.layers * model.K * model.H * (model.Hv + 1)
        kept = state * max(bytes_per_number, LEAST_STATE_BYTES)
        return rows * (kept + memory * bytes_per_number)
    slots = sum(_slots(model, stack, length=length, chunk=chunk))
    per_slot = model.K * (model.H + model.Hv)
    if isinstance(attention, LatentAttention):
        # Without rotary channels a slot still has one number, which is never read.
        per_slot = attention.latent_width + (attention.rotary_width or 1)
    return rows * bytes_per_number * (slots * per_slot + memory)


def _slots(model: ModelSpec, stack: StackView, *, length: int, chunk: int | None) -> Iterator[int]:
    """Yields how many tokens each layer holds."""
    windows = windows_of(model, stack)
    rings = chunk is not None and not (model.scan_layers and None in windows)
    for window in windows:
        if window is None or chunk is None or not rings:
            yield length
        else:
            yield min(length, window + chunk - 1)
