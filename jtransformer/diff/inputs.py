"""What both sides of a comparison are given."""

from typing import NamedTuple

import numpy as np


class Inputs(NamedTuple):
    """The arguments of one call, in evaluation mode.

    Attributes:
        tokens: Token ids `B T`; those of the target where there is a source.
        valid: False at padding, `B T`; None is none.
        source: Token ids of the source `B S`; None without one.
        source_valid: False at its padding; None is none.
    """

    tokens: np.ndarray
    valid: np.ndarray | None = None
    source: np.ndarray | None = None
    source_valid: np.ndarray | None = None


class Sizes(NamedTuple):
    """How many tokens are drawn.

    Attributes:
        rows: Rows of the batch.
        length: Tokens of a row.
        source_length: Tokens of a row of the source; None without one.
        padding: Tokens at the beginning of the last row that are padding.
    """

    rows: int = 2
    length: int = 16
    source_length: int | None = None
    padding: int = 0


def drawn(
    seed: int,
    sizes: Sizes,
    vocabulary: int,
    source_vocabulary: int | None = None,
    *,
    never: int | None = None,
) -> Inputs:
    """Draws ids, each with the same probability.

    Args:
        seed: Another number draws others.
        sizes: How many.
        vocabulary: Ids are below it.
        source_vocabulary: Likewise, for the source; None is the same.
        never: An id that is not drawn, such as one that stands for padding.

    Raises:
        ValueError: If padding leaves no token.
    """
    if not 0 <= sizes.padding < sizes.length:
        raise ValueError(
            f"padding must lie in 0 … length - 1, got padding={sizes.padding}, "
            f"length={sizes.length}."
        )
    random = np.random.default_rng(seed)

    def ids(length: int, below: int) -> np.ndarray:
        found = random.integers(0, below, (sizes.rows, length)).astype(np.int32)
        return found if never is None else np.where(found == never, (never + 1) % below, found)

    tokens = ids(sizes.length, vocabulary)
    source = None
    if sizes.source_length is not None:
        source = ids(sizes.source_length, source_vocabulary or vocabulary)
    return Inputs(tokens, padded(tokens, sizes.padding), source)


def padded(tokens: np.ndarray, padding: int) -> np.ndarray | None:
    """Returns which tokens are real, if those at the beginning of the last row are not.

    There a causal model could see them, and positions count from behind them.
    """
    if not padding:
        return None
    valid = np.ones(tokens.shape, bool)
    valid[-1, :padding] = False
    return valid
