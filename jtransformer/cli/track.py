"""Shows runs in TensorBoard or Weights & Biases; again adds what is new, also while they train.

usage: jtransformer track --workdir DIR --to TRACKER [flags]

Rows of metrics are read from the records of a sweep or of a single run, and each is given to the
tracker once, however often the command is run and wherever it is killed. A run is known by its
fingerprint, and has the settings of its arm, its tuned settings and its seed as its configuration.

  --to TRACKER   tensorboard: look at them by tensorboard --logdir DIR/tensorboard
                 wandb: W&B's offline runs; upload them, again where rows have been added, by
                 wandb sync DIR/wandb/offline-run-*
  --into DIR     where the tracker's files are (DIR/tensorboard or DIR/wandb of the work directory)
  --json         print one JSON object

example: jtransformer track --workdir runs/norm_and_ffn --to tensorboard
"""

import json
from pathlib import Path

from absl import flags

from jtransformer.cli.arguments import read_flags
from jtransformer.spec import SpecError
from jtransformer.trackers import check_tracker, feed


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    workdir = Path(values.workdir).expanduser()
    into = tracker_directory(workdir, values.to, values.into)
    try:
        added = feed(workdir, values.to, into)
    except FileNotFoundError as error:
        raise SpecError("--workdir", str(error)) from None
    if values.json:
        print(json.dumps({"rows": added, "into": str(into)}))
    else:
        print(f"{added} rows added to {into}")
    return 0


def tracker_directory(workdir: Path, to: str, into: str | None) -> Path:
    """Returns where a tracker's files are, once it is known that it can be fed.

    Raises:
        SpecError: If the tracker is unknown, or its package is missing.
    """
    try:
        check_tracker(to)
    except ValueError as error:
        raise SpecError("", str(error)) from None
    return workdir / to if into is None else Path(into).expanduser()


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("workdir", "to", "into"):
        flags.DEFINE_string(name, None, name, flag_values=values)
    flags.DEFINE_bool("json", False, "json", flag_values=values)
    read_flags(values, argv, stray="write --workdir DIR --to TRACKER")
    for name, example in (("workdir", "DIR"), ("to", "TRACKER")):
        if not getattr(values, name):
            raise SpecError(f"--{name}", f"is missing; add --{name} {example}.")
    return values
