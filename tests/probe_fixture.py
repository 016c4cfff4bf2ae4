"""Probes in the form that training writes, from numbers made up here."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jtransformer.records import RunFiles, load_manifest

CAVEAT = "None of this is causal attribution."


def probe(
    step: int, *, scale: float = 1.0, layers: int = 2, heads: int = 3, places: int = 6
) -> dict[str, Any]:
    """Returns the record of a probe of one stack; `scale` is a factor of what has no bound."""

    def rising(first: float, count: int = layers) -> list[float]:
        return [scale * (first + layer) for layer in range(count)]

    by_head = [[0.1 * (layer + head + 1) for head in range(heads)] for layer in range(layers)]
    weights = np.tril(np.ones((places, places)))
    weights /= weights.sum(axis=1, keepdims=True)
    sublayers = {"value": rising(2.0), "residual": [0.01] * layers}
    return {
        "step": step,
        "part": "validation",
        "rows": 16,
        "loss": 3.2,
        "row": 0,
        "logits": {"sd": scale, "largest": 6.3},
        "outside": {"embedding": {"gradient_norm": 0.4, "update_ratio": 0.001}},
        "stacks": {
            "decoder": {
                "positions": 96,
                "gradient_norm": {"layer": rising(1.0), "ffn_last": rising(0.5)},
                "update_ratio": {"layer": rising(0.001), "ffn_last": rising(0.002)},
                "stream": {
                    "rms": rising(1.0, layers + 1),
                    "outlier_ratio": [2.0] * (layers + 1),
                    "outlier_channel": [7] * (layers + 1),
                },
                "entropy": {"attention": by_head},
                "relative_entropy": {"attention": by_head},
                "ffn": {
                    "zero_fraction": None,
                    "dead_fraction": None,
                    "saturated_fraction": None,
                },
                "spectral_norm": {
                    "stream": {"attention": sublayers, "ffn": sublayers},
                    "branch": {"attention": sublayers, "ffn": sublayers},
                },
                "ablation": {"attention": [[scale * x for x in own] for own in by_head]},
            }
        },
        "maps": [
            {
                "stack": "decoder",
                "layer": layer,
                "sublayer": "attention",
                "head": head,
                "weights": weights.tolist(),
                "queries_in_one": 1,
                "keys_in_one": 1,
            }
            for layer in range(layers)
            for head in range(heads)
        ],
        "reasons": {"ffn/dead_fraction": "ffn 'gelu' is nowhere 0 but at points"},
        "caveat": CAVEAT,
    }


def write_probes(workdir: Path, steps: Iterable[int] = (0, 400), **options: Any) -> None:
    """Puts probes beside every run of a sweep that has begun.

    Args:
        workdir: Written by `sweep_fixture.write_sweep`.
        steps: At which steps.
        **options: Of `probe`; its scale is made one for each seed, `scale + seed`.
    """
    scale = options.pop("scale", 1.0)
    for cell in (load_manifest(workdir) or {})["cells"]:
        files = RunFiles(workdir / cell["directory"])
        if not files.directory.exists():
            continue
        files.probes.mkdir()
        for step in steps:
            found = probe(step, scale=scale + cell["seed"], **options)
            files.probe(step).write_text(json.dumps(found))
