"""Runs spread over eight devices, beside the same on one: what the tests of meshes have in common.

A process has one number of devices, so these run in one of their own: see `in_eight_devices`.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
from quickly import quickly

from jtransformer.data import Batch
from jtransformer.spec import (
    DataSpec,
    Dropout,
    EncoderDecoder,
    LatentAttention,
    Layout,
    LossSpec,
    ModelSpec,
    OptimizerSpec,
    Precision,
    Rope,
    RunSpec,
    Seq2Seq,
    SpanCorruption,
    Synthetic,
    TokenHead,
    TrainingSpec,
    WarmupCosine,
)
from jtransformer.training import Program, arrange, dropout_key, hyperparameters, parameter_key

TESTS = pathlib.Path(__file__).parent
DEVICES = 8
T, S, UPDATES = 16, 8, 5

# Each of 2^7 positions' losses passes through sums of at most 2^8 terms in another order, forward
# and backward, and each update reads what the one before has rounded: 8 half-units of float32 for
# every update. Measured are 3e-7; what a fault moves is above 1e-4.
TOLERANCE = UPDATES * 8 * 2.0**-24


def in_eight_devices(program: str, *arguments: str):
    """Runs a program of tests in a process of eight CPU devices; returns the JSON it prints."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": path}
    command = [sys.executable, "-W", "error", str(TESTS / "training" / program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # What the partitioner cannot divide it repeats on every device, and says so from C++.
    assert "rematerialization" not in done.stderr, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def layouts() -> list[Layout]:
    """Returns every mesh of eight devices."""
    sizes = (1, 2, 4, 8)
    found = [Layout(**dict(zip(("data", "fsdp", "tensor", "sequence"), n, strict=True)))
             for n in itertools.product(sizes, repeat=4)]  # fmt: skip
    return [layout for layout in found if layout.devices == DEVICES]


def model(**changes) -> ModelSpec:
    """Returns a model of which eight divides hidden units, vocabulary and width, and not heads."""
    plain = dict(
        width=24, layers=2, heads=4, head_width=8, key_value_heads=2, ffn_width=32, vocabulary=256
    )
    return ModelSpec(**(plain | changes))


def run(spec: ModelSpec, chunk: int | None = None, *, corrupts=False, **training) -> RunSpec:
    """Returns a run of a model, whose loss is in chunks; keywords change its TrainingSpec."""
    data, other = DataSpec(length=T), {}
    if corrupts:
        # 9 tokens are dropped in 3 spans: rows of 54 and of 14, which two devices divide.
        data, other = DataSpec(length=60), {"objective": SpanCorruption()}
    elif spec.has_encoder:
        data = DataSpec(length=T, source_length=S, source=Synthetic(), rows="padded")
        other = {"objective": Seq2Seq()}
    return RunSpec(
        model=spec,
        data=data,
        loss=LossSpec(chunk=chunk),
        optimizer=OptimizerSpec(learning_rate=1e-2),
        schedule=WarmupCosine(warmup_steps=2),
        training=TrainingSpec(**(dict(batch_size=DEVICES, steps=UPDATES) | training)),
        **other,
    )


LATENT = LatentAttention(latent_width=12, rotary_width=4, value_width=6)
ROUNDED = "bfloat16"
NARROW = Precision(**dict.fromkeys(("stream", "attention", "ffn", "head"), ROUNDED))
SPANS = "spans"
DROPS = Dropout(embedding=0.1, attention=0.1, ffn=0.1, residual=0.1)
MODELS = {
    "loop": model(norm_placement="pre", scan_layers=False, qkv_bias=True, ffn_bias=True),
    "scan, dropout": model(scan_layers=True, dropout=DROPS, ffn="swiglu"),
    "untied": model(scan_layers=True, head=TokenHead(tied=False)),
    "two stacks, dropout": model(layers=1, stack=EncoderDecoder(encoder_layers=1), dropout=DROPS),
    "latent": model(attention=LATENT, key_value_heads=None, position=Rope(), scan_layers=True),
    ROUNDED: model(precision=NARROW, scan_layers=True),
}
# The last chunk is shorter than the others.
IN_PARTS = {"microbatches": dict(microbatches=2), "chunks": dict(chunk=48)}


def run_of(name: str, rows: int) -> RunSpec:
    """Returns the run of a model, or that which restores `SPANS` of a text.

    It is "in microbatches" or "in chunks" where its name says so.
    """
    of, _, parts = name.partition(" in ")
    if of == SPANS:
        return run(MODELS["two stacks, dropout"], corrupts=True, batch_size=rows)
    return run(MODELS[of], batch_size=rows, **IN_PARTS.get(parts, {}))


def batches(spec: RunSpec, rows: int, count: int = UPDATES) -> list[Batch]:
    """Returns random batches of rows that score no token, one or all; the first scores most."""
    draw = np.random.default_rng(1)
    T, S = spec.row_lengths
    found = []
    for _ in range(count):
        ids = draw.integers(0, spec.model.vocabulary, (rows, T + 1), dtype=np.int32)
        lengths = draw.choice((0, 1, T), (rows, 1))
        lengths[0] = T - 1
        weights = (np.arange(T) < lengths).astype(np.float32)
        batch = Batch(ids[:, :-1], ids[:, 1:], weights)
        if spec.model.has_encoder:
            source = draw.integers(0, spec.model.vocabulary, (rows, S), dtype=np.int32)
            batch = batch._replace(source=source, source_valid=np.ones((rows, S), bool))
        found.append(batch)
    return found


def program_of(spec: RunSpec, layout: Layout | None) -> Program:
    """Returns the program of a run, over a mesh or on one device."""
    return Program(spec, quickly, None if layout is None else arrange(layout))


def trained(program: Program, spec: RunSpec, rows: int):
    """Returns the mean loss behind every update, the loss of an evaluation, and the state."""
    numbers = program.place_whole((hyperparameters(spec), dropout_key(spec)))
    state = program.start(parameter_key(0))
    losses = []
    for batch in batches(spec, rows):
        state = program.update(state, program.place_batch(batch), *numbers)
        losses.append(float(state.tally.loss_sum / state.tally.weight_sum))
    evaluated = program.place_evaluated(batches(spec, 3, 1)[0])
    nll, weight = program.evaluate(state.parameters, evaluated)
    return losses, float(nll / weight), state


def share_of_first(tree) -> float:
    """Returns which share of a tree's bytes the first device has."""
    leaves = jax.tree.leaves(tree)
    own = sum(leaf.addressable_shards[0].data.nbytes for leaf in leaves)
    return own / sum(leaf.nbytes for leaf in leaves)
