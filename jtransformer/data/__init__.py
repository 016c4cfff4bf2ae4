"""Texts, splits and batches; batch t depends on (data spec, seed, t) alone."""

from jtransformer.data.corpus import (
    Batch,
    Corpus,
    TrainingBatches,
    check_batch,
    count_windows,
    evaluation_batches,
    load,
)
from jtransformer.data.yardsticks import Yardsticks, yardsticks

__all__ = [
    "Batch",
    "Corpus",
    "TrainingBatches",
    "Yardsticks",
    "check_batch",
    "count_windows",
    "evaluation_batches",
    "load",
    "yardsticks",
]
