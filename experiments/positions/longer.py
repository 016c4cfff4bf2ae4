"""Measures the runs of a finished sweep of config.py on rows longer than those it trained on.

Command: python experiments/positions/longer.py --workdir runs/positions [--times 1,2,4]

For each arm at its chosen learning rate, `jtransformer evaluate --length` of every seed: the mean
loss over whole rows of the validation part, and a 95 % t interval over seeds.
"""

import argparse
import contextlib
import io
import json
from pathlib import Path

from jtransformer import cli, records, stats


def nll(run: Path, length: int) -> float:
    """Returns the validation loss of a run on rows of a length."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = cli.main(["evaluate", f"--workdir={run}", f"--length={length}", "--json"])
    if code:
        raise SystemExit(code)
    return json.loads(printed.getvalue())["nll"]


def table(workdir: Path, times: list[int]) -> str:
    """Returns a Markdown table: a row for each arm, a column for each length."""
    record = records.load_sweep(workdir)
    trained = record.manifest["base"]["data"]["length"]
    heading = [f"{count * trained} tokens" for count in times]
    lines = [f"| positions | {' | '.join(heading)} |", "| --- |" + " ---: |" * len(times)]
    for arm in stats.analyse(record).arms:
        assert arm.choice is not None, "the sweep is not finished"
        runs = [
            workdir / run.cell["directory"]
            for run in record.runs
            if run.cell["arm"] == arm.name and run.cell["nuisance"] == arm.choice.nuisance
        ]
        cells = [arm.name]
        for count in times:
            mean = stats.mean_estimate([nll(run, count * trained) for run in runs])
            within = "" if mean.half_width is None else f" ± {mean.half_width:.4f}"
            cells.append(f"{mean.value:.4f}{within}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Loss on rows longer than the trained ones.")
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--times", default="1,2,4")
    flags = parser.parse_args()
    print(table(flags.workdir, [int(count) for count in flags.times.split(",")]))
