"""What the parts of the suite measure with: the journal, the processes, and how often."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .environment import moment
from .journal import Journal
from .peers import PEERS
from .processes import Process, python_of


class Plan(NamedTuple):
    """How much is measured.

    Attributes:
        rounds: How often everything is.
        seconds: That a measurement takes at least.
    """

    rounds: int
    seconds: float


class Bench:
    """The peers that were asked for, each in a process of its own.

    Attributes:
        journal: Where measurements go.
        peers: Names of those that are there, this project's first.
        missing: What the Python of each other one lacks.
        plan: How much is measured.
    """

    def __init__(self, journal: Journal, names: list[str], pythons: Mapping[str, str], plan: Plan):
        """Starts the processes and asks each what it has.

        Args:
            journal: Where measurements go.
            names: Of the peers.
            pythons: Which Python runs what; see `python_of`.
            plan: How much is measured.
        """
        self.journal, self.plan = journal, plan
        self._pythons = {name: python_of(name, pythons) for name in names}
        processes = {name: Process(name, python) for name, python in self._pythons.items()}
        self.missing = {name: one.missing for name, one in processes.items() if one.missing}
        self._processes = {name: one for name, one in processes.items() if not one.missing}
        self.peers = list(self._processes)
        for name, one in processes.items():
            threads = None if one.missing else one.ask("threads")
            journal.write(
                "peer", peer=name, missing=one.missing, versions=one.versions, threads=threads
            )
            if one.missing:
                one.close()

    def ask(self, name: str, what: str, **arguments: Any) -> Any:
        """Calls a function of a peer and waits for its result."""
        return self._processes[name].ask(what, **arguments)

    def renew(self) -> None:
        """Gives each peer a process in which nothing has been done yet."""
        self.close()
        self._processes = {name: Process(name, self._pythons[name]) for name in self.peers}

    def updates(self, seconds: float) -> int:
        """Returns how many updates of so many seconds make one measurement."""
        return max(2, math.ceil(self.plan.seconds / seconds))

    def write(self, kind: str, **fields: Any) -> None:
        """Writes and prints a measurement, with the time and the load of the machine."""
        self.journal.write(kind, **fields, **moment())
        shown = [f"{name}={_short(value)}" for name, value in fields.items()]
        print(kind, *shown, flush=True)

    def close(self) -> None:
        """Ends the processes."""
        for process in self._processes.values():
            process.close()


def in_turn(round_: int, names: list[str]) -> list[str]:
    """Returns the order of a round: each begins once, so that none is always behind another."""
    shift = round_ % len(names)
    return names[shift:] + names[:shift]


def lacking(missing: Mapping[str, list[str]]) -> str:
    """Says which peers are missing, and why; nothing where none is."""
    said = [f"{PEERS[name].title} (no {', '.join(lacks)})" for name, lacks in missing.items()]
    return f"missing: {', '.join(said)}" if said else ""


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return "..".join(str(_short(one)) for one in (value[0], value[-1]))
    return f"{value:.4g}" if isinstance(value, float) else value
