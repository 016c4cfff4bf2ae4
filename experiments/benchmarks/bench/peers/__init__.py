"""Who is measured: one module per peer, each imported in a process of its own.

A module has `serve()`, the functions that its process may be asked for; see `serving.py`.
"""

from types import MappingProxyType
from typing import NamedTuple


class Peer(NamedTuple):
    """Who is measured.

    Attributes:
        title: What tables call it.
        module: In this package.
        needs: What must be importable, the most particular last.
        is_same: Whether it trains the very same model; the other has the nearest one.
    """

    title: str
    module: str
    needs: tuple[str, ...]
    is_same: bool = True


PEERS = MappingProxyType(
    {
        "ours": Peer("jtransformer", "ours", ("jax", "jtransformer")),
        "linen": Peer("flax.linen", "linen", ("jax", "flax", "optax")),
        "torch": Peer("torch, eager", "nanogpt", ("torch",)),
        "compiled": Peer("torch.compile", "nanogpt_compiled", ("torch",)),
        "x_transformers": Peer(
            "x-transformers", "of_x_transformers", ("torch", "x_transformers"), is_same=False
        ),
        "transformers": Peer("transformers GPT-2", "gpt2", ("torch", "transformers")),
    }
)
OURS = "ours"
TORCH = tuple(name for name, peer in PEERS.items() if "torch" in peer.needs)
