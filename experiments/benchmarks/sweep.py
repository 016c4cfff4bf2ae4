"""What does a sweep take, beside a process per run and beside a PyTorch script per run?

Question: how long do 6 arms x 2 learning rates x 3 seeds of 100 updates take, from the command to
the page, in one process and with two workers, beside the same code in a fresh process for every
run (one at a time, and two), as a generic launcher would start it, and beside a plain PyTorch
training script of the same models? And what does a run cost as seeds are added? The aims are
5 times, 3 times and 1.7 times.

Command: python experiments/benchmarks/sweep.py [--rounds 3] [--seeds 3] [--steps 100] [--cores N]

It needs `pip install torch` beside the package. Cost: about 12 minutes a round on two cores, and 3
more for the scaling.

How it measures: decoders over characters of English, 2 layers, D = 64, 4 heads, T = 64, B = 16,
V = 128, of equal size. In a round every way makes all runs, in an order drawn anew; nothing is
left of the round before, compiled programs neither. A way's time is the wall time of all its
processes; that of the sweep has the statistics and the page in it. The runs in processes of
their own must end with the losses of the sweep, to the bit; those of PyTorch have other initial
values and batches, and their mean is printed beside the others'. What is printed is the median
with the quartiles, and the same of the ratios to each way of the sweep, taken round by round.

Expected result: RESULT.md, beside this file.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from jtransformer import data, records
from jtransformer.spec import to_tree
from jtransformer.sweep import cell_spec

HERE = pathlib.Path(__file__).parent
SWEEP, WORKERS = "sweep, one process", "sweep, two workers"
ONE, TWO, TORCH = "process per run", "the same, two at a time", "PyTorch script per run"
CONFIG = '''"""The reference sweep of the benchmark."""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    config = to_config(presets.decoder_lm(width=64, layers=2))
    config.model.vocabulary = 128
    config.model.scale_embedding = True
    config.data.tokenizer.kind = "characters"
    config.data.length = 64
    config.data.validation_fraction = config.data.test_fraction = 0.005
    config.training.batch_size = 16
    config.training.steps = {steps}
    config.schedule.warmup_cosine.warmup_steps = {warmup}
    return config


def get_sweep():
    return dict(
        scientific={scientific!r},
        nuisance={{"optimizer.learning_rate": {rates!r}}},
        seeds=tuple(range({seeds})),
        match=dict(equal="parameters", by="model.ffn_width", multiple_of=2, tolerance=0.01),
        metric="validation/nll",
    )
'''
RUN = '''"""One run."""

import json
import pathlib

from jtransformer.config import to_config
from jtransformer.spec import from_tree


def get_config():
    return to_config(from_tree(json.loads(pathlib.Path({path!r}).read_text())))
'''
ARMS = {"model.norm_placement": ("pre", "post"), "model.ffn": ("relu", "gelu", "swiglu")}
RATES = (2.5e-3, 1e-2)


def main() -> None:
    """Measures and prints both tables."""
    parser = argparse.ArgumentParser(description="Times a sweep, and what else makes its runs.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ffns", default=",".join(ARMS["model.ffn"]), help="with gelu")
    parser.add_argument(
        "--scaling", default="1,2,4,8,16", help="numbers of seeds; '' leaves it out"
    )
    parser.add_argument("--cores", type=int, help="cores for all; every one if not given")
    parser.add_argument("--json", help="also write every measurement to this file")
    arguments = parser.parse_args()
    if arguments.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    scientific = ARMS | {"model.ffn": tuple(arguments.ffns.split(","))}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(folder), scientific, arguments.steps, arguments.seeds)
        measured: dict[str, Any] = {"ways": bench.compare(arguments.rounds)}
        print_ways(measured["ways"])
        for way in (WORKERS, ONE, TWO):
            for ours, theirs in zip(measured["ways"][SWEEP], measured["ways"][way], strict=True):
                assert ours["losses"] == theirs["losses"], f"{way}: other losses"
        counts = [int(count) for count in filter(None, arguments.scaling.split(","))]
        measured["seeds"] = scaling(pathlib.Path(folder), arguments.steps, counts)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(measured))


class Bench:
    """The runs of the reference sweep, and four ways to make them."""

    def __init__(self, folder: pathlib.Path, scientific: dict, steps: int, seeds: int):
        self.folder, self.count = folder, 0
        self.config = folder / "config.py"
        write_config(self.config, scientific, RATES, steps, seeds)
        planned = folder / "planned"
        command("sweep", self.config, planned, "--workers", "0")
        manifest = records.load_manifest(planned)
        assert manifest is not None
        self.directories = [cell["directory"] for cell in manifest["cells"]]
        specs = [cell_spec(manifest, cell) for cell in manifest["cells"]]
        self.runs = []
        for number, spec in enumerate(specs):
            path = folder / f"run{number}.json"
            path.write_text(json.dumps(to_tree(spec)))
            config = folder / f"run{number}.py"
            config.write_text(RUN.format(path=str(path)))
            self.runs.append((path, config))
        corpus: Any = data.load(specs[0].data)
        for name in ("train", "validation", "test"):
            np.save(folder / f"{name}.npy", np.asarray(getattr(corpus, name).ids))

    def compare(self, rounds: int) -> dict[str, list[dict[str, Any]]]:
        """Returns seconds and losses of each way, round by round."""
        ways: dict[str, Callable[[], list[float]]] = {
            SWEEP: self.by_sweep,
            WORKERS: lambda: self.by_sweep("--workers", "2"),
            ONE: lambda: self.by_processes(1),
            TWO: lambda: self.by_processes(2),
            TORCH: self.by_torch,
        }
        found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way in random.sample(list(ways), len(ways)):
                began = time.perf_counter()
                losses = ways[way]()
                seconds = time.perf_counter() - began
                found[way].append({"seconds": seconds, "losses": losses})
                print(f"{way}: {seconds:.1f} s", flush=True)
        return found

    def fresh(self) -> pathlib.Path:
        self.count += 1
        return self.folder / f"fresh{self.count}"

    def by_sweep(self, *rest: str) -> list[float]:
        workdir = self.fresh()
        command("sweep", self.config, workdir, "--mode", "loop", *rest)
        return [loss_of(workdir / directory) for directory in self.directories]

    def by_processes(self, at_once: int) -> list[float]:
        root = self.fresh()

        def run(number: int) -> float:
            workdir = root / str(number)
            command("train", self.runs[number][1], workdir)
            return loss_of(workdir)

        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(run, range(len(self.runs))))

    def by_torch(self) -> list[float]:
        script = str(HERE / "sweep_in_torch.py")
        return [
            float(output([sys.executable, script, str(path), str(self.folder)]).splitlines()[-1])
            for path, _ in self.runs
        ]


def scaling(folder: pathlib.Path, steps: int, counts: list[int]) -> dict[int, float]:
    """Prints what a run costs in sweeps of two arms and one rate, by the number of seeds."""
    found = {}
    if counts:
        print("\n| seeds | runs | seconds | seconds per run |\n| ---: | ---: | ---: | ---: |")
    for seeds in counts:
        config = folder / f"seeds{seeds}.py"
        write_config(config, {"model.ffn": ("gelu", "swiglu")}, RATES[:1], steps, seeds)
        began = time.perf_counter()
        command("sweep", config, folder / f"seeds{seeds}", "--mode", "loop")
        seconds = found[seeds] = time.perf_counter() - began
        print(
            f"| {seeds} | {2 * seeds} | {seconds:.1f} | {seconds / (2 * seeds):.2f} |", flush=True
        )
    return found


def write_config(
    path: pathlib.Path, scientific: dict, rates: tuple[float, ...], steps: int, seeds: int
) -> None:
    """Writes a config file."""
    warmup = max(1, steps // 10)
    path.write_text(
        CONFIG.format(scientific=scientific, rates=rates, steps=steps, warmup=warmup, seeds=seeds)
    )


def command(name: str, config: pathlib.Path, workdir: pathlib.Path, *rest: str) -> None:
    """Runs a command of jtransformer in a process of its own."""
    argv = [sys.executable, "-m", "jtransformer", name]
    output([*argv, "--config", str(config), "--workdir", str(workdir), *rest])


def output(argv: list[str]) -> str:
    """Returns what a command prints; what it says on stderr is shown where it fails."""
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{argv} failed:\n{done.stderr}")
    return done.stdout


def loss_of(directory: pathlib.Path) -> float:
    """Returns the validation loss of a run."""
    return records.read_json(records.RunFiles(directory).status)["result"]["validation_nll"]


def print_ways(found: dict[str, list[dict[str, Any]]]) -> None:
    """Prints the table of the ways."""
    print("| way | seconds | / one process | / two workers | mean validation loss |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for way, rounds in found.items():
        seconds = [one["seconds"] for one in rounds]
        ratios = [
            spread([o["seconds"] / s["seconds"] for o, s in zip(rounds, found[by], strict=True)], 2)
            for by in (SWEEP, WORKERS)
        ]
        loss = statistics.mean(rounds[-1]["losses"])
        cells = [way, spread(seconds, 1), *ratios, f"{loss:.3f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def spread(values: list[float], digits: int) -> str:
    """Returns the median, with the quartiles where there are several values."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


if __name__ == "__main__":
    main()
