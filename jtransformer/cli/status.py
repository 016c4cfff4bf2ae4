"""Says how many runs of a sweep are done, diverged, failed, running or pending.

usage: jtransformer status --workdir DIR [--json]

example: jtransformer status --workdir runs/norm_and_ffn
"""

import collections
import json
from pathlib import Path

from jtransformer import records
from jtransformer.cli.arguments import parse
from jtransformer.spec import SpecError

STATES = ("done", "diverged", "failed", "running", "pending")


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    flags = parse(argv, takes_config=False, switches=("json",))
    try:
        sweep = records.load_sweep(Path(flags.workdir))
    except FileNotFoundError as error:
        raise SpecError("--workdir", str(error)) from None
    counts = collections.Counter(run.state for run in sweep.runs)
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
