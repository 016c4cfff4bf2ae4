"""TensorBoard: one directory a run with one file of events, to which rows are appended.

Beside it stands how many bytes of it are valid, replaced atomically behind every addition. What a
kill has left beyond those is cut off by the next addition, which then writes the same rows again.
A TensorBoard that is open meanwhile goes on reading, since the bytes it has read stay as they are.

TensorBoard keeps numbers in single precision; the records have all digits.

Source: TensorFlow, tensorflow/core/util/event.proto, and tensorflow/core/lib/io/record_writer.h
(the form of a record), both written by tensorboardX.
"""

import os
from pathlib import Path
from typing import Any, cast

from jtransformer import records
from jtransformer.trackers.runs import Fed, TrackedRun, figures

SHOWN_BESIDE_SETTINGS = ("validation_nll", "test_nll")
"""Figures that TensorBoard's table of settings has columns for."""


def add(run: TrackedRun, into: Path) -> int:
    """Adds the rows of a run that its file of events lacks.

    Args:
        run: The run.
        into: TensorBoard's directory; the run is `into / run.name`.

    Returns:
        How many rows were added.
    """
    directory = into / run.name
    path, fed_path = directory / f"events.out.tfevents.{run.identity}", directory / "fed.json"
    fed, valid = Fed(), 0
    if fed_path.exists() and path.exists():
        about = records.read_json(fed_path)
        if path.stat().st_size >= about["bytes"]:
            fed, valid = Fed(about["step"], about["state"]), about["bytes"]
    if not run.is_news(fed):
        return 0
    directory.mkdir(parents=True, exist_ok=True)
    events = _events(run, fed)
    content = _framed(events, directory / ".events")
    with open(path, "r+b" if path.exists() else "w+b") as file:
        file.truncate(valid)
        file.seek(valid)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    about = {"bytes": valid + len(content), **run.known._asdict()}
    records.write_json(fed_path, about)
    return sum(row["step"] > fed.step for row in run.rows)


def _events(run: TrackedRun, fed: Fed) -> list[Any]:
    """Returns what is new: the settings before the first row, and the test loss behind the last."""
    from tensorboardX.proto import event_pb2
    from tensorboardX.summary import hparams, scalar

    Event = cast(Any, event_pb2).Event  # A class that is made when its module is imported.
    found = []
    if fed == Fed():
        found.append(Event(wall_time=run.seconds[0], file_version="brain.Event:2"))
        settings, metrics = run.config, dict.fromkeys(SHOWN_BESIDE_SETTINGS)
        experiment, session, _ = hparams(_plain(settings), metrics)
        found += [Event(wall_time=run.seconds[0], summary=part) for part in (experiment, session)]
    for row, seconds in zip(run.rows, run.seconds, strict=True):
        if row["step"] > fed.step:
            found += [
                Event(wall_time=seconds, step=row["step"], summary=scalar(name, value))
                for name, value in figures(row).items()
            ]
    if run.result.get("test_nll") is not None:
        last = dict(wall_time=run.seconds[-1], step=run.rows[-1]["step"])
        found.append(Event(summary=scalar("test_nll", run.result["test_nll"]), **last))
    return found


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings with the values that TensorBoard has a type for; others as text."""
    return {
        path: value if isinstance(value, str | int | float) else str(value)
        for path, value in settings.items()
    }


def _framed(events: list[Any], scratch: Path) -> bytes:
    """Returns events as TensorBoard reads them; tensorboardX writes that to files alone."""
    from tensorboardX import RecordWriter

    writer = RecordWriter(str(scratch))
    for event in events:
        writer.write(event.SerializeToString())
    writer.close()
    content = scratch.read_bytes()
    scratch.unlink()
    return content
