"""Does a run take the memory that `jtransformer compile` says?

Question: how far is the memory that the real update of a run adds to a process from what
`jtransformer compile --topology local` reports for the same run, on one CPU device and on a mesh of
eight CPU devices in one process? The aim is 10 %.

Command: python experiments/benchmarks/compile_memory.py

Cost: about three minutes and 3 GB of memory on two cores. Every figure is from a process of its
own. What is measured is the highest resident memory of the updates, less the resident memory once
all is imported and the programs are compiled, before the run has any array. The compiler's own
memory would be in the way: it is behind both figures, since the highest one (VmHWM) is reset
before the updates by /proc/self/clear_refs (so on Linux alone), and the allocator is told to give
back what is freed (MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_). With programs read from
JAX's compile cache the figures were the same within 1 %.

Expected result: ../scale/RESULT.md.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

UPDATES = 3
LAYOUTS = {
    "1 device": "data=1",
    "8 devices, rows and parameters": "fsdp=8",
    "8 devices, rows, parameters and heads": "fsdp=4, tensor=2",
}


def run_spec() -> Any:
    """A decoder of 49 million parameters: 0.6 GB of state, about 1 GB with all else."""
    from jtransformer.spec import DataSpec, ModelSpec, RunSpec, TrainingSpec

    model = ModelSpec(
        vocabulary=8192, width=768, layers=6, heads=12, ffn_width=3072, scan_layers=True
    )
    return RunSpec(model=model, data=DataSpec(length=128), training=TrainingSpec(batch_size=8))


def resident(name: str) -> int:
    """Returns "VmRSS" or "VmHWM" of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(name)]
    return 1024 * int(line.split()[1])


def forget_the_highest() -> None:
    """Makes the highest resident memory the present one."""
    Path("/proc/self/clear_refs").write_text("5")


def reported(layout: str) -> int:
    """Returns what the report says for all devices together, in bytes."""
    from jtransformer import ahead
    from jtransformer.spec import Layout

    parsed = Layout.parse(layout)
    local = ahead.topology(ahead.LOCAL)
    report = ahead.compile_run(run_spec(), local, parsed, what=("train",))
    return parsed.devices * report.programs["train"].memory.total


def measured(layout: str) -> dict[str, int]:
    """Makes updates and returns the bytes that they add, in all and to what the state adds."""
    import jax

    from jtransformer.data import blank_batch
    from jtransformer.spec import Layout
    from jtransformer.training import (
        Program,
        arrange,
        dropout_key,
        hyperparameters,
        parameter_key,
    )

    spec, parsed = run_spec(), Layout.parse(layout)
    program = Program(spec, arrangement=arrange(parsed) if parsed.devices > 1 else None)
    batch = blank_batch(spec)
    start = program.start.lower(parameter_key(spec.seed)).compile()
    update = program.update.lower(*program.abstract(batch)).compile()
    numbers = program.place_whole((hyperparameters(spec), dropout_key(spec)))
    imported = resident("VmRSS")
    state = jax.block_until_ready(start(parameter_key(spec.seed)))
    held = resident("VmRSS")
    forget_the_highest()
    for _ in range(UPDATES):
        state = jax.block_until_ready(update(state, program.place_batch(batch), *numbers))
    highest = resident("VmHWM")
    return {"imported": imported, "state": held - imported, "added": highest - imported}


def child(part: str, layout: str) -> Any:
    """Runs one part in a process of its own and returns what it prints."""
    flags = f"--xla_force_host_platform_device_count={1 if layout == 'data=1' else 8}"
    own = {
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "XLA_FLAGS": flags,
        "MALLOC_MMAP_THRESHOLD_": str(2**16),
        "MALLOC_TRIM_THRESHOLD_": str(2**16),
    }
    command = [sys.executable, __file__, "--part", part, "--layout", layout]
    done = subprocess.run(
        command, env=os.environ | own, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Compares and prints one line per layout."""
    parser = argparse.ArgumentParser(description="Compares reported with measured memory.")
    parser.add_argument("--part", choices=("reported", "measured"))
    parser.add_argument("--layout")
    arguments = parser.parse_args()
    if arguments.part:
        print(
            json.dumps(
                {"reported": reported, "measured": measured}[arguments.part](arguments.layout)
            )
        )
        return
    print("| devices | layout | reported, MiB | measured, MiB | measured / reported | state, MiB |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name, layout in LAYOUTS.items():
        said, found = child("reported", layout), child("measured", layout)
        print(
            f"| {name} | {layout} | {said / 2**20:.0f} | {found['added'] / 2**20:.0f} "
            f"| {found['added'] / said:.3f} | {found['state'] / 2**20:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
