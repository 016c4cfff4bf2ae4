"""How fast is a training step here and elsewhere, and how do its costs grow?

Question: how long does one update take here, in an idiomatic flax.linen model, in PyTorch eager and
compiled, in x-transformers and in transformers' GPT-2, at three sizes; which share of the machine's
matrix products is that; how does the update here grow with depth, width, length, batch and
vocabulary; how long does it compile, and what does it hold?

Command: python experiments/benchmarks/suite.py --out DIR [--rounds 3]
         [--only training,curves,compile,memory] [--sizes S,M,L] [--peers ours,linen,torch]
         [--python torch=/path/to/python]

It needs `pip install -e ".[experiments]"`. The others need `pip install torch x-transformers
transformers`, in this Python or in another one: `--python torch=PATH` is what runs all that needs
torch. A peer that is not there is named on the page and in the last line. Cost: about 10 minutes on
two cores with 3 rounds.

How it measures: on the CPU, in one process per peer, for each training size anew, all alive, one
working at a time, in an order that moves on by one in each round; a measurement is as many updates
as fill --seconds. Ratios are taken round by round. Every measurement is a line of
DIR/measurements.jsonl as soon as it is made; the same command goes on after an interruption, and
more rounds may be asked for. DIR/index.html is the page, and DIR/results.md the page as text.
Nothing else may run beside it: PyTorch's threads wait for each other, and where they share cores
with others they are slow beyond comparison.

Expected result: RESULT.md, beside this file.
"""

import argparse
import contextlib
import os
import pathlib
import shlex
import sys

from bench import compiling, curves, memory, page, training
from bench.bench import Bench, Plan, lacking
from bench.environment import commit, environment, moment
from bench.journal import Journal
from bench.peers import OURS, PEERS
from bench.sizes import SIZES, TINY

NAME = "measurements.jsonl"
PARTS = ("training", "curves", "compile", "memory")


def main(argv: list[str]) -> None:
    """Measures what is not there yet, and writes the page."""
    arguments = parse(argv)
    sizes = {name: ALL_SIZES[name] for name in arguments.sizes}
    names = arguments.peers if "training" in arguments.only else [OURS]
    if arguments.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    about = environment(len(os.sched_getaffinity(0))) | {"seconds": arguments.seconds}
    try:
        journal = Journal(arguments.out / NAME, about)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    journal.write("moment", when="before", **moment(), commit=commit())
    plan = Plan(arguments.rounds, arguments.seconds)
    bench = Bench(journal, names, arguments.python, plan)
    with contextlib.closing(bench):
        if OURS in bench.missing:
            raise SystemExit(lacking(bench.missing))
        if "training" in arguments.only:
            training.measure(bench, sizes)
        if "curves" in arguments.only:
            curves.measure(bench)
        if "compile" in arguments.only:
            compiling.measure(bench)
        if "memory" in arguments.only:
            memory.measure(bench)
    journal.write("moment", when="after", **moment(), commit=commit())
    command = shlex.join(["python", "experiments/benchmarks/suite.py", *argv])
    index = page.write(arguments.out, journal, ALL_SIZES, command, NAME)
    print("; ".join(filter(None, [f"wrote {index}", lacking(bench.missing)])))


ALL_SIZES = SIZES | {"tiny": TINY}


def parse(argv: list[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Measures training steps here and elsewhere.")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the results")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.7, help="of a measurement, at least")
    parser.add_argument("--cores", type=int, help="cores for all; every one if not given")
    parser.add_argument("--only", type=_names(PARTS), default=list(PARTS))
    parser.add_argument("--sizes", type=_names(ALL_SIZES), default=list(SIZES))
    parser.add_argument("--peers", type=_names(PEERS), default=list(PEERS))
    parser.add_argument(
        "--python", type=_pair, action="append", default=[], help="NEED=PATH, may be repeated"
    )
    arguments = parser.parse_args(argv)
    arguments.python = dict(arguments.python)
    if OURS not in arguments.peers:
        parser.error(f"--peers needs {OURS!r}, with which the others are compared")
    return arguments


def _names(allowed):
    def names(text: str) -> list[str]:
        found = text.split(",")
        if wrong := [name for name in found if name not in allowed]:
            raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(allowed)}")
        return found

    return names


def _pair(text: str) -> tuple[str, str]:
    need, separator, path = text.partition("=")
    needs = {need for peer in PEERS.values() for need in peer.needs}
    if not separator or need not in needs:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NEED=PATH with a need of {sorted(needs)}"
        )
    return need, path


if __name__ == "__main__":
    main(sys.argv[1:])
