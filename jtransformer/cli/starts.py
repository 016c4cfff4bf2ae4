"""What the runs of a sweep start from, known before any is trained.

To read parameters JAX has to begin, and then holds the memory of an accelerator that workers need,
with as many threads as it was told by then. So another process reads them, on its CPU, and says
what there is: `python -m jtransformer.cli.starts DIRECTORY`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from jtransformer import accounting
from jtransformer.accounting.leaves import ANY_LAYER
from jtransformer.cli.main import outcome, quiet_libraries
from jtransformer.spec import ModelSpec, RunSpec, SpecError
from jtransformer.sweep import Plan


class Starts:
    """What runs start from, each directory read once."""

    def __init__(self):
        self._origins: dict[str, Any] = {}
        self._taken: dict[tuple[str, ModelSpec, str], dict[str, Any]] = {}

    def sha256(self, spec: RunSpec) -> str | None:
        """Returns the hash of what a run starts from; None where it starts anew.

        Raises:
            SpecError: If that cannot be read.
        """
        return None if spec.start_from is None else self._origin(spec.start_from).sha256

    def taken_over(self, spec: RunSpec, tokenizer_sha256: str) -> dict[str, Any] | None:
        """Returns what a run takes over; see `training.taken_over`.

        Raises:
            SpecError: If it takes nothing, or its ids stand for something else.
        """
        if spec.start_from is None:
            return None
        from jtransformer.training import taken_over

        key = spec.start_from, spec.model, tokenizer_sha256
        if key not in self._taken:
            shapes = dict(_shapes(spec.model))
            origin = self._origin(spec.start_from)
            self._taken[key] = taken_over(origin, spec.model, shapes, tokenizer_sha256)
        return self._taken[key]

    def of_arms(self, plan: Plan, tokenizer_sha256: str) -> dict[str, dict[str, Any]]:
        """Returns what each arm takes over; those that start anew are left out."""
        found = {arm.name: self.taken_over(arm.spec, tokenizer_sha256) for arm in plan.arms}
        return {name: start for name, start in found.items() if start is not None}

    def _origin(self, directory: str) -> Any:
        if directory not in self._origins:
            self._origins[directory] = _looked_at(directory)
        return self._origins[directory]


def _shapes(model: ModelSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    for leaf in accounting.leaves(model):
        for layer in range(leaf.first, leaf.first + leaf.copies):
            yield leaf.path.replace(ANY_LAYER, f"layer_{layer}"), leaf.shape


def _looked_at(directory: str) -> Any:
    """Has another process read what there is to start from."""
    from jtransformer.training import Origin

    done = subprocess.run(
        [sys.executable, "-m", "jtransformer.cli.starts", directory],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    *_, last = ["", *done.stdout.splitlines()]
    try:
        said = json.loads(last)
    except ValueError:
        *_, reason = ["no word", *done.stderr.splitlines()]
        raise SpecError(
            "start_from", f"= {directory!r} cannot be read: its reader ended ({reason})."
        ) from None
    if "sentence" in said:
        raise SpecError("", said["sentence"])
    return Origin(**said)


def main() -> None:
    """Reads a directory, and prints what there is or why it cannot be used."""
    quiet_libraries()

    def read() -> int:
        from jtransformer.training import read_start

        print(json.dumps(read_start(sys.argv[1]).origin._asdict()))
        return 0

    code, sentence = outcome(read)
    if sentence is not None:
        print(json.dumps({"sentence": sentence}))
    sys.exit(code)


if __name__ == "__main__":
    main()
