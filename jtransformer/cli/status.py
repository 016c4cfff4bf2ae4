"""Says how many runs of a sweep are done, diverged, failed, running, interrupted or pending.

usage: jtransformer status --workdir DIR [--json]

Below the counts stands why each failed run failed. --json prints the counts as one JSON object.

example: jtransformer status --workdir runs/norm_and_ffn
"""

import collections
import json
from pathlib import Path

from jtransformer import records
from jtransformer.cli.arguments import parse
from jtransformer.spec import SpecError
from jtransformer.sweep import is_worked_on

STATES = ("done", "diverged", "failed", "running", "interrupted", "pending")


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    flags = parse(argv, takes_config=False, switches=("json",))
    workdir = Path(flags.workdir).expanduser()
    try:
        sweep = records.load_sweep(workdir)
    except FileNotFoundError as error:
        raise SpecError("--workdir", str(error)) from None
    states = [_state(workdir, run) for run in sweep.runs]
    counts = collections.Counter(states)
    shown = {state: counts[state] for state in STATES}
    if flags.json:
        print(json.dumps(shown))
        return 0
    print(
        ", ".join(f"{count} {state}" for state, count in shown.items()),
        f"of {len(sweep.runs)} runs",
    )
    for record, state in zip(sweep.runs, states, strict=True):
        if record.failure is not None and state == "failed":
            tried = record.failure.get("attempts", 1)
            times = f" ({tried} times)" if tried > 1 else ""
            print(f"failed{times}: {record.cell['directory']}: {record.failure['error']}")
    return 0


def _state(workdir: Path, run: records.RunRecord) -> str:
    """Returns what a run is said to be in: what was begun runs only while a worker holds it."""
    if run.status is None and is_worked_on(workdir / run.cell["directory"]):
        return "running"
    return "interrupted" if run.state == "running" else run.state
