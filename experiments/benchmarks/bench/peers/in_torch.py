"""What peers on PyTorch share: the optimizer, the update, and the peak of its products."""

import importlib
from collections.abc import Callable
from typing import Any

from ..sizes import BETA1, BETA2, EPSILON, GRADIENT_CLIP, LEARNING_RATE, WEIGHT_DECAY, Size, rows
from .serving import Handlers, Training, best_flops, trained

# Not a dependency: looked up by name, so that a type checker needs no torch either.
torch: Any = importlib.import_module("torch")

SIDE = 2048


def training(size: Size, model: Any, logits_of: Callable[[Any], Any]) -> Training:
    """Starts a run with fused AdamW, matrices alone decayed.

    Args:
        size: What is trained on which rows.
        model: The module whose parameters are trained.
        logits_of: Maps tokens to logits.
    """
    tokens, labels = (torch.tensor(array, dtype=torch.long) for array in rows(size))
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=LEARNING_RATE,
        betas=(BETA1, BETA2),
        eps=EPSILON,
        fused=True,
    )
    held = [torch.zeros(())]

    def step() -> None:
        logits = logits_of(tokens)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, GRADIENT_CLIP)
        optimizer.step()
        held[0] = loss.detach()

    return Training(sum(p.numel() for p in parameters), step, lambda: float(held[0]))


def peak_flops() -> float:
    """Returns the operations per second of a matrix product in PyTorch, float32."""
    square = torch.ones((SIDE, SIDE))
    return best_flops(lambda: square @ square, SIDE)


def served(make: Callable[..., Training]) -> Handlers:
    """Returns what a process of such a peer may be asked for."""
    return trained(make) | {"peak": peak_flops, "threads": torch.get_num_threads}
