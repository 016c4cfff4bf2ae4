"""What simpler predictors reach on the same validation part, in nats per scored token."""

import lzma
import math
from typing import NamedTuple

import numpy as np

from jtransformer.data.batches import evaluation_batches
from jtransformer.data.corpus import Corpus, PartName, Stream
from jtransformer.spec import CausalLM, RunSpec

SMOOTHING = 0.1
"""Added to every count, so that an unseen token or pair has a probability."""


class Yardsticks(NamedTuple):
    """Nats per scored token of the validation part.

    Attributes:
        unigram: Frequencies of what the training part asks for, counts plus 0.1.
        bigram: Frequencies after the byte before, counts plus 0.1; None where a run does not
            predict the bytes of one text in order.
        xz: `xz -9` on the validation bytes alone, which learns from nothing else; None likewise.
    """

    unigram: float
    bigram: float | None
    xz: float | None


def yardsticks(corpus: Corpus, spec: RunSpec) -> Yardsticks:
    """Scores the simple predictors on the questions that a run is asked in validation."""
    unigram = unigram_nll(corpus, spec)
    train, validation = corpus.train, corpus.validation
    if not (isinstance(train, Stream) and isinstance(validation, Stream)):
        return Yardsticks(unigram, None, None)
    # One byte of one text is one id exactly where ids are stored as bytes.
    if not isinstance(spec.objective, CausalLM) or train.ids.dtype != np.uint8:
        return Yardsticks(unigram, None, None)
    compressed = len(lzma.compress(validation.ids.tobytes(), preset=9))
    return Yardsticks(
        unigram=unigram,
        bigram=_bigram_nll(train.ids.astype(np.int64), validation.ids.astype(np.int64)),
        xz=compressed * 8 * math.log(2) / len(validation),
    )


def unigram_nll(corpus: Corpus, spec: RunSpec) -> float:
    """Returns the loss of one who knows how often each token is asked for, and nothing else.

    The counts are those of the training part's labels, smoothed, so that a token that only the
    validation part asks for is not impossible.
    """
    size, train, validation = corpus.specials.size, corpus.train, corpus.validation
    if isinstance(spec.objective, CausalLM) and isinstance(train, Stream):
        assert isinstance(validation, Stream)
        # Every token of a text counts, the first included, which is no label.
        losses = _unigram_losses(np.bincount(train.ids, minlength=size))
        return float(losses[validation.ids[1:]].mean())
    asked = _label_counts(corpus, "validation", spec)
    losses = _unigram_losses(_label_counts(corpus, "train", spec))
    return float(asked @ losses / asked.sum())


def _unigram_losses(counts: np.ndarray) -> np.ndarray:
    smoothed = counts + SMOOTHING
    return np.log(smoothed.sum()) - np.log(smoothed)


def _label_counts(corpus: Corpus, part: PartName, spec: RunSpec) -> np.ndarray:
    counts = np.zeros(corpus.specials.size)
    for batch in evaluation_batches(corpus, part, spec):
        counts += np.bincount(batch.labels.ravel(), batch.weights.ravel(), len(counts))
    return counts


def _bigram_nll(train: np.ndarray, validation: np.ndarray) -> float:
    before, after = validation[:-1], validation[1:]
    pairs = np.bincount(train[:-1] * 256 + train[1:], minlength=256 * 256) + SMOOTHING
    pairs = pairs.reshape(256, 256)
    return float((np.log(pairs.sum(axis=1)[before]) - np.log(pairs[before, after])).mean())
