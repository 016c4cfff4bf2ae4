"""Starts runs from another one in every mode of execution: run by `meshed.in_eight_devices`.

Argument: an empty directory. Prints, of each, hashes of its initial values and its first loss.
"""

import dataclasses
import json
import pathlib
import sys

import tiny_run
from quickly import quickly

from jtransformer import records
from jtransformer.spec import Layout
from jtransformer.training import LOOP, Execution, Program, Trainer, arrange, program_key

ROOT = pathlib.Path(sys.argv[1])
SOURCE = tiny_run.run_spec(ROOT, steps=4, evaluate_every=4, checkpoint_every=4)
DEEP = dataclasses.replace(SOURCE.model, scan_layers=True, layers=2)
SPEC = dataclasses.replace(SOURCE, model=DEEP, seed=3, start_from=str(ROOT / "source"))
LAYOUT = Layout(fsdp=2, tensor=2)
MODES = {
    "loop": LOOP,
    "mesh": Execution.over_devices("mesh", LAYOUT, 8),
    "pmap": Execution.over_devices("pmap", None, 2),
    "spread": Execution(mode="spread", runs_at_once=2, devices=2),
}
PROGRAMS = {
    (program_key(SOURCE), None): Program(SOURCE, quickly),
    (program_key(SPEC), None): Program(SPEC, quickly),
    (program_key(SPEC), LAYOUT): Program(SPEC, quickly, arrange(LAYOUT)),
}


def started(spec, name, execution):
    """Trains a run; returns what it started with, and the loss before and behind training."""
    trainer = Trainer()
    trainer._programs = PROGRAMS
    status = trainer.train(spec, ROOT / name, execution)
    initial = status["pairing"]["initial"]
    rows = records.read_rows(records.RunFiles(ROOT / name).metrics)
    about = records.read_json(records.RunFiles(ROOT / name).spec)
    return {
        "initial": {path: [each["hash"], each["initialiser"]] for path, each in initial.items()},
        "losses": [row["train_nll"] for row in rows],
        "start": about.get("start"),
    }


def main():
    started(SOURCE, "source", LOOP)
    found = {name: started(SPEC, name, execution) for name, execution in MODES.items()}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
