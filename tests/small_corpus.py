"""Corpora of a few tokens, made up in a test, and the runs over them."""

import dataclasses

import numpy as np

from jtransformer.data.corpus import Corpus, Examples, Stream
from jtransformer.data.ragged import Ragged
from jtransformer.data.specials import specials
from jtransformer.spec import (
    CausalLM,
    DataSpec,
    JsonLines,
    ModelSpec,
    RunSpec,
    Seq2Seq,
    Sinusoidal,
    TextFile,
    TextPairs,
    TrainingSpec,
)
from jtransformer.spec.run import STACKS

PIECES = 20
TEXT, DOCUMENTS, PAIRS = TextFile(path="x"), JsonLines(path="x"), TextPairs(path="x")


@dataclasses.dataclass(frozen=True)
class Numbers:
    """A tokenizer of nothing: what is laid out here are ids."""

    pieces: int = PIECES
    sha256: str = ""


def run_of(
    objective=None, *, source=TEXT, seed=0, vocabulary=300, training=None, position=None, **data
):
    """Returns a run; keywords are those of DataSpec."""
    objective = objective or CausalLM()
    data = dict(length=6, source=source) | data
    if isinstance(objective, Seq2Seq):
        data = dict(source_length=6) | data
    return RunSpec(
        model=ModelSpec(
            vocabulary=vocabulary,
            width=8,
            heads=2,
            stack=STACKS[type(objective)](),
            position=position or Sinusoidal(),
        ),
        data=DataSpec(**data),
        objective=objective,
        training=TrainingSpec(**(dict(batch_size=3, evaluation_batch_size=4) | (training or {}))),
        seed=seed,
    )


def examples_of(targets, sources=None):
    """Returns documents, or pairs."""
    return Examples(Ragged.of(targets), None if sources is None else Ragged.of(sources))


def corpus_of(spec, train, validation=None, *, pieces=PIECES):
    """Returns a corpus of the run; the other parts are the validation part, or the training's."""
    validation = train if validation is None else validation
    return Corpus(
        train=train,
        validation=validation,
        test=validation,
        tokenizer=Numbers(pieces),
        source_tokenizer=Numbers(pieces),
        specials=specials(pieces, spec.data, spec.objective),
        sha256="",
    )


def stream(ids):
    """Returns a text of bytes."""
    return Stream(np.asarray(ids, np.uint8))


def drawn(seed, count, *, longest, shortest=1):
    """Draws ragged rows of pieces."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(shortest, longest + 1, count)
    return [rng.integers(0, PIECES, size).astype(np.int32) for size in sizes]


def scored(batches, *fields):
    """Collects what is scored over batches: one tuple of the named fields for each."""
    found = []
    for batch in batches:
        where = batch.weights == 1
        found += zip(*(getattr(batch, field)[where].tolist() for field in fields), strict=True)
    return found
