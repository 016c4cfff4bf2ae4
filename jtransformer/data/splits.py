"""Which part a text or an example belongs to.

One text is cut by position: the last bytes are the test part, those before them the validation
part. Examples are dealt by a hash of their source (of the whole document, where there is none):
an example keeps its part when others come or go, copies of it fall in the same part, and no
source is in two. The hash is SHA-256, so the split is the same on every machine.
"""

import hashlib

import numpy as np

from jtransformer.spec import DataSpec

CMUDICT_SALT = b"jtransformer cmudict 1 "
"""Stands before every word that is hashed. A new split of CMUdict would be a new salt."""


def cut_text(text: np.ndarray, data: DataSpec, *, between_characters: bool) -> list[np.ndarray]:
    """Cuts a text into train, validation and test.

    Args:
        text: Its bytes, uint8.
        data: Gives the shares of the bytes.
        between_characters: Whether a cut moves on to the next beginning of a UTF-8 character.
    """
    n_validation = int(len(text) * data.validation_fraction)
    n_test = int(len(text) * data.test_fraction)
    n_train = len(text) - n_validation - n_test
    cuts = [n_train, n_train + n_validation]
    if between_characters:
        cuts = [_next_character(text, cut) for cut in cuts]
    return np.split(text, cuts)


def _next_character(text: np.ndarray, cut: int) -> int:
    # All bytes of a character but its first are 10xxxxxx.
    while cut < len(text) and text[cut] & 0b1100_0000 == 0b1000_0000:
        cut += 1
    return cut


def part_of(key: str, data: DataSpec, salt: bytes = b"") -> int:
    """Returns the part of an example: 0 train, 1 validation, 2 test.

    Args:
        key: Its source, or the whole document.
        data: Gives the shares. A change of validation_fraction moves nothing into or out of test.
        salt: Stands before the key, so that a split can be another one on purpose.
    """
    digest = hashlib.sha256(salt + key.encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    if place < data.test_fraction:
        return 2
    return 1 if place < data.test_fraction + data.validation_fraction else 0
