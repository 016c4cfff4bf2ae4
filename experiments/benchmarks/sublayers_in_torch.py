"""The cases in PyTorch, eager: its own modules and functions with the same weights."""

import importlib
from collections.abc import Callable
from typing import Any

from sublayer_cases import Inputs

# Not a dependency: looked up by name, so that a type checker needs no torch either.
torch: Any = importlib.import_module("torch")


def differentiated(case: str, given: Inputs) -> Callable[[], tuple]:
    """Returns a function that runs both passes, as `sublayers_in_jax.differentiated` does."""
    x = None if given.x is None else torch.tensor(given.x, requires_grad=True)
    tokens = torch.tensor(given.tokens, dtype=torch.long)
    upstream = torch.tensor(given.upstream)
    module, forward = build(case, given)
    parameters = [] if module is None else list(module.parameters())

    def both():
        for leaf in [*parameters, *([] if x is None else [x])]:
            leaf.grad = None
        out = forward(x, tokens)
        out.backward(upstream)
        by_x = None if x is None else x.grad.numpy()
        return out.detach().numpy(), by_x, [leaf.grad.numpy() for leaf in parameters]

    return both


def build(case: str, given: Inputs) -> tuple[Any, Callable]:
    """Returns the module, None where the case has no parameter, and its forward pass."""
    nn = torch.nn
    w = {name: torch.tensor(value) for name, value in given.weights.items()}

    def linear(kernel, bias=None):
        fan_in, fan_out = kernel.shape
        module = nn.Linear(fan_in, fan_out, bias=bias is not None)
        module.weight = nn.Parameter(kernel.T.contiguous())
        if bias is not None:
            module.bias = nn.Parameter(bias)
        return module

    if case == "cross_entropy":

        def loss(x, tokens):
            return nn.functional.cross_entropy(x.flatten(0, 1), tokens.flatten(), reduction="sum")

        return None, loss
    if case == "embedding":
        module = nn.Embedding(*w["table"].shape)
        module.weight = nn.Parameter(w["table"])
        return module, lambda x, tokens: module(tokens)
    if case == "feed_forward":
        layers = linear(w["in"], w["in_bias"]), nn.GELU(), linear(w["out"], w["out_bias"])
        module = nn.Sequential(*layers)
        return module, lambda x, tokens: module(x)
    if case == "swiglu":
        gate, up, down = (linear(w[name]) for name in ("gate", "up", "down"))
        module = nn.ModuleList([gate, up, down])
        return module, lambda x, tokens: down(nn.functional.silu(gate(x)) * up(x))
    if case == "attention":
        return attention(nn, w, linear)
    D = len(w["scale"])
    module = nn.LayerNorm(D, eps=1e-5) if case == "layer_norm" else nn.RMSNorm(D, eps=1e-6)
    module.weight = nn.Parameter(w["scale"])
    if case == "layer_norm":
        module.bias = nn.Parameter(w["bias"])
    return module, lambda x, tokens: module(x)


def attention(nn: Any, w: dict[str, Any], linear: Callable) -> tuple[Any, Callable]:
    """One packed projection and the fused causal kernel: what fast PyTorch code writes."""
    D, N, H = w["query"].shape
    packed = linear(torch.cat([w[n].reshape(D, N * H) for n in ("query", "key", "value")], dim=1))
    join = linear(w["out"].reshape(N * H, D))
    module = nn.ModuleList([packed, join])

    def attend(x, tokens):
        B, T, _ = x.shape
        q, k, v = packed(x).reshape(B, T, 3, N, H).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return join(heads.transpose(1, 2).reshape(B, T, N * H))

    return module, attend
