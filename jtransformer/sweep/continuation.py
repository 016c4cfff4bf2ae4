"""Whether what a work directory holds is a part of a plan, and what stays of how it was judged."""

from pathlib import Path
from typing import Any

from jtransformer.records import COMPLETE, rules_before, verdict_rule
from jtransformer.spec import SpecError, differences
from jtransformer.sweep.board import states

DECLARED = "base scientific nuisance named scales search extend seeds match data".split()
"""Parts of a manifest that say what its runs are."""


def check_continuation(old: dict[str, Any], new: dict[str, Any], workdir: Path) -> int:
    """Decides whether a work directory may be continued by a plan.

    A sweep may grow, by seeds, values or arms; what it has must stay a part of it.

    Args:
        old: The manifest on disk.
        new: The manifest of the plan.
        workdir: Named in the message.

    Returns:
        How many cells are new.

    Raises:
        SpecError: If a run on disk is not a part of the plan; what differs is said.
    """
    kept = {cell["fingerprint"] for cell in new["cells"]}
    lost = [cell for cell in old["cells"] if cell["fingerprint"] not in kept]
    if not lost:
        return len(kept) - len(old["cells"])
    there, here = ({part: record.get(part) for part in DECLARED} for record in (old, new))
    changes = differences(there, here)
    described = "; ".join(f"{path}: {a!r} there, {b!r} here" for path, (a, b) in changes.items())
    raise SpecError(
        "",
        f"{workdir} holds another sweep ({described or 'its runs have other identities'}); "
        "use another work directory.",
    )


def judged_before(old: dict[str, Any], new: dict[str, Any], workdir: Path) -> dict[str, Any]:
    """Returns the manifest of a plan with the rules by which its sweep was judged before.

    Args:
        old: The manifest on disk.
        new: The manifest of the plan.
        workdir: Whose finished runs are counted.

    Raises:
        SpecError: If a run's directory does not belong to this sweep.
    """
    found = states(workdir, old["cells"]).values()
    finished = sum(state in COMPLETE for state in found)
    return new | {"verdict_before": rules_before(old, verdict_rule(new), finished)}
