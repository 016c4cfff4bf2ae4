"""What becomes of examples that are longer than a row."""

from collections.abc import Sequence

import numpy as np

from jtransformer.data.corpus import PARTS, Examples, Report
from jtransformer.data.layout import asks, fits, tokens_of_row
from jtransformer.spec import DataSpec, SpecError
from jtransformer.spec.objectives import Objective


def fit(
    parts: Sequence[Examples], numbers: Sequence[np.ndarray], data: DataSpec, objective: Objective
) -> tuple[list[Examples], Report]:
    """Refuses, skips or leaves to be cut what no row holds, as `data.too_long` says.

    Args:
        parts: The examples of each part.
        numbers: The line or row of each of them.
        data: Gives the lengths of the rows.
        objective: Decides how many tokens an example takes.

    Returns:
        The examples that rows are made of, and the counts of the others. One of which a cut
        would leave nothing to ask for, such as a source that fills its row, is skipped.

    Raises:
        SpecError: If one is too long and that is refused, or a part has none left.
    """
    fitting = [fits(*_lengths(part), data, objective) for part in parts]
    if all(fitted.all() for fitted in fitting):
        return list(parts), Report()
    if data.too_long == "refuse":
        raise _refusal(parts, numbers, data, objective)
    kept = fitting
    if data.too_long == "cut":
        kept = [asks(_lengths(part)[1], len(part), data, objective) for part in parts]
    bounds = f"data.length={data.length}"
    if data.source_length is not None:
        bounds += f" or data.source_length={data.source_length}"
    for name, stays in zip(PARTS, kept, strict=True):
        if not stays.any():
            raise SpecError(
                "data.too_long",
                f"= {data.too_long!r} leaves {name} without an example, as all {len(stays)} are "
                f"longer than a row of {bounds}; use a longer one.",
            )
    dropped = sum(int((~stays).sum()) for stays in kept)
    cut = sum(int((stays & ~fitted).sum()) for stays, fitted in zip(kept, fitting, strict=True))
    parts = [part.take(np.flatnonzero(stays)) for part, stays in zip(parts, kept, strict=True)]
    return parts, Report(too_long=dropped, cut=cut)


def _refusal(
    parts: Sequence[Examples], numbers: Sequence[np.ndarray], data: DataSpec, objective: Objective
) -> SpecError:
    taken = [tokens_of_row(*_lengths(part), objective) for part in parts]
    number = np.concatenate(numbers)
    targets = np.concatenate([target for target, _ in taken])
    sources = np.concatenate([np.zeros(0, np.int64), *(s for _, s in taken if s is not None)])
    setting, bound, tokens = "length", data.length, targets
    if not (targets > bound).any():
        setting, bound, tokens = "source_length", data.source_length or 0, sources
    longest = int(tokens.max())
    return SpecError(
        f"data.{setting}",
        f"= {bound}, but {int((tokens > bound).sum())} of {len(tokens)} examples take more tokens, "
        f"up to {longest} (number {number[int(tokens.argmax())]}); use {longest}, or "
        "data.too_long='skip' or 'cut'.",
    )


def _lengths(part: Examples) -> tuple[np.ndarray, np.ndarray | None]:
    return part.targets.lengths, None if part.sources is None else part.sources.lengths
