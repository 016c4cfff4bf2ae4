"""Trains runs on one device, over a mesh and by `jax.pmap`: run by `meshed.in_eight_devices`.

Argument: an empty directory. Prints the rows of metrics of each, and what they say of themselves.
"""

import contextlib
import json
import pathlib
import sys

import tiny_run
from quickly import quickly

from jtransformer import records
from jtransformer.cli.group_trainer import GroupTrainer
from jtransformer.cli.layouts import unused_devices
from jtransformer.spec import Layout
from jtransformer.sweep import Launch
from jtransformer.training import (
    LOOP,
    Execution,
    Hooks,
    Interrupted,
    Program,
    Trainer,
    arrange,
    program_key,
)

ROOT = pathlib.Path(sys.argv[1])
SPEC = tiny_run.run_spec(ROOT, batch_size=5, probe_steps=(4,))
LAYOUT = Layout(fsdp=2, tensor=2)
MESH = Execution.over_devices("mesh", LAYOUT, 8)
PROGRAMS = {
    (program_key(SPEC), None): Program(SPEC, quickly),
    (program_key(SPEC), LAYOUT): Program(SPEC, quickly, arrange(LAYOUT)),
}


def trainer_of(**hooks):
    trainer = Trainer(Hooks(**hooks))
    trainer._programs = PROGRAMS
    return trainer


def train(name, execution, **hooks):
    trainer_of(**hooks).train(SPEC, ROOT / name, execution)


def train_by_launch(name):
    """As a worker of a sweep does: the execution is plain data in between."""
    trains = GroupTrainer(Hooks(), Launch(mode="mesh", mesh="fsdp=2, tensor=2"))
    trains._trainer = trainer_of()
    record = trains.choose(SPEC, runs=1, updates=10)
    with contextlib.closing(trains.train_group([(SPEC, ROOT / name)], record)) as ended:
        assert [one.error for one in ended] == [None]
    return record


def main():
    train("loop", LOOP)
    train("mesh", MESH)
    train("pmap", Execution.over_devices("pmap", Layout(data=4), 8))
    with contextlib.suppress(Interrupted):
        train("again", MESH, should_stop=tiny_run.stop_after(4))
    assert not records.RunFiles(ROOT / "again").status.exists()
    train("again", MESH)
    found = {"execution": train_by_launch("launched"), "runs": {}}
    for name in ("loop", "mesh", "pmap", "again", "launched"):
        files = records.RunFiles(ROOT / name)
        probed = records.read_json(files.probe(4))
        found["runs"][name] = {
            "mode": records.read_json(files.environment)["mode"],
            "run": tiny_run.deterministic(ROOT / name),
            "probed": [probed["loss"], probed["outside"]]
            + [[one["gradient_norm"], one["stream"]] for one in probed["stacks"].values()],
        }
    found["said"] = [unused_devices(one) for one in (LOOP, MESH, Execution.over_devices(
        "mesh", None, 8))]  # fmt: skip
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
