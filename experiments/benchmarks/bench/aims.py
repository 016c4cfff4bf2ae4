"""What the project set out to reach, and what was found."""

from typing import NamedTuple

from .journal import Journal
from .peers import OURS, PEERS, TORCH
from .rounds import Spread, ratios, spread


class Aim(NamedTuple):
    """An aim.

    Attributes:
        what: Of what it is.
        bound: What is to be reached.
        at_least: Whether the bound is the least, or the most, that is allowed.
        found: The median with its quartiles; None where it was not measured.
    """

    what: str
    bound: float
    at_least: bool
    found: Spread | None

    @property
    def verdict(self) -> str:
        """Whether the median reaches the bound."""
        if self.found is None:
            return "not measured"
        reached = self.found.median >= self.bound
        return "reached" if reached == self.at_least else "missed"


def ratio(journal: Journal, size: str, peer: str) -> Spread | None:
    """Returns a peer's time over the time here, round by round; None where one is lacking."""
    seconds = [journal.seconds("step", size=size, peer=name) for name in (peer, OURS)]
    found = ratios(*seconds)
    return spread(found) if found else None


def fastest_torch(journal: Journal, size: str) -> tuple[str, Spread] | None:
    """Returns the peer on torch with the smallest ratio, and the ratio."""
    found = {peer: ratio(journal, size, peer) for peer in TORCH}
    there = {peer: one for peer, one in found.items() if one is not None}
    if not there:
        return None
    best = min(there, key=lambda peer: there[peer].median)
    return best, there[best]


def aims(journal: Journal) -> list[Aim]:
    """Returns all aims of the suite."""
    found = []
    for size, bound in (("S", 1.4), ("M", 1.0), ("L", 1.0)):
        best = fastest_torch(journal, size)
        name = f" ({PEERS[best[0]].title})" if best else ""
        what = f"{size}: fastest torch peer{name} / here"
        found.append(Aim(what, bound, True, best[1] if best else None))
    for size in ("M", "L"):
        what = f"{size}: flax.linen / here"
        found.append(Aim(what, 1.2, True, ratio(journal, size, "linen")))
    deep, shallow = (journal.seconds("compile", form="scan", layers=n) for n in (24, 2))
    growth = ratios(deep, shallow)
    what = "compile time, scanned: 24 layers / 2 layers"
    found.append(Aim(what, 1.5, False, spread(growth) if growth else None))
    return found
