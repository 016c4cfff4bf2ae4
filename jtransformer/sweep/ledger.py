"""Who works on which run: claims in the runs' directories, on any file system that workers share.

A claim is a file `claims/N.json`; the highest N owns the run. Claims are created exclusively, so
that of many workers exactly one takes a run, and are never removed or renamed: to take over is to
create N + 1. An owner renews its file every quarter of a lease. It is superseded at once where its
process is seen to be gone; elsewhere after an observer has seen the same file for a whole lease
by its own clock, since the clocks of two hosts cannot be compared.

An owner that was paused may wake up after that. So it asks `Claim.held` before it writes, which
looks at the disk if the last renewal is older than the lease, and the new owner waits for half a
lease before it begins: by then the other has tried to renew and seen the higher number.

Source: Gray and Cheriton 1989 (leases), sec. 2, https://doi.org/10.1145/74851.74870; the number
of a claim is the fencing token of Kleppmann 2017, "Designing Data-Intensive Applications", ch. 8.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jtransformer import records
from jtransformer.sweep.processes import is_gone, this_process

LEASE_SECONDS = 60.0
"""How long an owner may be silent; above what file systems cache of names and attributes."""
RENEWALS_PER_LEASE = 4
MOST_KILLED = 5
"""Owners in a row that may vanish without a new row before the run counts as failed."""

Standing = Literal["free", "released", "gone", "silent", "held"]


def seconds_now() -> float:
    """Returns the time of a clock of this host that goes on while the host sleeps."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Found(NamedTuple):
    """The newest claim of a run.

    Attributes:
        standing: "free" without any, "released" by its owner, "gone" with its owner's process,
            "silent" for longer than its lease, or "held".
        number: Its number, 0 without any.
        killed: How many owners of the present launch have in a row vanished before they wrote a
            row of metrics, this one included.
    """

    standing: Standing
    number: int
    killed: int


class Claim:
    """A run that this process owns, renewed by a thread until it is released or lost."""

    def __init__(self, path: Path, content: dict[str, Any], *, killed: int, grace_seconds: float):
        self.killed, self.grace_seconds = killed, grace_seconds
        self._path, self._content = path, content
        self._lease: float = content["lease_seconds"]
        self._next = path.with_name(f"{int(path.stem) + 1}.json")
        self._renewed = seconds_now()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._renew_in_time, daemon=True).start()

    def held(self) -> bool:
        """Whether this process still owns the run; cheap, so it is asked before every write."""
        if not self._ended.is_set() and seconds_now() - self._renewed > self._lease:
            self._renew()
        return not self._ended.is_set()

    def release(self) -> None:
        """Lets the run go, at once for everyone; a claim that was lost stays as it is.

        Where the disk does not take it, the claim falls silent and is taken over in time.
        """
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
            if not self._next.exists():
                self._write({"released": True})

    def _renew_in_time(self) -> None:
        while not self._ended.wait(self._lease / RENEWALS_PER_LEASE):
            self._renew()

    def _renew(self) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            begin = seconds_now()
            if self._next.exists():
                self._ended.set()
            elif self._write({"counter": self._content["counter"] + 1}):
                self._renewed = begin
                if self._next.exists():
                    self._ended.set()
            elif begin - self._renewed > self._lease:
                # Nobody can have seen that this owner lives, so anyone may take over.
                self._ended.set()

    def _write(self, change: dict[str, Any]) -> bool:
        content = self._content | change
        try:
            records.write_json(self._path, content)
        except OSError:  # A full disk or a server that is away; both may pass before the lease.
            return False
        self._content = content
        return True


class Ledger:
    """The claims of a work directory as one worker sees them."""

    def __init__(self, worker: str, launch: str, lease_seconds: float = LEASE_SECONDS):
        """Opens it.

        Args:
            worker: Name of the worker, unique in the work directory.
            launch: The launch that it belongs to; kills are counted within one.
            lease_seconds: How long this worker may be silent before others take over.
        """
        self._worker, self._launch, self._lease = worker, launch, lease_seconds
        self._seen: dict[Path, tuple[int, bytes, float]] = {}

    def find(self, directory: Path) -> Found:
        """Reads the newest claim on a run; silence is told by asking again and again."""
        files = records.RunFiles(directory)
        number = _newest(files.claims)
        if number == 0:
            return Found("free", 0, 0)
        path = files.claims / f"{number}.json"
        raw, content = _read(path)
        standing = self._standing(directory, number, raw, content)
        killed = 0
        grown = _size(files.metrics) > _number(content, "metrics_bytes")
        if content.get("launch") == self._launch and not grown:
            killed = int(_number(content, "killed")) + (standing in ("gone", "silent"))
        return Found(standing, number, killed)

    def take(self, directory: Path, found: Found) -> Claim | None:
        """Claims a run.

        Args:
            directory: The run's; made if missing.
            found: What `find` returned, no longer ago than it takes to choose.

        Returns:
            The claim, or None if the run is held, or another worker was faster. Its owner begins
            after `grace_seconds`.
        """
        if found.standing == "held":
            return None
        files = records.RunFiles(directory)
        files.claims.mkdir(parents=True, exist_ok=True)
        content = {
            "worker": self._worker,
            "launch": self._launch,
            "process": this_process(),
            "lease_seconds": self._lease,
            "counter": 0,
            "released": False,
            "killed": found.killed,
            "metrics_bytes": _size(files.metrics),
        }
        path = files.claims / f"{found.number + 1}.json"
        if not records.create_json(path, content):
            return None
        grace = self._silence(directory) / 2 if found.standing == "silent" else 0.0
        return Claim(path, content, killed=found.killed, grace_seconds=grace)

    def _standing(
        self, directory: Path, number: int, raw: bytes, content: dict[str, Any]
    ) -> Standing:
        if content.get("released") is True:
            return "released"
        process = content.get("process")
        if isinstance(process, dict) and is_gone(process):
            return "gone"
        now = seconds_now()
        seen = self._seen.get(directory)
        if seen is None or seen[:2] != (number, raw):
            self._seen[directory] = (number, raw, now)
            return "held"
        return "silent" if now - seen[2] > _lease_of(content, self._lease) else "held"

    def _silence(self, directory: Path) -> float:
        """Returns the lease of a claim that has been seen to be silent."""
        _, raw, _ = self._seen[directory]
        return _lease_of(_parse(raw), self._lease)


def is_worked_on(directory: Path, lease_seconds: float = LEASE_SECONDS) -> bool:
    """Whether someone works on a run, as far as one look can tell; for display alone.

    The file of another host's claim is held against this host's clock, with a lease to spare:
    nothing is ever taken over for that.
    """
    claims = records.RunFiles(directory).claims
    number = _newest(claims)
    if number == 0:
        return False
    path = claims / f"{number}.json"
    _, content = _read(path)
    process = content.get("process")
    if content.get("released") is True or not isinstance(process, dict) or is_gone(process):
        return False
    return time.time() - path.stat().st_mtime < 2 * _lease_of(content, lease_seconds)


def _newest(claims: Path) -> int:
    """Returns the highest number of a claim, 0 where there is none."""
    if not claims.is_dir():
        return 0
    stems = [path.stem for path in claims.iterdir() if path.suffix == ".json"]
    return max([int(stem) for stem in stems if stem.isdecimal()], default=0)


def _read(path: Path) -> tuple[bytes, dict[str, Any]]:
    """Returns a claim's bytes, and what they say; nothing where they are garbage."""
    raw = path.read_bytes()
    return raw, _parse(raw)


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        content = json.loads(raw)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _lease_of(content: dict[str, Any], otherwise: float) -> float:
    return _number(content, "lease_seconds") or otherwise


def _number(content: dict[str, Any], name: str) -> float:
    """Returns a number of a claim; 0 where garbage holds none."""
    value = content.get(name)
    return value if isinstance(value, int | float) and value > 0 else 0


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
