"""What a run has taken over from other parameters: plain data, and what it says in words."""

import re
from collections.abc import Sequence
from typing import Any

SHOWN = 6
"""Parameters that a sentence names, those of all layers counted once."""


def taken_sentence(start: dict[str, Any]) -> str:
    """Says how much was taken over, and what was not.

    Args:
        start: "parameters" and "numbers", how many there are and how many were "taken" of each;
            "new", the reason why not of every other parameter, by path; "left", those of the
            origin that were not taken; "otherwise", what the numbers mean another thing by, by
            setting (runs of earlier versions do not say).
    """
    parameters, numbers = start["parameters"], start["numbers"]
    share = numbers["taken"] / numbers["all"]
    text = (
        f"{parameters['taken']:,} of {parameters['all']:,} parameters, {_percent(share)} of the "
        "numbers"
    )
    named: dict[tuple[str, str], int] = {}
    for path, reason in start["new"].items():
        key = re.sub(r"layer_\d+", "layer_*", path), reason
        named[key] = named.get(key, 0) + 1
    new = [
        f"{path} ({f'{count} times, ' if count > 1 else ''}{reason})"
        for (path, reason), count in named.items()
    ]
    if new:
        text += f"; new: {_listed(new)}"
    otherwise = [f"{path} ({how})" for path, how in start.get("otherwise", {}).items()]
    if otherwise:
        text += f"; used otherwise than there: {_listed(otherwise)}"
    return text


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def unequal_starts(starts: dict[str, dict[str, Any] | None]) -> str | None:
    """Says that arms have taken over unequal parts; None where they have not.

    Args:
        starts: What each arm has taken over; None is nothing.
    """
    shares = {
        arm: 0.0 if start is None else start["numbers"]["taken"] / start["numbers"]["all"]
        for arm, start in starts.items()
    }
    taken = {
        arm: None
        if start is None
        else (start["sha256"], *map(sorted, (start["new"], start["left"])))
        for arm, start in starts.items()
    }
    if all(one == next(iter(taken.values())) for one in taken.values()):
        return None
    listed = ", ".join(f"{arm} {_percent(share)}" for arm, share in shares.items())
    return (
        f"arms do not take over the same trained numbers ({listed}), so that a "
        "difference between them can be due to their start"
    )


def _percent(share: float) -> str:
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    # What is not all must not read as all, and what is something not as nothing.
    shown = f"{100 * share:.1f}"
    return {"100.0": "more than 99.9 %", "0.0": "less than 0.1 %"}.get(shown, f"{shown} %")
