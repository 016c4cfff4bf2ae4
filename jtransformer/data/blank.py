"""Batches without content: what a program of a run is compiled for, before there is a corpus."""

from typing import Any

import numpy as np

from jtransformer.data.batch import Batch
from jtransformer.spec import Kjv, PrefixLM, RunSpec, TextFile


def blank_batch(spec: RunSpec) -> Batch:
    """Returns a training batch of a run with all its arrays, their shapes and types, all zeros.

    Args:
        spec: The run; its corpus is not read.
    """
    data, objective, B = spec.data, spec.objective, spec.training.batch_size
    T, S = spec.row_lengths
    # Rows that are cut from one text are full, and need no word on what is real.
    is_full = isinstance(data.source, Kjv | TextFile) or data.rows == "stream"

    def told(length: int, prefix: str = "") -> dict[str, Any]:
        found = {} if is_full else {"valid": _zeros(np.bool_, B, length)}
        if data.rows == "packed":
            found |= {name: _zeros(np.int32, B, length) for name in ("positions", "segments")}
        return {prefix + name: value for name, value in found.items()}

    more = told(T)
    if isinstance(objective, PrefixLM):
        more["prefix_length"] = _zeros(np.int32, B)
    if S is not None:
        more |= {"source": _zeros(np.int32, B, S), **told(S, "source_")}
    ids = _zeros(np.int32, B, T)
    return Batch(tokens=ids, labels=ids, weights=_zeros(np.float32, B, T), **more)


def _zeros(dtype: type, *shape: int) -> np.ndarray:
    # One number, however large the batch is.
    return np.broadcast_to(np.zeros((), dtype), shape)
