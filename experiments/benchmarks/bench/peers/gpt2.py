"""GPT-2 of Hugging Face transformers, with scaled_dot_product_attention."""

import importlib
from typing import Any

from ..sizes import Size
from . import in_torch
from .in_torch import torch
from .serving import Handlers, Training

transformers: Any = importlib.import_module("transformers")


def training(size: Size) -> Training:
    """Starts a run."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=size.V,
        n_positions=size.T,
        n_embd=size.D,
        n_layer=size.L,
        n_head=size.N,
        n_inner=size.F,
        activation_function="gelu_new",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        attn_implementation="sdpa",
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
    return in_torch.training(size, model, lambda tokens: model(tokens).logits)


def serve() -> Handlers:
    """Returns what this process may be asked for."""
    return in_torch.served(training)
