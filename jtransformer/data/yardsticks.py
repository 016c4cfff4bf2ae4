"""What simpler predictors reach on the same validation bytes, in nats per byte."""

import lzma
import math
from typing import NamedTuple

import numpy as np

from jtransformer.data.corpus import Corpus

SMOOTHING = 0.1
"""Added to every count, so that an unseen byte or pair has a probability."""


class Yardsticks(NamedTuple):
    """Nats per validation byte.

    Attributes:
        unigram: Byte frequencies of the training text, counts plus 0.1.
        bigram: Frequencies after the byte before, counts plus 0.1.
        xz: `xz -9` on the validation bytes alone; it learns from nothing else.
    """

    unigram: float
    bigram: float
    xz: float


def yardsticks(corpus: Corpus) -> Yardsticks:
    """Scores the simple predictors on the validation part, its first byte left out as ever."""
    train, validation = corpus.train.astype(np.int64), corpus.validation.astype(np.int64)
    before, after = validation[:-1], validation[1:]
    # Smoothed as the bigram is: a byte that only the validation part has is not impossible.
    single = np.bincount(train, minlength=256) + SMOOTHING
    pairs = np.bincount(train[:-1] * 256 + train[1:], minlength=256 * 256) + SMOOTHING
    pairs = pairs.reshape(256, 256)
    unigram = np.log(single.sum()) - np.log(single[after])
    bigram = np.log(pairs.sum(axis=1)[before]) - np.log(pairs[before, after])
    compressed = len(lzma.compress(corpus.validation.tobytes(), preset=9))
    return Yardsticks(
        unigram=float(unigram.mean()),
        bigram=float(bigram.mean()),
        xz=compressed * 8 * math.log(2) / len(corpus.validation),
    )
