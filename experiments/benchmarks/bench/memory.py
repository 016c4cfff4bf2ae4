"""Measures what the compiled update holds as rows grow longer, by what is done against it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .bench import Bench
from .peers import OURS
from .sizes import Size

BASE = Size(L=4, D=128, N=4, F=512, T=256, B=4, V=8192)
LENGTHS = (512, 1024, 2048)

PLAIN = {"backend": "plain"}
VARIANTS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "plain": PLAIN,
        "blockwise attention": {"backend": "blockwise"},
        "recompute attention": PLAIN | {"rematerialize": "attention"},
        "recompute elementwise": PLAIN | {"rematerialize": "elementwise"},
        "recompute everything": PLAIN | {"rematerialize": "everything"},
        # Beside all scores at once, logits are not what takes the most.
        "blockwise, loss in chunks": {"backend": "blockwise", "chunk": 256},
        "4 microbatches": PLAIN | {"microbatches": 4},
        "all of these": {
            "backend": "blockwise",
            "rematerialize": "everything",
            "chunk": 256,
            "microbatches": 4,
        },
    }
)
"""How the update is written; layers are scanned."""


def measure(
    bench: Bench,
    lengths: tuple[int, ...] = LENGTHS,
    base: Size = BASE,
    variants: Mapping[str, dict[str, Any]] = VARIANTS,
) -> None:
    """Compiles every variant at every length; lines are "memory", in bytes, and exact."""
    for variant, options in variants.items():
        for length in lengths:
            if not bench.journal.of("memory", variant=variant, length=length):
                size = list(base._replace(T=length))
                held = bench.ask(OURS, "memory", size=size, scan_layers=True, **options)
                bench.write("memory", variant=variant, length=length, **held)
