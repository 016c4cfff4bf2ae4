"""Does training wait for its batches?

Question: how long does it take to make a batch, and what share of a training step is spent waiting
for the next one when a thread makes them ahead? The aim is less than 10 % of a step of 13 ms with
16 rows of 64 tokens ("small"), and less than 5 % of one of 600 ms with 8 of 256 ("medium").

Command: python experiments/benchmarks/data_waiting.py [--size small|medium] [--seconds 6]

Cost: about two minutes. The step is a chain of matrix products on all cores that takes as long as
one of a model of that size, and it ends in the tokens of its batch, so that nothing is computed
before the batch is there. "Slower" compares whole loops: with batches made ahead, and with one
batch used again and again; it holds the waiting and what the thread takes from the step.

Expected result: RESULT.md, beside this file.
"""

import argparse
import json
import pathlib
import statistics
import tempfile
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.data import Batch, Corpus, Stream, TrainingBatches, load, prefetch
from jtransformer.spec import (
    CausalLM,
    DataSpec,
    Decoder,
    Encoder,
    EncoderDecoder,
    JsonLines,
    Kjv,
    MaskedLM,
    ModelSpec,
    PrefixDecoder,
    PrefixLM,
    RunSpec,
    Seq2Seq,
    SpanCorruption,
    Synthetic,
    TrainingSpec,
)

VOCABULARY = 1024
ROUND = 10
"""Steps before the two loops change places."""


class Size(NamedTuple):
    """Rows, tokens, and the milliseconds of a training step of a model of that size."""

    B: int
    T: int
    step_ms: float


SIZES = {"small": Size(16, 64, 13.0), "medium": Size(8, 256, 600.0)}


class Case(NamedTuple):
    """What is asked, of what, in which rows."""

    objective: Any
    source: Any
    rows: str


def cases(folder: pathlib.Path) -> dict[str, Case]:
    """Returns the cases; documents are the clauses of the embedded text."""
    path = folder / "clauses.jsonl"
    part = load(DataSpec()).train
    assert isinstance(part, Stream)
    text = part.ids.tobytes().decode()
    clauses = dict.fromkeys(part.strip() for part in text.replace(":", ",").split(","))
    path.write_text("".join(json.dumps({"text": clause}) + "\n" for clause in clauses if clause))
    documents, pairs = JsonLines(path=str(path)), Synthetic(task="reverse")
    return {
        "causal, stream": Case(CausalLM(), Kjv(), "stream"),
        "causal, padded": Case(CausalLM(), documents, "padded"),
        "causal, packed": Case(CausalLM(), documents, "packed"),
        "seq2seq, padded": Case(Seq2Seq(), pairs, "padded"),
        "seq2seq, packed": Case(Seq2Seq(), pairs, "packed"),
        "prefix, stream": Case(PrefixLM(), Kjv(), "stream"),
        "masked, stream": Case(MaskedLM(), Kjv(), "stream"),
        "masked, packed": Case(MaskedLM(), documents, "packed"),
        "spans, stream": Case(SpanCorruption(), Kjv(), "stream"),
        "spans, padded": Case(SpanCorruption(), documents, "padded"),
    }


def run_of(case: Case, size: Size) -> RunSpec:
    """Returns the run of a case; only its data and its batches are used."""
    stacks = {
        CausalLM: Decoder(),
        PrefixLM: PrefixDecoder(),
        MaskedLM: Encoder(),
        Seq2Seq: EncoderDecoder(),
        SpanCorruption: EncoderDecoder(),
    }
    return RunSpec(
        model=ModelSpec(vocabulary=VOCABULARY, stack=stacks[type(case.objective)]),
        data=DataSpec(
            source=case.source,
            length=size.T,
            source_length=size.T if isinstance(case.objective, Seq2Seq) else None,
            rows=case.rows,  # pyright: ignore[reportArgumentType]
            too_long="refuse" if case.rows == "stream" else "cut",
        ),
        objective=case.objective,
        training=TrainingSpec(batch_size=size.B),
    )


class Step:
    """A compiled step of a given duration that needs its batch."""

    def __init__(self, milliseconds: float):
        self._x = jnp.full((512, 512), 1 / 512)

        @jax.jit
        def work(x, tokens, products):
            first = x + tokens.sum().astype(x.dtype) * 1e-9
            return jax.lax.fori_loop(0, products, lambda _, y: y @ x, first).sum()

        self._work, self._products = work, 1
        batch = Batch(*(np.zeros((1, 1), np.int32),) * 3)
        for _ in range(4):
            self(batch)
            began = time.perf_counter()
            for _ in range(3):
                self(batch)
            found = (time.perf_counter() - began) / 3 * 1e3
            self._products = max(1, round(self._products * milliseconds / found))

    def __call__(self, batch: Batch) -> None:
        """Runs and waits."""
        given = [jnp.asarray(array) for array in batch if array is not None]
        self._work(self._x, given[0], self._products).block_until_ready()


def measure(corpus: Corpus, spec: RunSpec, step: Step, seconds: float) -> list[str]:
    """Returns the figures of a case: batch, step, waiting, and what the whole loop loses."""
    began = time.perf_counter()
    batches = TrainingBatches(corpus, spec)
    start = time.perf_counter() - began
    alone = []
    for t in range(100):
        began = time.perf_counter()
        batches[t]
        alone.append(time.perf_counter() - began)
    fixed = batches[0]
    step(fixed)
    repeated, ahead, waited, count = 0.0, 0.0, 0.0, 0
    # In turns: the machine's own speed drifts.
    while repeated < seconds / 2:
        began = time.perf_counter()
        for _ in range(ROUND):
            step(fixed)
        repeated += time.perf_counter() - began
        with prefetch(batches, count, count + ROUND + 1) as upcoming:
            step(next(upcoming))
            began = time.perf_counter()
            for _ in range(ROUND):
                asked = time.perf_counter()
                batch = next(upcoming)
                waited += time.perf_counter() - asked
                step(batch)
            ahead += time.perf_counter() - began
        count += ROUND
    return [
        f"{start:.2f}",
        f"{statistics.median(alone) * 1e3:.2f}",
        f"{repeated / count * 1e3:.1f}",
        f"{waited / ahead:.2%}",
        f"{ahead / repeated - 1:+.1%}",
    ]


def main() -> None:
    """Measures and prints the table of a size, or of both."""
    parser = argparse.ArgumentParser(description="Times batches and the waiting for them.")
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--seconds", type=float, default=6.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        every = cases(pathlib.Path(folder))
        print("| size | case | start s | batch ms | step ms | waiting | slower |")
        print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
        for name in [arguments.size] if arguments.size else SIZES:
            step = Step(SIZES[name].step_ms)
            for label, case in every.items():
                spec = run_of(case, SIZES[name])
                corpus = load(spec.data, spec.objective)
                figures = measure(corpus, spec, step, arguments.seconds)
                print(f"| {name} | {label} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
