"""Compares two implementations place by place, and says which convention explains the difference.

usage: jtransformer diff A B [flags]

A and B are directories of runs, Hugging Face directories, or module:function. A run is a model of
ours. A Hugging Face directory is run by transformers itself, through torch; where torch is missing,
it is read into a model of ours, and that is said. module:function takes token ids [B, T] and
returns a mapping from places to arrays, such as {"logits": …, "layer_0/attention/query": …}.

Both are given the same ids, in evaluation. Their intermediates are compared in the order of
computation, and the first place that differs by more than rounding is marked. Then known
differences are tried on the side that is ours, or on a model of ours read from the Hugging Face
directory: pairing and direction of rotation, GELU, epsilon and places of norms, matrices that are
transposed or packed otherwise, order and reshaping of heads, scales, masks, positions, labels,
types of numbers. What makes the difference vanish is the answer. Where no side can be changed,
relations between the two arrays are tried: another order of channels, a factor, a shift. Where
gradients alone differ, it is other labels, gradients that are stopped, and those relations.

  --tokens IDS         ids, separated by spaces; rows by semicolons: "5 3 9; 1 2 7"
  --text TEXT          a text, where one side has a tokenizer
  --source IDS         what an encoder reads, where there is a decoder too
  --length N           tokens of two rows that are drawn where none are given (16)
  --padding N          tokens at the beginning of the last row that are padding (0)
  --seed S             another number draws other tokens (0)
  --gradients          compare gradients of the loss too, backward: by place and by parameter
  --checkpoint WHICH   newest, or best by validation (newest)
  --json               print one JSON object

Exit code: 0 if all agrees, 1 if something differs, 2 for a mistake.

example: jtransformer diff runs/gpt2 models/gpt2 --text "In the beginning"
"""

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from jtransformer import records
from jtransformer.cli.arguments import read_flags
from jtransformer.cli.progress import say
from jtransformer.cli.run_directory import BEST, NEWEST, read_about, read_run, read_state
from jtransformer.spec import Learned, ModelSpec, SpecError, from_tree

LENGTH = 16
USAGE = "jtransformer diff A B [flags]"
DIFFERENT = 1


class Side(NamedTuple):
    """What a user named.

    Attributes:
        subject: What is run.
        spec: Its model; None where it is a function.
        tokenizer: Reads its tokenizer; None where it has none.
    """

    subject: Any
    spec: ModelSpec | None
    tokenizer: Any


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    names, values = _arguments(argv)
    sides = [_side(name, values.checkpoint) for name in names]

    from jtransformer import diff

    inputs = _inputs(sides, values)
    try:
        a, b = (side.subject for side in sides)
        found = diff.difference(a, b, inputs, gradients=values.gradients)
    except SpecError:
        raise
    except ValueError as error:
        # What a side cannot answer, such as ids beyond its vocabulary.
        raise SpecError("", str(error)) from None
    from jtransformer.cli import diff_tables

    if values.json:
        print(json.dumps(diff_tables.as_json(found)))
    else:
        diff_tables.show(found)
    return 0 if found.equal else DIFFERENT


def _arguments(argv: list[str]) -> tuple[list[str], flags.FlagValues]:
    """Takes the two sides from the beginning of a command line, or from its end."""
    words = [*argv]
    first = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    names, rest = words[:first], words[first:]
    if not names and len(rest) > 2 and not any(word.startswith("-") for word in rest[-2:]):
        names, rest = rest[-2:], rest[:-2]
    if len(names) != 2:
        raise SpecError("", f"Name two sides before the flags, got {len(names)}; usage: {USAGE}.")
    values = flags.FlagValues()
    for name in ("tokens", "text", "source"):
        flags.DEFINE_string(name, None, name, flag_values=values)
    flags.DEFINE_string("checkpoint", NEWEST, "checkpoint", flag_values=values)
    for name, default in (("length", None), ("padding", 0), ("seed", 0)):
        flags.DEFINE_integer(name, default, name, flag_values=values)
    for name in ("gradients", "json"):
        flags.DEFINE_bool(name, False, name, flag_values=values)
    read_flags(values, rest, stray="name the two sides before the flags")
    given = [name for name in ("tokens", "text", "length") if getattr(values, name) is not None]
    if len(given) > 1:
        raise SpecError(f"--{given[1]}", f"would do nothing beside --{given[0]}; give one of them.")
    for name, least in (("length", 2), ("padding", 0), ("seed", 0)):
        number = getattr(values, name)
        if number is not None and number < least:
            raise SpecError(f"--{name}", f"must be at least {least}, got {number}.")
    if values.checkpoint not in (NEWEST, BEST):
        raise SpecError("--checkpoint", f"must be {NEWEST} or {BEST}, got {values.checkpoint!r}.")
    return names, values


def _side(name: str, checkpoint: str) -> Side:
    """Reads one side: a run, a Hugging Face directory, or a function."""
    from jtransformer import diff

    path = Path(name).expanduser()
    if ":" in name and not path.exists():
        return Side(diff.find(name), None, None)
    if (path / "spec.json").is_file():
        files = records.RunFiles(path)
        about = read_about(files)
        spec = from_tree(about["spec"])
        _, state = read_state(files, spec, about["fingerprint"], checkpoint)
        model = diff.ours(name, spec.model, {"params": state.evaluated})
        has_text = about["tokenizer_sha256"] is not None
        tokenizer = functools.partial(_tokenizer_of, path, checkpoint) if has_text else None
        return Side(model, spec.model, tokenizer)
    if (path / "config.json").is_file():
        return _hugging_face(name, path)
    if path.is_dir():
        read_about(records.RunFiles(path))  # It says which runs lie below.
    raise SpecError(
        name,
        "is neither the directory of a run (spec.json) nor of a Hugging Face model (config.json) "
        "nor module:function.",
    )


def _tokenizer_of(path: Path, checkpoint: str) -> Any:
    return read_run(path, checkpoint).tokenizer


def _hugging_face(name: str, path: Path) -> Side:
    from jtransformer import diff, interop

    settings = interop.tokenizer_settings(path)

    def read() -> Any:
        from jtransformer.data.library import LibraryTokenizer

        assert settings is not None
        return LibraryTokenizer(settings)

    tokenizer = None if settings is None else read
    missing = [one for one in ("torch", "transformers") if importlib.util.find_spec(one) is None]
    if missing:
        say(
            f"{name} is read into a model of ours, as {' and '.join(missing)} is not installed "
            '(pip install "jtransformer[interop]"): its reference is not run.'
        )
        loaded = interop.load(path)
        return Side(diff.ours(name, loaded.spec, loaded.variables), loaded.spec, tokenizer)
    subject = diff.foreign(name, path)
    return Side(subject, subject.spec, tokenizer)


def _inputs(sides: list[Side], values: flags.FlagValues) -> Any:
    """Returns the ids that both sides are given."""
    import numpy as np

    from jtransformer import diff

    specs = [side.spec for side in sides if side.spec is not None]
    vocabularies = [spec.vocabulary for spec in specs]
    reads_source = any(spec.has_encoder for spec in specs)
    if values.source is not None and specs and not reads_source:
        raise SpecError("--source", "would do nothing: neither side has an encoder and a decoder.")
    tokens = None
    if values.tokens is not None:
        tokens = _ids("--tokens", values.tokens, min(vocabularies, default=None))
    elif values.text is not None:
        tokens = np.array([_encoded(sides, values.text)], np.int32)
    elif not specs:
        raise SpecError("--tokens", "must be given, since neither side says what its ids are.")
    source = None
    if values.source is not None:
        known = [spec.source_vocabulary for spec in specs if spec.source_vocabulary]
        source = _ids("--source", values.source, min(known, default=None))
    if tokens is None or (reads_source and source is None):
        rows = 2 if tokens is None else len(tokens)
        length = _length(specs, values.length)
        if tokens is not None:
            length = tokens.shape[1]
        sizes = diff.Sizes(rows=rows, length=length, source_length=length if reads_source else None)
        known = [spec.source_vocabulary for spec in specs if spec.source_vocabulary]
        paddings = [s.subject.padding for s in sides if isinstance(s.subject, diff.Foreign)]
        random = diff.drawn(
            values.seed,
            sizes,
            min(vocabularies),
            min(known, default=None),
            never=next(iter(paddings), None),
        )
        tokens = random.tokens if tokens is None else tokens
        source = random.source if source is None else source
    if source is not None and len(source) != len(tokens):
        raise SpecError(
            "--source", f"has {len(source)} rows and the target {len(tokens)}; give as many."
        )
    if values.padding >= tokens.shape[1]:
        raise SpecError(
            "--padding",
            f"= {values.padding} leaves nothing of {tokens.shape[1]} tokens; use fewer.",
        )
    return diff.Inputs(tokens, diff.padded(tokens, values.padding), source)


def _length(specs: list[ModelSpec], given: int | None) -> int:
    most = [spec.position.max_length for spec in specs if isinstance(spec.position, Learned)]
    if given is None:
        return min([LENGTH, *most])
    if most and given > min(most):
        raise SpecError("--length", f"= {given} is beyond the {min(most)} positions of a side.")
    return given


def _ids(flag: str, text: str, vocabulary: int | None) -> Any:
    """Reads ids, of which every row has as many."""
    import numpy as np

    try:
        rows = [[int(word) for word in row.replace(",", " ").split()] for row in text.split(";")]
    except ValueError:
        raise SpecError(flag, f"= {text!r} must be numbers, such as '5 3 9; 1 2 7'.") from None
    if len({len(row) for row in rows}) > 1 or not rows[0]:
        raise SpecError(flag, f"= {text!r} must have rows of one length, at least one id in each.")
    ids = np.array(rows, np.int64)
    if ids.min() < 0 or (vocabulary is not None and ids.max() >= vocabulary):
        most = "" if vocabulary is None else f" … {vocabulary - 1}"
        raise SpecError(flag, f"= {text!r} must lie in 0{most}.")
    return ids.astype(np.int32)


def _encoded(sides: list[Side], text: str) -> list[int]:
    readers = [side.tokenizer for side in sides if side.tokenizer is not None]
    if not readers:
        raise SpecError("--text", "needs a tokenizer, and neither side has one; use --tokens.")
    ids = [int(token) for token in readers[0]().encode(text)]
    if len(ids) < 2:
        raise SpecError("--text", f"= {text!r} is {len(ids)} tokens; write at least two.")
    return ids
