"""Whether runs of one seed are paired: same batches, same initial values, by their hashes."""

from typing import Any, NamedTuple


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


class Pairing:
    """What the runs seen so far have shown; each is compared with those before it."""

    def __init__(self):
        self._seen: dict[tuple[Any, ...], tuple[str, Any]] = {}

    def add(self, cell: dict[str, Any], pairing: dict[str, Any]) -> list[Contradiction]:
        """Compares a run with those before it.

        Batches are compared where data, batch size, steps and seed agree; initial values where
        seed, path, shape and initialiser agree.

        Args:
            cell: The run's seed and directory.
            pairing: The hashes of its status.

        Returns:
            What differs although it should not.
        """
        batches = (pairing["first_batch"], pairing["last_batch"])
        facts: list[tuple[str, tuple[Any, ...], Any]] = []
        facts.append(("batches", (pairing["sampling"],), batches))
        for path, start in pairing["initial"].items():
            facts.append((path, (tuple(start["shape"]), start["initialiser"]), start["hash"]))
        found = []
        for what, key, value in facts:
            fact = (cell["directory"], value)
            other, known = self._seen.setdefault((cell["seed"], what, *key), fact)
            if known != value:
                found.append(Contradiction(cell["seed"], what, cell["directory"], other))
        return found
