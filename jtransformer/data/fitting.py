"""What becomes of examples that are longer than a row."""

from collections.abc import Sequence

import numpy as np

from jtransformer.data.corpus import SPLITS, Examples, Report
from jtransformer.data.layout import fits, tokens_of_row
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
        The examples that rows are made of, and the counts of the others.

    Raises:
        SpecError: If one is too long and that is refused, or a part has none left.
    """
    fitting = [fits(*_lengths(part), data, objective) for part in parts]
    count = sum(int((~fitted).sum()) for fitted in fitting)
    if not count:
        return list(parts), Report()
    if data.too_long == "cut":
        return list(parts), Report(cut=count)
    if data.too_long == "refuse":
        raise _refusal(parts, numbers, data, objective)
    for name, fitted in zip(SPLITS, fitting, strict=True):
        if not fitted.any():
            raise SpecError(
                "data.too_long",
                f"= 'skip' leaves {name} without an example, as all {len(fitted)} are longer than "
                f"a row of data.length={data.length}; use a longer length.",
            )
    kept = [part.take(np.flatnonzero(fits)) for part, fits in zip(parts, fitting, strict=True)]
    return kept, Report(too_long=count)


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
