"""A text, split by position, and the batches that are drawn from it.

Batch t is a pure function of (data spec, seed, t): there is no iterator whose state could be
lost, and no arm can see other data than its neighbour.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jtransformer.data.sources import read_source, sha256
from jtransformer.spec import DataSpec, SpecError

SPLITS = ("train", "validation", "test")


class Batch(NamedTuple):
    """Sequences and what is asked of them.

    Attributes:
        tokens: Input ids, int32 "B T".
        labels: The id after each input, int32 "B T".
        weights: 1 where the label is scored, 0 in the padding of a last batch, float32 "B T".
    """

    tokens: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The three parts of a text, uint8 each, and the hash of the whole."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    sha256: str


def load(data: DataSpec) -> Corpus:
    """Reads and splits a text.

    Raises:
        SpecError: If the text cannot be read, or a part is shorter than one sequence.
    """
    text = read_source(data)
    n_validation = int(len(text) * data.validation_fraction)
    n_test = int(len(text) * data.test_fraction)
    n_train = len(text) - n_validation - n_test
    parts = np.split(text, [n_train, n_train + n_validation])
    for name, part in zip(SPLITS, parts, strict=True):
        if len(part) < data.length + 1:
            raise SpecError(
                "data.length",
                f"= {data.length} needs {data.length + 1} bytes in every part of the text, but "
                f"{name} has {len(part)} of {len(text)}; give a longer text or a shorter length.",
            )
    return Corpus(*parts, sha256=sha256(text))


def check_batch(corpus: Corpus, data: DataSpec, batch_size: int) -> None:
    """Refuses a text that cannot fill one batch with different sequences.

    Raises:
        SpecError: If it cannot.
    """
    windows = count_windows(corpus.train, data.length)
    if windows < batch_size:
        raise SpecError(
            "training.batch_size",
            f"= {batch_size} sequences of {data.length} tokens are more than the training text "
            f"holds ({windows} sequences in {len(corpus.train)} bytes); use a smaller batch, a "
            "shorter length or a longer text.",
        )


def count_windows(part: np.ndarray, length: int) -> int:
    """Returns how many disjoint sequences of `length` inputs a part of a text holds."""
    return (len(part) - 1) // length


class TrainingBatches:
    """The training batches of one run, by index.

    Every epoch visits each window of the training text once, in an order of its own.
    """

    def __init__(self, corpus: Corpus, data: DataSpec, batch_size: int, seed: int):
        # grain sets up telemetry when it is imported, so only whoever trains imports it.
        import grain

        self._text, self._length, self._batch_size = corpus.train, data.length, batch_size
        windows = grain.MapDataset.range(count_windows(corpus.train, data.length))
        self._order: Any = windows.shuffle(seed=seed).repeat()

    def __getitem__(self, t: int) -> Batch:
        """Returns batch t, counted from 0."""
        first = t * self._batch_size
        chosen = [self._order[index] for index in range(first, first + self._batch_size)]
        starts = np.asarray(chosen, np.int64) * self._length
        return _gather(self._text, starts, self._length)


def evaluation_batches(part: np.ndarray, length: int, batch_size: int) -> Iterator[Batch]:
    """Cuts a part of a text into batches that score every byte but the first, once.

    All batches have one shape; what a last one lacks is padding of weight 0.
    """
    starts = np.arange(0, len(part) - 1, length)
    batch_size = min(batch_size, len(starts))
    for first in range(0, len(starts), batch_size):
        chosen = starts[first : first + batch_size]
        padded = np.concatenate([chosen, np.full(batch_size - len(chosen), len(part))])
        yield _gather(part, padded, length)


def _gather(text: np.ndarray, starts: np.ndarray, length: int) -> Batch:
    positions = starts[:, None] + np.arange(length + 1)
    window = text[np.minimum(positions, len(text) - 1)].astype(np.int32)
    weights = (positions[:, 1:] < len(text)).astype(np.float32)
    return Batch(tokens=window[:, :-1], labels=window[:, 1:], weights=weights)
