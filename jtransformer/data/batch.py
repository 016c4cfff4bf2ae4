"""What a model is given at once, and what is asked of it."""

from typing import Any, NamedTuple

import numpy as np

ASKED = ("tokens", "labels", "weights")
"""The fields that are no keyword of a model: its first argument, and what is asked of it."""


class Batch(NamedTuple):
    """Rows of ids and what is asked of them; what a kind of batch has no use for is None.

    Padding is told by `valid` and `weights`, never by the value of an id: what may be read as a
    key and what is scored are two arrays.

    Attributes:
        tokens: Input ids, int32 "B T"; of the decoder, where there is a source.
        labels: The id that each position is asked for, int32 "B T".
        weights: 1 where the label is scored, else 0, float32 "B T".
        valid: Whether a token is real, bool "B T"; None where all that are seen are.
        positions: Places within an example, int32 "B T"; None where each row is one.
        segments: The example of a token, int32 "B T", counted from 1 and 0 in padding.
        prefix_length: Tokens that see one another in both directions, int32 "B".
        source: Input ids of the encoder, int32 "B S".
        source_valid: As `valid`, bool "B S".
        source_positions: As `positions`, int32 "B S".
        source_segments: As `segments`, int32 "B S"; a target reads the source of its number.
    """

    tokens: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    valid: np.ndarray | None = None
    positions: np.ndarray | None = None
    segments: np.ndarray | None = None
    prefix_length: np.ndarray | None = None
    source: np.ndarray | None = None
    source_valid: np.ndarray | None = None
    source_positions: np.ndarray | None = None
    source_segments: np.ndarray | None = None

    def inputs(self) -> dict[str, Any]:
        """Returns what a model takes by keyword beside the tokens."""
        fields = self._asdict().items()
        return {name: value for name, value in fields if name not in ASKED and value is not None}
