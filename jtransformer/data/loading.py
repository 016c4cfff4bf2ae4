"""From a data spec to a corpus: read, deal into parts, learn the tokenizer, encode.

The tokenizer is learned from the training part alone, and parts are dealt by text and not by ids,
so a change of tokenizer moves nothing from one part to another.
"""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from jtransformer.data.corpus import PARTS, Corpus, Examples, Report, Stream
from jtransformer.data.fitting import fit
from jtransformer.data.ragged import Ragged
from jtransformer.data.reading import read_examples, refuse
from jtransformer.data.sources import Example, Fault, read_text, sha256
from jtransformer.data.specials import specials
from jtransformer.data.splits import CMUDICT_SALT, cut_text, part_of
from jtransformer.data.tokenizers import ByteTokenizer, Tokenizer, encode_all, make_tokenizer
from jtransformer.spec import Bytes, CausalLM, CmuDict, DataSpec, Kjv, SpecError, TextFile
from jtransformer.spec.objectives import Objective

NEXT_TOKEN = CausalLM()


def load(data: DataSpec, objective: Objective = NEXT_TOKEN) -> Corpus:
    """Reads, splits and encodes what a run reads.

    Args:
        data: The source, the tokenizer and the form of the rows.
        objective: Decides which special tokens exist and how many tokens an example takes.

    Raises:
        SpecError: If the source cannot be read or holds a line that is no example, if a part is
            empty or shorter than a row, or if an example is too long for a row; the second and
            the last only where the spec does not say otherwise.
    """
    if isinstance(data.source, Kjv | TextFile):
        return _load_text(data, data.source, objective)
    return _load_examples(data, objective)


def _load_text(data: DataSpec, source: Kjv | TextFile, objective: Objective) -> Corpus:
    text, malformed = read_text(source), 0
    if isinstance(data.tokenizer, Bytes):
        tokenizer: Tokenizer = ByteTokenizer()
        streams = [Stream(part) for part in cut_text(text, data, between_characters=False)]
        content, unit = sha256(text), "bytes"
    else:
        text, malformed = _lines_of_characters(text, data)
        parts = cut_text(text, data, between_characters=True)
        texts = [part.tobytes().decode() for part in parts]
        tokenizer = make_tokenizer(data.tokenizer, texts[:1])
        streams = [Stream(tokenizer.encode(text)) for text in texts]
        content, unit = _with_tokenizer(sha256(text), tokenizer), "tokens"
    skipped = f" ({malformed} lines were skipped)" if malformed else ""
    _check_streams(streams, data.length, f"{unit} in every part of the text{skipped}")
    return Corpus(
        *streams,
        tokenizer=tokenizer,
        source_tokenizer=tokenizer,
        specials=specials(tokenizer.pieces, data, objective),
        sha256=content,
        report=Report(malformed=malformed),
    )


def _lines_of_characters(text: np.ndarray, data: DataSpec) -> tuple[np.ndarray, int]:
    """Returns the lines of a text that are UTF-8, and how many are not."""
    content = text.tobytes()
    try:
        content.decode()
    except UnicodeDecodeError:
        kept, malformed = [], 0
        for number, line in enumerate(content.split(b"\n"), start=1):
            try:
                line.decode()
                kept.append(line)
            except UnicodeDecodeError as error:
                place = error.start + 1
                refuse(Fault(number, f"is not UTF-8 (byte {place} of the line)"), data)
                malformed += 1
        return np.frombuffer(b"\n".join(kept), np.uint8), malformed
    return text, 0


def _check_streams(streams: Sequence[Stream], length: int, what: str) -> None:
    total = sum(map(len, streams))
    for name, part in zip(PARTS, streams, strict=True):
        if len(part) < length + 1:
            raise SpecError(
                "data.length",
                f"= {length} needs {length + 1} {what}, but {name} has {len(part)} of {total}; "
                "give a longer text or a shorter length.",
            )


def _load_examples(data: DataSpec, objective: Objective) -> Corpus:
    examples, malformed = read_examples(data)
    parts = _deal(examples, data)
    for name, part in zip(PARTS, parts, strict=True):
        if not part:
            raise SpecError(
                "data.source.kind",
                f"= {data.source.kind!r} leaves {name} without an example (it has {len(examples)}, "
                f"and {malformed} were skipped); give more examples or greater fractions.",
            )
    tokenizer = make_tokenizer(data.tokenizer, _texts(parts[0]))
    ids = specials(tokenizer.pieces, data, objective)
    encoded = [_encode(part, tokenizer) for part in parts]
    if data.rows == "stream":
        done = [Stream(_joined(part.targets, ids.eos)) for part in encoded]
        _check_streams(done, data.length, "tokens in every part of the source")
        report = Report(malformed=malformed)
    else:
        numbers = [np.array([example.number for example in part]) for part in parts]
        done, report = fit(encoded, numbers, data, objective)
        report = report._replace(malformed=malformed)
    return Corpus(
        *done,
        tokenizer=tokenizer,
        source_tokenizer=tokenizer,
        specials=ids,
        sha256=_with_tokenizer(_content(examples), tokenizer),
        report=report,
    )


def _deal(examples: Sequence[Example], data: DataSpec) -> list[list[Example]]:
    salt = CMUDICT_SALT if isinstance(data.source, CmuDict) else b""
    parts: list[list[Example]] = [[] for _ in PARTS]
    for example in examples:
        key = example.target if example.source is None else example.source
        parts[part_of(key, data, salt)].append(example)
    return parts


def _texts(part: Sequence[Example]) -> Iterator[str]:
    for example in part:
        if example.source is not None:
            yield example.source
        yield example.target


def _encode(part: Sequence[Example], tokenizer: Tokenizer) -> Examples:
    targets = encode_all(tokenizer, [example.target for example in part])
    sources = [example.source for example in part if example.source is not None]
    return Examples(targets, encode_all(tokenizer, sources) if sources else None)


def _joined(documents: Ragged, eos: int | None) -> np.ndarray:
    """Joins documents, with EOS behind each."""
    joined = np.full(len(documents.flat) + len(documents), eos, np.int32)
    document = np.repeat(np.arange(len(documents)), documents.lengths)
    joined[np.arange(len(documents.flat)) + document] = documents.flat
    return joined


def _content(examples: Sequence[Example]) -> str:
    """Hashes examples in order; lengths go first, so that no two lists are written alike."""
    digest = hashlib.sha256()
    for example in examples:
        for text in (example.source, example.target):
            content = b"" if text is None else text.encode()
            digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


def _with_tokenizer(content: str, tokenizer: Tokenizer) -> str:
    return hashlib.sha256(f"{content} {tokenizer.sha256}".encode()).hexdigest()
