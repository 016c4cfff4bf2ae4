"""The same model as `nanogpt.py`, compiled by torch.compile."""

from ..sizes import Size
from . import in_torch
from .in_torch import torch
from .nanogpt import GPT
from .serving import Handlers, Training


def training(size: Size) -> Training:
    """Starts a run."""
    torch.manual_seed(0)
    model = GPT(size)
    return in_torch.training(size, model, torch.compile(model))


def serve() -> Handlers:
    """Returns what this process may be asked for."""
    return in_torch.served(training)
