"""Tests that every setting of what is read and asked does something, or is refused."""

import dataclasses
import itertools
import typing

import pytest
from every_file import TRAINED, written
from every_kind import leaves
from small_corpus import run_of

from jtransformer.data import TrainingBatches, check_batch, evaluation_batches, load
from jtransformer.spec import (
    Bytes,
    CausalLM,
    Characters,
    CmuDict,
    DataSpec,
    HuggingFace,
    JsonLines,
    Kjv,
    MaskedLM,
    Parquet,
    PrefixLM,
    Seq2Seq,
    SpanCorruption,
    SpecError,
    Synthetic,
    TextFile,
    TextPairs,
    TokenizerFile,
    Words,
    from_tree,
    get,
    replace,
    to_tree,
)
from jtransformer.spec.data import Tokenizer
from jtransformer.spec.objectives import Objective
from jtransformer.spec.sources import Source

SOURCES = (
    Kjv(),
    TextFile(path="text"),
    JsonLines(path="lines"),
    Parquet(path="table"),
    HuggingFace(name="set"),
    CmuDict(),
    TextPairs(path="pairs"),
    Synthetic(symbols=9, smallest=2, largest=4, examples=60),
)
TOKENIZERS = (Bytes(), Characters(), Words(), TRAINED, TokenizerFile(path="pieces"))
OBJECTIVES = (
    CausalLM(),
    PrefixLM(smallest_prefix=0.3, largest_prefix=0.6),
    Seq2Seq(),
    MaskedLM(rate=0.5, masked=0.5, random=0.2),
    SpanCorruption(density=0.3, mean_length=2.0),
)
KINDS = {"source": SOURCES, "tokenizer": TOKENIZERS, "objective": OBJECTIVES}
KJV, TEXT, LINES, TABLE, SET, DICTIONARY, TABBED, TASK = SOURCES
NEXT, PREFIX, PAIRWISE, HIDE, SPANS = OBJECTIVES

CUT = dict(length=24, validation_fraction=0.2, test_fraction=0.2)
EACH = CUT | dict(rows="padded", too_long="skip", malformed="skip")
PAIRED = EACH | dict(source_length=26)
TASKS = typing.get_args(typing.get_type_hints(Synthetic)["task"])


def paired(source):
    return dataclasses.replace(source, source_field="source")


def task(name):
    """Returns a run on a task whose longest examples have no room."""
    sizes = dict(symbols=9, smallest=3, largest=4)
    form = dict(length=4, source_length=6, too_long="skip")
    match name:
        case "parity":
            sizes |= dict(symbols=2, largest=5)
            form["length"] = 5
        case "recall":
            sizes |= dict(smallest=1, largest=2)
        case "induction":
            form["source_length"] = 4
        case "addition":
            sizes |= dict(smallest=2, largest=2)
            form |= dict(source_length=2, too_long="cut")
    source = Synthetic(task=name, examples=54, **sizes)
    shares = dict(validation_fraction=0.3, test_fraction=0.3)
    return PAIRWISE, dict(source=source, tokenizer=Words(), rows="padded", **form, **shares)


# Runs that together choose every kind and set every field.
CONTEXTS = {
    "one text": (NEXT, CUT | dict(source=KJV)),
    "hidden characters": (
        HIDE,
        CUT | dict(source=TEXT, tokenizer=Characters(), malformed="skip"),
    ),
    "prefixes of a text": (PREFIX, CUT | dict(source=TEXT)),
    "spans of a text": (SPANS, CUT | dict(source=TEXT)),
    "lines in a stream": (
        NEXT,
        CUT | dict(source=LINES, tokenizer=Words(), length=14, malformed="skip"),
    ),
    "hidden in lines": (HIDE, EACH | dict(source=LINES)),
    "packed lines": (NEXT, EACH | dict(source=LINES, tokenizer=TRAINED, rows="packed")),
    "spans of rows": (SPANS, EACH | dict(source=TABLE, tokenizer=TOKENIZERS[-1])),
    "pairs": (PAIRWISE, PAIRED | dict(source=TABBED)),
    "packed pairs": (PAIRWISE, PAIRED | dict(source=paired(LINES), rows="packed")),
    "pairs in one row": (NEXT, EACH | dict(source=paired(TABLE), length=50)),
    "prefixes that are sources": (PrefixLM(), EACH | dict(source=paired(SET), length=50)),
    "words to phonemes": (PAIRWISE, PAIRED | dict(source=DICTIONARY, tokenizer=Words())),
} | {name: task(name) for name in TASKS}

# (class, field): another value. Other values of a choice, and one less of a number, need no entry.
OTHERS = {
    (TextFile, "path"): "other text",
    (JsonLines, "path"): "other lines",
    (JsonLines, "field"): "other",
    (JsonLines, "source_field"): "other",
    (Parquet, "path"): "other table",
    (Parquet, "field"): "other",
    (Parquet, "source_field"): "other",
    (HuggingFace, "name"): "other set",
    (HuggingFace, "configuration"): "english",
    (HuggingFace, "split"): "held",
    (HuggingFace, "field"): "other",
    (HuggingFace, "source_field"): "other",
    (TextPairs, "path"): "other pairs",
    (TokenizerFile, "path"): "other pieces",
    (DataSpec, "source_length"): 5,
    (DataSpec, "validation_fraction"): 0.4,
    (DataSpec, "test_fraction"): 0.4,
    (Synthetic, "task_seed"): 1,
    (PrefixLM, "smallest_prefix"): 0.6,
    (PrefixLM, "largest_prefix"): 0.9,
    (MaskedLM, "rate"): 0.9,
    (MaskedLM, "masked"): 0.8,
    (MaskedLM, "random"): 0.5,
    (SpanCorruption, "density"): 0.5,
    (SpanCorruption, "mean_length"): 1.0,
}
ONLY_REFUSED = {(HuggingFace, "configuration"), (DataSpec, "malformed")}
"""A folder has one configuration, and where lines are malformed the other value refuses them."""


def spec_of(objective, data):
    return run_of(objective, vocabulary=30_000, training=dict(batch_size=2), **data)


def fields_of(spec):
    """Yields class, path and hint of every field of what is read and asked."""
    for cls, path, hint in leaves(spec):
        if path.startswith(("data.", "objective.")):
            yield cls, path, hint


def others(spec, cls, path, hint):
    name, value = path.rpartition(".")[2], get(to_tree(spec), path)
    if typing.get_origin(hint) is typing.Literal:
        return [other for other in typing.get_args(hint) if other != value]
    if isinstance(value, int) and (cls, name) not in OTHERS:
        return [value - 1]
    return [OTHERS[cls, name]]


EVERY_FIELD = [
    pytest.param(name, cls, path, other, id=f"{name}: {path}={other}")
    for name, context in CONTEXTS.items()
    for cls, path, hint in fields_of(spec_of(*context))
    for other in others(spec_of(*context), cls, path, hint)
]
EVERY_KIND = [
    pytest.param(name, choice, other, id=f"{name}: {other.kind}")
    for name, (objective, data) in CONTEXTS.items()
    for choice, kinds in KINDS.items()
    for other in kinds
    if name not in TASKS[1:]
    if (name, choice) != ("one text", "tokenizer")  # 4 MB to learn from take seconds.
    if type(other) is not type((data | dict(objective=objective)).get(choice, Bytes()))
]


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory):
    with written(tmp_path_factory.mktemp("files")):
        yield


def asked(make):
    """Returns the first batches of every part and the report, or the reason of a refusal."""
    try:
        spec = make()
        corpus = load(spec.data, spec.objective)
        check_batch(corpus, spec)
    except SpecError as error:
        return str(error)
    training = TrainingBatches(corpus, spec)
    batches = [training[0], training[1]]
    for part in ("validation", "test"):
        batches += itertools.islice(evaluation_batches(corpus, part, spec), 2)
    arrays = [None if x is None else (x.shape, x.tobytes()) for batch in batches for x in batch]
    return corpus.report, arrays


ANSWERS = {}


def before(name):
    if name not in ANSWERS:
        ANSWERS[name] = asked(lambda: spec_of(*CONTEXTS[name]))
    assert not isinstance(ANSWERS[name], str), ANSWERS[name]
    return ANSWERS[name]


def with_other(name, path, other):
    if (name, path, other) not in ANSWERS:
        tree = to_tree(spec_of(*CONTEXTS[name]))
        found = asked(lambda: from_tree(replace(tree, {path: other})))
        ANSWERS[name, path, other] = found
    return ANSWERS[name, path, other]


@pytest.mark.parametrize(("name", "cls", "path", "other"), EVERY_FIELD)
def test_live_every_field_changes_what_is_asked_or_is_refused(name, cls, path, other):
    after = with_other(name, path, other)
    assert after != before(name)
    if isinstance(after, str):
        assert any(word in after for word in (*path.split(".")[1:], "too_long")), after


@pytest.mark.parametrize(("name", "choice", "other"), EVERY_KIND)
def test_live_every_kind_changes_what_is_asked_or_is_refused(name, choice, other):
    objective, data = CONTEXTS[name]
    changed = (other, data) if choice == "objective" else (objective, data | {choice: other})
    assert asked(lambda: spec_of(*changed)) != before(name)


def test_every_field_of_every_kind_is_live_somewhere():
    for choice, union in (("source", Source), ("tokenizer", Tokenizer), ("objective", Objective)):
        kinds = typing.get_args(union)
        assert {type(other) for other in KINDS[choice]} == set(kinds)
        chosen = [data | dict(objective=objective) for objective, data in CONTEXTS.values()]
        assert {type(context.get(choice, Bytes())) for context in chosen} == set(kinds)
    every = (DataSpec, *Source.__args__, *Tokenizer.__args__, *Objective.__args__)
    fields = {(cls, field.name) for cls in every for field in dataclasses.fields(cls)}
    live = {
        (cls, path.rpartition(".")[2])
        for name, cls, path, other in (case.values for case in EVERY_FIELD)
        if not isinstance(with_other(name, path, other), str)
    }
    choices = {(DataSpec, "source"), (DataSpec, "tokenizer")}
    assert live | choices | ONLY_REFUSED == fields
