"""The nearest model of x-transformers: its attention and its norms have no biases."""

import importlib
from typing import Any

from ..sizes import Size
from . import in_torch
from .in_torch import torch
from .serving import Handlers, Training

x_transformers: Any = importlib.import_module("x_transformers")


def training(size: Size) -> Training:
    """Starts a run."""
    torch.manual_seed(0)
    model = x_transformers.TransformerWrapper(
        num_tokens=size.V,
        max_seq_len=size.T,
        tie_embedding=True,
        attn_layers=x_transformers.Decoder(
            dim=size.D,
            depth=size.L,
            heads=size.N,
            attn_dim_head=size.D // size.N,
            attn_flash=True,
            ff_mult=size.F / size.D,
            ff_custom_activation=torch.nn.GELU(approximate="tanh"),
        ),
    )
    return in_torch.training(size, model, model)


def serve() -> Handlers:
    """Returns what this process may be asked for."""
    return in_torch.served(training)
