"""A GPT-2 in PyTorch, written as nanoGPT's model.py is, eager.

Source: Karpathy 2022, https://github.com/karpathy/nanoGPT/blob/master/model.py; the activation is
the tanh form.
"""

from typing import Any

from ..sizes import Size
from . import in_torch
from .in_torch import torch
from .serving import Handlers, Training

nn = torch.nn


class CausalSelfAttention(nn.Module):
    """One packed projection, and the fused causal kernel."""

    def __init__(self, size: Size):
        super().__init__()
        self.c_attn = nn.Linear(size.D, 3 * size.D)
        self.c_proj = nn.Linear(size.D, size.D)
        self.heads, self.width = size.N, size.D

    def forward(self, x: Any) -> Any:
        B, T, D = x.size()
        q, k, v = self.c_attn(x).split(self.width, dim=2)
        q, k, v = (a.view(B, T, self.heads, D // self.heads).transpose(1, 2) for a in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, D))


class Block(nn.Module):
    """Attention and a feed-forward network, each behind its norm."""

    def __init__(self, size: Size):
        super().__init__()
        self.ln_1 = nn.LayerNorm(size.D)
        self.attn = CausalSelfAttention(size)
        self.ln_2 = nn.LayerNorm(size.D)
        self.mlp = nn.Sequential(
            nn.Linear(size.D, size.F), nn.GELU(approximate="tanh"), nn.Linear(size.F, size.D)
        )

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Embeddings, blocks, and a head that is the embedding."""

    def __init__(self, size: Size):
        super().__init__()
        self.wte = nn.Embedding(size.V, size.D)
        self.wpe = nn.Embedding(size.T, size.D)
        self.h = nn.ModuleList([Block(size) for _ in range(size.L)])
        self.ln_f = nn.LayerNorm(size.D)
        self.lm_head = nn.Linear(size.D, size.V, bias=False)
        self.apply(_initialize)
        self.wte.weight = self.lm_head.weight

    def forward(self, tokens: Any) -> Any:
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def _initialize(module: Any) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def training(size: Size) -> Training:
    """Starts a run."""
    torch.manual_seed(0)
    model = GPT(size)
    return in_torch.training(size, model, model)


def serve() -> Handlers:
    """Returns what this process may be asked for."""
    return in_torch.served(training)
