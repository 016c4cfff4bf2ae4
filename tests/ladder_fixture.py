"""Sweeps at several scales whose losses follow a known law."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from sweep_fixture import scaled, write_sweep

from jtransformer.records import SweepRecord, load_sweep
from jtransformer.stats import Analysis, analyse_scales, at_scales

EMBEDDING = 16384
SIZES = {"tiny": 4_000, "small": 16_000, "large": 64_000, "huge": 256_000}
"""Parameters between embeddings and head."""

Law = Callable[[float], float]


def law(floor: float, amplitude: float, exponent: float) -> Law:
    """Returns a loss by size; the amplitude is that at 32,000."""
    return lambda size: floor + amplitude * (size / 32_000) ** -exponent


def load_ladder(
    workdir: Path,
    laws: Mapping[str, Law],
    sizes: Mapping[str, int] | None = None,
    *,
    seeds: int = 3,
    sd: float = 0.004,
    ends: Callable[[str, int], str | None] = lambda arm, seed: None,
    **manifest,
) -> list[tuple[SweepRecord, Analysis]]:
    """Writes a work directory and loads its scales.

    Args:
        workdir: Where.
        laws: Loss by size of every arm, the baseline first; one rate is tried.
        sizes: Of the scales.
        seeds: How many.
        sd: Noise of a run.
        ends: How a run of an arm and a seed ends if not by the law: see `write_sweep`.
        **manifest: Entries of sweep.json that replace the usual ones.
    """
    sizes = SIZES if sizes is None else sizes
    generator = np.random.default_rng(3)
    by_seed = generator.normal(0, 0.01, seeds)
    losses = {
        (f"{scale}-{name}", 0.004, seed): float(at(size) + by_seed[seed] + generator.normal(0, sd))
        for scale, size in sizes.items()
        for name, at in laws.items()
        for seed in range(seeds)
    }
    losses = {key: ends(key[0], key[2]) or loss for key, loss in losses.items()}
    parts = scaled(dict.fromkeys(arm for arm, _, _ in losses))
    for arm in parts["arms"]:
        size = sizes[arm["scale"]]
        arm["components"] = {"embedding": EMBEDDING, "attention": size}
        arm["parameters"] = EMBEDDING + size
        arm["training_flops_per_token"] = 6 * size
    record = load_sweep(write_sweep(workdir, losses, **parts | manifest))
    return list(zip(at_scales(record), analyse_scales(record), strict=True))
