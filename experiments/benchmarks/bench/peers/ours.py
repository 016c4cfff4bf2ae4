"""jtransformer: the update that `jtransformer train` makes."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np

from jtransformer.cli.allocation import reuse_memory
from jtransformer.data import Batch
from jtransformer.functional import attention
from jtransformer.training import Program, hyperparameters, parameter_key

from ..sizes import Size, rows
from ..specs import run_of
from .in_jax import count, peak_flops, threads
from .serving import Handlers, Training, trained


def serve() -> Handlers:
    """Returns what this process may be asked for."""
    return trained(training) | {
        "peak": peak_flops,
        "threads": threads,
        "compile": compile_seconds,
        "memory": memory_bytes,
    }


def training(size: Size) -> Training:
    """Starts a run, in a process like that which `jtransformer train` makes of the first one."""
    spec = run_of(size)
    reuse_memory(spec)
    program, hyper = Program(spec), hyperparameters(spec)
    batch = jax.device_put(_batch(size))
    state = program.start(parameter_key(spec.seed))
    parameters = count(state.parameters)
    held = [state]
    seen = [0.0, 0.0]

    def step() -> None:
        held[0] = program.update(held[0], batch, hyper)

    def loss() -> float:
        tally = held[0].tally
        sums = [float(tally.loss_sum), float(tally.weight_sum)]
        mean = (sums[0] - seen[0]) / (sums[1] - seen[1])
        seen[:] = sums
        return mean

    return Training(parameters, step, loss)


def compile_seconds(size: list[int], **fields: Any) -> dict[str, float]:
    """Compiles the update of a run anew.

    Returns:
        Seconds of tracing and lowering, and of the compiler.
    """
    spec = run_of(Size(*size), **fields)
    program, hyper = Program(spec), hyperparameters(spec)
    state = jax.eval_shape(program.start, parameter_key(spec.seed))
    began = time.perf_counter()
    lowered = program.update.lower(state, _batch(Size(*size)), hyper)
    traced = time.perf_counter()
    lowered.compile()
    return {"trace": traced - began, "compile": time.perf_counter() - traced}


def memory_bytes(size: list[int], *, backend: str | None = None, **fields: Any) -> dict[str, int]:
    """Compiles the update of a run and asks the compiler what it holds.

    Args:
        size: What is trained on which rows.
        backend: What computes attention; None is what the library chooses.
        fields: What else differs; see `run_of`.

    Returns:
        Bytes by kind.
        "arguments": parameters, moments and the batch. "temporaries": all that is kept and freed
        inside; the new state takes the place of the old one.
    """
    spec = run_of(Size(*size), **fields)
    program, hyper = Program(spec), hyperparameters(spec)
    state = jax.eval_shape(program.start, parameter_key(spec.seed))
    with _attention(backend):
        compiled = program.update.lower(state, _batch(Size(*size)), hyper).compile()
    sizes = compiled.memory_analysis()
    assert sizes is not None, "this backend does not tell its memory"
    return {
        "arguments": sizes.argument_size_in_bytes,
        "temporaries": sizes.temp_size_in_bytes,
    }


def _batch(size: Size) -> Batch:
    tokens, labels = rows(size)
    return Batch(tokens, labels, np.ones(tokens.shape, np.float32))


@contextlib.contextmanager
def _attention(backend: str | None) -> Iterator[None]:
    """Has attention computed by one backend where the library would choose."""
    if backend is None:
        yield
        return
    with mock.patch.object(attention, "attention_backend", lambda *_, **__: backend):
        yield
