"""Writes well-formed work directories from given losses: what stats and report are tested on.

Statistics are judged on known truth, so the losses are made up here; everything around them has
the form that training writes.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jtransformer.records import SCHEMA, RunFiles, RunRecord, SweepFiles, SweepRecord

RATES = (0.001, 0.004, 0.016)
DATA = {
    "source": "kjv",
    "sha256": "fdceb080776e968ce8511b6cadac179198c44499f0de033bdbc8334b430aa31f",
    "bytes": 4185992,
    "train_bytes": 4018552,
    "validation_bytes": 83720,
    "test_bytes": 83720,
    "distinct_bytes": 71,
    "unit": "bytes",
    "malformed": 0,
    "too_long": 0,
    "cut": 0,
    "loss_unit": "nats/byte",
    "unigram_nll": 3.0361,
    "bigram_nll": 2.3762,
    "xz_nll": 1.7502,
}
QUESTION = """Does the place of the norm matter, and does the feed-forward family?

Prediction: the gated family wins by about 0.02 nats; pre-norm is ahead of post-norm.
"""
STEPS = 400


def write_sweep(workdir: Path, losses: Mapping[tuple[str, float, int], Any], **manifest) -> Path:
    """Writes a work directory.

    Args:
        workdir: Where; it is made.
        losses: By arm, learning rate and seed: a final validation loss, or "diverged", "pending",
            "running" or "failed". The first arm is the baseline.
        **manifest: Entries of sweep.json that replace the usual ones.
    """
    written = _manifest(losses, manifest)
    workdir.mkdir(parents=True, exist_ok=True)
    _write(SweepFiles(workdir).manifest, written)
    for cell, loss in zip(map(_cell, losses), losses.values(), strict=True):
        _write_run(RunFiles(workdir / cell["directory"]), cell, loss)
    return workdir


def record_of(losses: Mapping[tuple[str, float, int], Any], **manifest) -> SweepRecord:
    """Returns what `write_sweep` would write, without a file, a curve or an environment.

    Args:
        losses: As for `write_sweep`; complete runs alone.
        **manifest: As for `write_sweep`.
    """
    runs = []
    for key, loss in losses.items():
        cell = _cell(key)
        status = _status(cell, loss)
        runs.append(RunRecord(cell, status["state"], status, [], None, None))
    return SweepRecord(_manifest(losses, manifest), tuple(runs))


def _manifest(
    losses: Mapping[tuple[str, float, int], Any], replaced: dict[str, Any]
) -> dict[str, Any]:
    names = list(dict.fromkeys(arm for arm, _, _ in losses))
    seeds = sorted({seed for _, _, seed in losses})
    usual = {
        "schema": SCHEMA,
        "title": "norm_and_ffn",
        "question": QUESTION,
        "command": "jtransformer sweep --config experiments/norm_and_ffn/config.py --workdir out",
        "metric": "validation/nll",
        "baseline": names[0],
        "scientific": {"model.norm_placement": ["pre", "post"], "model.ffn": ["relu", "gelu"]},
        "nuisance": {"optimizer.learning_rate": sorted({rate for _, rate, _ in losses})},
        "seeds": seeds,
        "match": {
            "equal": "parameters",
            "by": "model.ffn_width",
            "multiple_of": 2,
            "tolerance": 0.01,
        },
        "base": {"model": {"width": 64}, "training": {"steps": STEPS, "batch_size": 8}},
        "data": DATA,
        "arms": [_arm(name, index) for index, name in enumerate(names)],
        "cells": [_cell(key) for key in losses],
    }
    return usual | replaced


def noisy_losses(effects: Mapping[str, float], seeds: int = 3, sd: float = 0.004) -> dict:
    """Draws a full grid of losses: arm and seed effects, a best rate in the middle, noise."""
    generator = np.random.default_rng(7)
    seed_effects = generator.normal(0, 0.02, seeds)
    penalty = dict(zip(RATES, (0.09, 0.0, 0.05), strict=True))
    return {
        (arm, rate, seed): float(2.1 + effect + penalty[rate] + seed_effects[seed] + noise)
        for arm, effect in effects.items()
        for rate in RATES
        for seed, noise in enumerate(generator.normal(0, sd, seeds))
    }


def scaled(arms: Iterable[str]) -> dict[str, Any]:
    """Returns what a manifest has if its arms are named after scales: "small-pre", "large-pre"."""
    names = list(arms)
    scales = dict.fromkeys(name.partition("-")[0] for name in names)
    sizes = {scale: {"model.width": 32 * (index + 1)} for index, scale in enumerate(scales)}
    first = {scale: next(n for n in names if n.partition("-")[0] == scale) for scale in scales}
    records = [
        _arm(name.partition("-")[2], index)
        | {"name": name, "scale": name.partition("-")[0], "baseline": first[name.partition("-")[0]]}
        for index, name in enumerate(names)
    ]
    baseline = names[0].partition("-")[2]
    return {"scales": sizes, "arms": records, "baseline": baseline}


def _write(path: Path, value: Any) -> None:
    # Without the records' fsync: a test may lose its files when the machine stops.
    path.write_text(json.dumps(value))


def _cell(key: tuple[str, float, int]) -> dict[str, Any]:
    arm, rate, seed = key
    identity = hashlib.sha256(f"{arm} {rate} {seed}".encode()).hexdigest()
    folder = "".join(c if c.isalnum() or c in "-_" else "_" for c in arm)
    return {
        "arm": arm,
        "nuisance": {"optimizer.learning_rate": rate},
        "seed": seed,
        "fingerprint": identity,
        "directory": f"runs/{folder}/learning_rate={rate}-seed{seed}-{identity[:8]}",
    }


def _arm(name: str, index: int) -> dict[str, Any]:
    placement, _, ffn = name.partition("-")
    gated = ffn == "swiglu"
    components = {
        "embedding": 16384,
        "attention": 33280,
        "feed_forward": 65600 if gated else 65920,
        "norm": 640,
    }
    return {
        "name": name,
        "factors": {"model.norm_placement": placement, "model.ffn": ffn},
        "matched": {"model.ffn_width": 170 if gated else 256},
        "parameters": sum(components.values()),
        "components": components,
        "residual": -0.0027 if gated else 0.0,
        "mismatches": {
            "parameters": -0.0027 if gated else 0.0,
            "non_embedding_parameters": -0.0032 if gated else 0.0,
            "training_flops": -0.0028 if gated else 0.0,
            "inference_flops": 0.0,
            "kv_bytes": None,
        },
        "training_flops_per_token": 695_808 - 1920 * gated + index,
    }


def _write_run(files: RunFiles, cell: dict[str, Any], loss: Any) -> None:
    if loss == "pending":
        return
    files.directory.mkdir(parents=True)
    _write(files.environment, _environment())
    # Ten logged points, every second one evaluated; a run under way stops after the fourth.
    end = {"running": 4, "failed": 4, "diverged": 3}.get(loss, 10)
    target = loss if isinstance(loss, float) else 2.2
    rows = [_metrics_row(index, target, cell["seed"]) for index in range(1, end + 1)]
    files.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if loss == "failed":
        _write(files.failure, {"error": "RuntimeError: out of memory", "traceback": "…"})
    elif loss != "running":
        _write(files.status, _status(cell, loss))


def _metrics_row(index: int, target: float, seed: int) -> dict[str, Any]:
    step = index * STEPS // 10
    nll = target + 1.2 * (math.exp(-index / 2.5) - math.exp(-4))
    wiggle = 0.03 * math.sin(7 * index + seed)
    return {
        "step": step,
        "tokens": step * 512,
        "train_nll": nll - 0.02 + wiggle,
        "validation_nll": nll if index % 2 == 0 else None,
        "gradient_norm": 1.2,
        "learning_rate": 0.001,
        "tokens_per_second": 65000.0,
    }


def _status(cell: dict[str, Any], loss: Any) -> dict[str, Any]:
    diverged = loss == "diverged"
    steps = 120 if diverged else STEPS
    result = {
        "steps": steps,
        "tokens": steps * 512,
        "train_nll": None if diverged else loss - 0.03,
        "validation_nll": None if diverged else loss,
        "best_validation_nll": 2.4 if diverged else loss - 0.0005,
        "best_step": 80 if diverged else STEPS - 80,
        "test_nll": None if diverged else loss + 0.011,
        "parameters": 115072,
        "training_flops_per_token": 695808,
        "diverged_at": 120 if diverged else None,
    }
    ffn = "swiglu" if "swiglu" in cell["arm"] else "plain"
    return {
        "schema": SCHEMA,
        "fingerprint": cell["fingerprint"],
        "state": "diverged" if diverged else "done",
        "result": result,
        "pairing": {
            "sampling": _hash("sampling", 0),
            "first_batch": _hash("first", cell["seed"]),
            "last_batch": _hash("last", cell["seed"]),
            "initial": {
                "embedding/table": _initial([256, 64], cell["seed"], "embedding"),
                "layer_0/ffn/w_in": _initial(
                    [64, 170 if ffn == "swiglu" else 256], cell["seed"], ffn
                ),
            },
        },
        "timing": {"wall_seconds": 4.1, "tokens_per_second": 65000.0},
    }


def _initial(shape: list[int], *parts: Any) -> dict[str, Any]:
    return {"shape": shape, "initialiser": "normal 0.125", "hash": _hash(*parts)}


def _hash(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _environment() -> dict[str, Any]:
    return {
        "python": "3.11.7",
        "jtransformer": "0.1.0",
        "jax": "0.10.2",
        "jaxlib": "0.10.2",
        "flax": "0.12.8",
        "optax": "0.2.8",
        "orbax-checkpoint": "0.12.8",
        "numpy": "2.4.6",
        "platform": "cpu",
        "device_kind": "cpu",
        "device_count": 1,
        "process_count": 1,
        "mode": "loop",
        "machine": "x86_64",
        "decayed_parameters": ["embedding/table"],
    }


def runs_of(record, arm: str, rate: float | None = None) -> list:
    """Returns the runs of an arm, of one learning rate if it is given."""
    return [
        run
        for run in record.runs
        if run.cell["arm"] == arm
        and rate in (None, run.cell["nuisance"]["optimizer.learning_rate"])
    ]
