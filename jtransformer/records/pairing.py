"""Whether runs of one seed are paired: same batches, same initial values, by their hashes."""

from typing import Any, NamedTuple


class Fact(NamedTuple):
    """Something that runs have in common, if they are paired.

    Attributes:
        seed: Their seed.
        what: "batches", or the path of a parameter.
        alike: What must agree before it can be the same: how batches are made; shape and
            initialiser.
    """

    seed: int
    what: str
    alike: tuple[Any, ...]


class Contradiction(NamedTuple):
    """Two runs that should have something in common and do not.

    Attributes:
        seed: Their seed.
        what: "batches", or the path of a parameter.
        directory: The second run.
        other: The first run.
    """

    seed: int
    what: str
    directory: str
    other: str


def facts(cell: dict[str, Any], pairing: dict[str, Any]) -> dict[Fact, Any]:
    """Returns the hashes by which a run is compared with others.

    Batches are compared where data, batch size, steps and seed agree; initial values where
    seed, path, shape and initialiser agree.

    Args:
        cell: The run's seed.
        pairing: The hashes of its status.
    """
    batches = Fact(cell["seed"], "batches", (pairing["sampling"],))
    found: dict[Fact, Any] = {batches: (pairing["first_batch"], pairing["last_batch"])}
    for path, start in pairing["initial"].items():
        alike = (tuple(start["shape"]), start["initialiser"])
        found[Fact(cell["seed"], path, alike)] = start["hash"]
    return found


class Pairing:
    """What the runs seen so far have shown; each is compared with those before it."""

    def __init__(self):
        self._seen: dict[Fact, tuple[str, Any]] = {}

    def add(self, cell: dict[str, Any], pairing: dict[str, Any]) -> list[Contradiction]:
        """Compares a run with those before it.

        Args:
            cell: The run's seed and directory.
            pairing: The hashes of its status.

        Returns:
            What differs although it should not.
        """
        found = []
        for fact, value in facts(cell, pairing).items():
            other, known = self._seen.setdefault(fact, (cell["directory"], value))
            if known != value:
                found.append(Contradiction(fact.seed, fact.what, cell["directory"], other))
        return found
