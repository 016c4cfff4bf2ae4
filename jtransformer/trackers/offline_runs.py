"""Weights & Biases: one offline run for each run, which `wandb sync` uploads.

W&B cannot resume a run while it is offline (https://github.com/wandb/wandb/issues/4624), and of
two directories that have one id the later upload replaces the earlier one
(https://github.com/wandb/wandb/issues/3841). So there is one directory for each run, which always
holds all of it: where there is something new, a whole one is made aside and takes its place. It
counts as not yet uploaded, and uploading it again replaces what W&B has by the same rows and more.
A kill leaves the old one, the new one, or none, which the next call makes.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from jtransformer import records
from jtransformer.trackers.runs import Fed, TrackedRun, figures

ASIDE = ".feeding-"


def add(run: TrackedRun, into: Path) -> int:
    """Makes the offline run of a run again if it lacks something.

    Args:
        run: The run.
        into: Where the directories of offline runs are.

    Returns:
        How many rows it lacked.
    """
    # What a kill has left; nobody else is at work here.
    for left in into.glob(f"{ASIDE}*"):
        shutil.rmtree(left, ignore_errors=True)
    present = sorted(into.glob(f"offline-run-*-{run.identity}"))
    fed = max((_fed(path) for path in present), default=Fed())
    if not run.is_news(fed):
        return 0
    aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=into))
    made = _make(run, aside)
    records.write_json(made / "fed.json", run.known._asdict())
    for number, path in enumerate(present):
        path.rename(aside / f"replaced-{number}")
    made.rename(into / made.name)
    shutil.rmtree(aside, ignore_errors=True)
    return sum(row["step"] > fed.step for row in run.rows)


def _fed(path: Path) -> Fed:
    about = records.read_json(path / "fed.json")
    return Fed(about["step"], about["state"])


def _make(run: TrackedRun, aside: Path) -> Path:
    """Writes an offline run and returns its directory."""
    import wandb

    settings = wandb.Settings(
        mode="offline",
        root_dir=str(aside),
        silent=True,
        console="off",
        disable_git=True,
        save_code=False,
        # What W&B would find out about this process is not about the run.
        x_disable_meta=True,
        x_disable_stats=True,
    )
    about: dict[str, Any] = dict(id=run.identity, name=run.name, project=run.project, group=run.arm)
    with wandb.init(config=run.config, settings=settings, **about) as shown:
        for row, seconds in zip(run.rows, run.seconds, strict=True):
            shown.log(figures(row) | {"_timestamp": seconds}, step=row["step"])
        shown.summary.update({"state": run.state, **figures(run.result)})
        (made,) = (aside / "wandb").glob(f"offline-run-*-{run.identity}")
    return made
