"""Is each sublayer as fast as its counterparts elsewhere, forward and backward, on this CPU?

Question: how long do forward and backward pass of a sublayer take here, in flax.linen, in
Equinox and in PyTorch (eager), at three sizes?

Command: python experiments/benchmarks/sublayers.py [--rounds 15] [--cases attention,swiglu]

It needs `pip install equinox torch` beside the package. Cost: about 10 minutes on two cores.

How it measures: one process per library, all alive, one working at a time and in an order
drawn anew in each round; a measurement is the mean of as many passes as fill 50 ms. Outputs
and gradients are compared across the libraries first. What is printed is the median time here,
and for each library the median over the rounds of (its time / time here), with the quartiles:
above 1, the functions here are the faster ones.

Expected result: RESULT.md, beside this file.
"""

import argparse
import importlib
import json
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sublayer_cases import CASES, SIZES, inputs

LIBRARIES = ("jtransformer", "flax.linen", "equinox", "torch")
SECONDS = 0.05


def main() -> None:
    """Measures and prints one line per case and size."""
    parser = argparse.ArgumentParser(description="Times sublayers here and elsewhere.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--json", help="also write every measurement to this file")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    workers = {library: Worker(context, library) for library in LIBRARIES}
    print("| case | size | ms | " + " | ".join(f"{name} / here" for name in LIBRARIES[1:]) + " |")
    print("| --- | --- | ---: |" + " ---: |" * (len(LIBRARIES) - 1))
    measured = {}
    for case in arguments.cases.split(","):
        for size in arguments.sizes.split(","):
            seconds = measure(workers, case, size, arguments.rounds)
            measured[f"{case} {size}"] = seconds
            print(line(case, size, seconds), flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(measured, file)
    for worker in workers.values():
        worker.ask(None)


class Worker:
    """A process that runs one library; it sleeps until it is asked."""

    def __init__(self, context: Any, library: str):
        self.library = library
        self.here, there = context.Pipe()
        self.process = context.Process(target=serve, args=(library, there), daemon=True)
        self.process.start()

    def ask(self, request: Any) -> Any:
        """Sends a request and waits for its answer; None ends the process."""
        self.here.send(request)
        return None if request is None else self.here.recv()


def serve(library: str, pipe: Any) -> None:
    """Answers requests: a pair (case, size) prepares, a number runs so many passes."""
    run: Callable[[], tuple] = tuple
    while (request := pipe.recv()) is not None:
        if isinstance(request, tuple):
            case, size = request
            given = inputs(case, SIZES[size])
            if library == "torch":
                run = importlib.import_module("sublayers_in_torch").differentiated(case, given)
            else:
                run = importlib.import_module("sublayers_in_jax").differentiated(
                    library, case, given
                )
            pipe.send(summary(run()))
        else:
            began = time.perf_counter()
            for _ in range(request):
                run()
            pipe.send((time.perf_counter() - began) / request)


def summary(results: tuple) -> list[np.ndarray | float]:
    """Output, gradient of the input, and the length of all gradients of parameters together."""
    out, by_x, by_parameters = results
    leaves = importlib.import_module("jax").tree.leaves(by_parameters)
    squares = sum(float(np.square(np.asarray(leaf, np.float64)).sum()) for leaf in leaves)
    return [np.asarray(out), np.zeros(1) if by_x is None else np.asarray(by_x), squares**0.5]


def measure(
    workers: dict[str, Worker], case: str, size: str, rounds: int
) -> dict[str, list[float]]:
    """Returns the seconds of each round, by library."""
    reference = None
    for library, worker in workers.items():
        found = worker.ask((case, size))
        reference = reference or found
        for mine, theirs in zip(reference, found, strict=True):
            np.testing.assert_allclose(theirs, mine, rtol=1e-3, atol=1e-3, err_msg=library)
    counts = {}
    for library, worker in workers.items():
        worker.ask(2)
        counts[library] = max(1, round(SECONDS / worker.ask(3)))
    seconds: dict[str, list[float]] = {library: [] for library in workers}
    for _ in range(rounds):
        for library in random.sample(list(workers), len(workers)):
            seconds[library].append(workers[library].ask(counts[library]))
    return seconds


def line(case: str, size: str, seconds: dict[str, list[float]]) -> str:
    """One row of the table."""
    here = seconds["jtransformer"]
    cells = [case, size, f"{1e3 * statistics.median(here):.2f}"]
    for library in LIBRARIES[1:]:
        ratios = [theirs / mine for theirs, mine in zip(seconds[library], here, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        cells.append(f"{middle:.2f} ({low:.2f}–{high:.2f})")
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
