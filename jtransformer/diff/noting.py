"""Notes what happens inside a model of torch while it runs.

What enters and leaves its modules is taken by hooks of torch, and what happens between queries and
the output of attention by an attention function that is registered with `transformers`, calls the
model's own one and notes what it was given and returned.
"""

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from jtransformer.diff.captures import Capture

NOTED = "jtransformer_noted"
"""Name under which the attention function is registered."""
SMALLEST = -1e30
"""A number in a mask below it hides; above it, it is a bias."""


def to_array(tensor: Any) -> np.ndarray:
    """Returns the numbers of a tensor; those in bfloat16, which NumPy lacks, in float32."""
    import torch  # pyright: ignore[reportMissingImports]

    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


@contextlib.contextmanager
def hooked(
    places: list[Capture],
    modules: dict[str, Any],
    noted: dict[str, Any],
    gradients: bool,
) -> Iterator[None]:
    """Lays hooks around modules, which note what enters and leaves them.

    Args:
        places: What is noted.
        modules: Their modules by name.
        noted: Where it is put: the value, and where its gradient will be found.
        gradients: Whether it will be.
    """
    handles = []
    for one in places:
        module = modules.get(one.module)
        if module is None:
            # A checkpoint of the model without its head lacks the first part of every name.
            short = [name for name in modules if one.module.endswith(f".{name}") and name]
            module = modules[max(short, key=len)] if short else None
        if module is None:
            continue
        note = functools.partial(_note, one, noted, gradients)
        if one.end == "input":
            handles.append(module.register_forward_pre_hook(
                lambda _, args, kwargs, note=note: note(_first(args, kwargs)), with_kwargs=True
            ))  # fmt: skip
        else:
            handles.append(module.register_forward_hook(
                lambda _, args, out, note=note: note(out)))  # fmt: skip
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _first(args: tuple, kwargs: dict[str, Any]) -> Any:
    return args[0] if args else kwargs.get("hidden_states")


def _note(one: Capture, noted: dict[str, Any], gradients: bool, value: Any) -> None:
    """Notes a value under its place, with the tensor whose gradient is its own."""
    tensor = value[0] if isinstance(value, tuple) else value
    if tensor is None:
        return
    source = None
    if gradients and tensor.requires_grad:
        tensor.retain_grad()

        def part(gradient: np.ndarray) -> np.ndarray:
            return gradient if one.channels is None else gradient[..., one.channels]

        source = tensor, part
    shown = tensor if one.channels is None else tensor[..., one.channels]
    # Copied, since some models add to what a module has returned.
    noted[one.place] = shown.detach().clone(), source


@contextlib.contextmanager
def noting(model: Any, attentions: dict[str, str], noted: dict[str, Any]) -> Iterator[None]:
    """Makes a model attend by its own function and note what that is given and returns.

    Args:
        model: The model, which forms its weights ("eager").
        attentions: The place of each of its modules of attention.
        noted: Where it is put.
    """
    import transformers  # pyright: ignore[reportMissingImports]
    from transformers.masking_utils import (  # pyright: ignore[reportMissingImports]
        AttentionMaskInterface,
        eager_mask,
    )

    places = {model.get_submodule(name): place for name, place in attentions.items()}

    def attend(module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> Any:
        own = vars(sys.modules[type(module).__module__])["eager_attention_forward"]
        out, weights = own(module, query, key, value, mask, **options)
        place = places.get(module)
        if place is not None:
            found = {
                "query_turned": query.transpose(1, 2),
                "key_turned": key.transpose(1, 2),
                "scores": _scores(module, query, key, mask, options),
                "weights": weights,
                "mixed": out,
            }
            noted.update({f"{place}/{name}": (x, None) for name, x in found.items()})
        return out, weights

    transformers.AttentionInterface.register(NOTED, attend)
    AttentionMaskInterface.register(NOTED, eager_mask)
    configs = {id(one.config): one.config for one in model.modules() if "config" in vars(one)}
    takes = any("eager_attention_forward" in vars(sys.modules[type(one).__module__])
                for one in places)  # fmt: skip
    before = {key: config._attn_implementation for key, config in configs.items()}
    try:
        for config in configs.values():
            if takes:
                config._attn_implementation = NOTED
        yield
    finally:
        for key, config in configs.items():
            config._attn_implementation = before[key]


def _scores(module: Any, query: Any, key: Any, mask: Any, options: dict[str, Any]) -> Any:
    """Forms the scores as they are before masking: scaled, capped, with their bias."""
    import torch  # pyright: ignore[reportMissingImports]

    groups = query.shape[1] // key.shape[1]
    scale = options.get("scaling")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * scale
    cap = options.get("softcap")
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    del module
    for bias in (options.get("position_bias"), mask):
        if bias is not None and bias.dtype.is_floating_point:
            bias = bias[..., : scores.shape[-1]]
            scores = scores + torch.where(bias > SMALLEST, bias, torch.zeros_like(bias))
    return scores
