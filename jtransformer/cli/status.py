"""Says how many runs of a sweep are done, diverged, failed, running, interrupted or pending.

usage: jtransformer status --workdir DIR [--json]

example: jtransformer status --workdir runs/norm_and_ffn
"""

import collections
import json
from pathlib import Path

from jtransformer import records
from jtransformer.cli.arguments import parse
from jtransformer.cli.preflight import is_locked
from jtransformer.spec import SpecError

STATES = ("done", "diverged", "failed", "running", "interrupted", "pending")


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    flags = parse(argv, takes_config=False, switches=("json",))
    workdir = Path(flags.workdir).expanduser()
    try:
        sweep = records.load_sweep(workdir)
    except FileNotFoundError as error:
        raise SpecError("--workdir", str(error)) from None
    # A run that was begun is running only while a process holds the directory.
    begun = "running" if is_locked(workdir) else "interrupted"
    counts = collections.Counter(
        begun if run.state == "running" else run.state for run in sweep.runs
    )
    shown = {state: counts[state] for state in STATES}
    if flags.json:
        print(json.dumps(shown))
        return 0
    print(
        ", ".join(f"{count} {state}" for state, count in shown.items()),
        f"of {len(sweep.runs)} runs",
    )
    for record in sweep.runs:
        if record.failure is not None and record.state == "failed":
            print(f"failed: {record.cell['directory']}: {record.failure['error']}")
    return 0
