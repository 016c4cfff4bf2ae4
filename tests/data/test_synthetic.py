"""Tests for jtransformer.data.synthetic."""

import hashlib
import itertools
import re

import pytest

from jtransformer.data import load
from jtransformer.data.synthetic import TASKS, read_synthetic
from jtransformer.spec import Bytes, DataSpec, Seq2Seq, SpecError, Synthetic, Words

SETTINGS = {
    "copy": dict(symbols=5, smallest=2, largest=6, examples=300),
    "reverse": dict(symbols=5, smallest=2, largest=6, examples=300),
    "sort": dict(symbols=12, smallest=2, largest=6, examples=300),
    "recall": dict(symbols=9, smallest=1, largest=4, examples=300),
    "induction": dict(symbols=5, smallest=3, largest=6, examples=300),
    "parity": dict(symbols=2, smallest=3, largest=9, examples=300),
    "addition": dict(symbols=23, smallest=2, largest=2, examples=300),
}
DIGESTS = {
    "copy": "c2121fd185d65413",
    "reverse": "51b995c5ee08a732",
    "sort": "994caf706f8f1b32",
    "recall": "355e7d3d441e2477",
    "induction": "690c61f65b1b21bb",
    "parity": "99f4a5b6e4b2c9f0",
    "addition": "3bd5781d5d16259a",
}
EVERY_TASK = pytest.mark.parametrize("task", list(SETTINGS))


def source_of(task, **change):
    return Synthetic(task=task, **(SETTINGS[task] | change))


def pairs_of(source):
    return [(example.source, example.target) for example in read_synthetic(source)]


def answer(task, source, s):
    """The right answer, from the text of the source alone."""
    if task == "recall":
        shown, asked = (part.split() for part in source.split(" ? "))
        values = dict(zip(shown[::2], shown[1::2], strict=True))
        assert len(values) == len(asked) == len(set(asked))
        assert all(int(key) < s // 2 <= int(value) for key, value in values.items())
        return " ".join(f"{key} {values[key]}" for key in asked)
    if task == "induction":
        found = re.findall(rf"(?<!\d){source.split()[-1]} (\d+)", source)
        assert len(found) == 1
        return found[0]
    numbers = [int(number) for number in source.split()]
    assert all(0 <= number < s for number in numbers)
    match task:
        case "copy":
            return source
        case "reverse":
            return " ".join(map(str, reversed(numbers)))
        case "sort":
            counted = [str(i) for i in range(s) for _ in range(numbers.count(i))]
            return " ".join(counted)
        case "parity":
            return " ".join(str(p) for p in itertools.accumulate(numbers, lambda a, b: a ^ b))
        case "addition":
            return str(sum(numbers) % s)


def size(task, source):
    words = source.split()
    return words.index("?") // 2 if task == "recall" else len(words)


@EVERY_TASK
def test_every_answer_is_right(task):
    source = source_of(task)
    for given, target in pairs_of(source):
        assert target == answer(task, given, source.symbols)


@EVERY_TASK
def test_no_two_examples_are_equal_and_all_sizes_occur(task):
    source = source_of(task)
    pairs = pairs_of(source)
    assert len(pairs) == len({given for given, _ in pairs}) == 300
    sizes = {size(task, given) for given, _ in pairs}
    assert sizes == set(range(source.smallest, source.largest + 1))


@EVERY_TASK
def test_law_no_source_is_in_two_parts(task):
    data = DataSpec(source=source_of(task), rows="padded", length=30, tokenizer=Words())
    corpus = load(data)
    parts = [
        {part.source(i).tobytes() for i in range(len(part))}
        for part in (corpus.train, corpus.validation, corpus.test)
    ]
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])
    assert sum(map(len, parts)) == 300


def everything(task, symbols, n):
    """Every example of one size, from all sequences of symbols."""
    return [TASKS[task].example(i, n, symbols) for i in range(TASKS[task].count(n, symbols))]


@pytest.mark.parametrize("task", ["copy", "reverse", "sort", "parity", "addition"])
@pytest.mark.parametrize(("symbols", "n"), [(2, 1), (2, 4), (3, 2), (7, 2)])
def test_every_sequence_has_one_number(task, symbols, n):
    n = 2 if task == "addition" else n
    found = sorted(tuple(pair.source) for pair in everything(task, symbols, n))
    assert found == sorted(itertools.product(range(symbols), repeat=n))


@pytest.mark.parametrize(("symbols", "n"), [(2, 3), (2, 5), (3, 4), (4, 3)])
def test_every_question_of_induction_has_one_number(symbols, n):
    expected = [
        sequence
        for sequence in itertools.product(range(symbols), repeat=n)
        if sequence.count(sequence[-1]) == 2 and sequence[-2] != sequence[-1]
    ]
    assert sorted(tuple(p.source) for p in everything("induction", symbols, n)) == expected


@pytest.mark.parametrize(("symbols", "n"), [(2, 1), (4, 1), (5, 2), (6, 2)])
def test_every_question_of_recall_has_one_number(symbols, n):
    half = symbols // 2
    expected = set()
    for keys in itertools.permutations(range(half), n):
        for values in itertools.product(range(half, symbols), repeat=n):
            shown = [x for pair in zip(keys, values, strict=True) for x in pair]
            for asked in itertools.permutations(keys):
                expected.add((*shown, "?", *asked))
    found = [tuple(pair.source) for pair in everything("recall", symbols, n)]
    assert len(found) == len(set(found)) and set(found) == expected


@EVERY_TASK
@pytest.mark.parametrize("symbols", [2, 3])
def test_all_that_exist_can_be_asked_for_and_no_more(task, symbols):
    change = dict(symbols=symbols, smallest=3, largest=5)
    if task == "recall":
        change = dict(symbols=symbols + 3, smallest=1, largest=2)
    if task == "parity":
        change = dict(smallest=3, largest=5)
    if task == "addition":
        change = dict(symbols=symbols + 3)
    source = source_of(task, examples=10, **change)
    counts = [
        TASKS[task].count(n, source.symbols) for n in range(source.smallest, source.largest + 1)
    ]
    exist = sum(counts)
    assert len(set(pairs_of(source_of(task, **change, examples=exist)))) == exist
    with pytest.raises(SpecError) as caught:
        read_synthetic(source_of(task, **change, examples=exist + 1))
    assert str(caught.value).startswith(
        f"data.source.synthetic.examples = {exist + 1}, but there are only {exist} different "
        f"examples of task {task!r} with symbols={source.symbols}, smallest={source.smallest}, "
    )
    assert str(caught.value).endswith(f"use at most {exist}.")


def test_sizes_are_dealt_evenly_as_far_as_they_reach():
    pairs = pairs_of(source_of("copy", symbols=2, smallest=1, largest=8, examples=100))
    sizes = [len(given.split()) for given, _ in pairs]
    assert [sizes.count(n) for n in range(1, 9)] == [2, 4, 8, 16, 17, 17, 18, 18]
    # Mixed, not one size after another.
    assert len(set(sizes[:20])) > 3


def test_many_more_than_a_machine_number_can_count():
    source = source_of("copy", symbols=10_000, smallest=100, largest=100, examples=50)
    symbols = [int(symbol) for given, _ in pairs_of(source) for symbol in given.split()]
    assert len(symbols) == 5000 and max(symbols) > 9900
    # The mean of 5,000 uniform numbers, within four standard errors.
    assert abs(sum(symbols) / 5000 - 4999.5) < 4 * 10_000 / (12 * 5000) ** 0.5


@EVERY_TASK
def test_null_the_same_seed_gives_the_same_examples(task):
    assert pairs_of(source_of(task, task_seed=3)) == pairs_of(source_of(task, task_seed=3))


CHANGES = [
    dict(task_seed=1),
    dict(symbols=6),
    dict(smallest=3),
    dict(largest=7),
    dict(examples=301),
    dict(task="reverse"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_live_every_setting_changes_the_examples(change):
    task = change.get("task", "copy")
    rest = {name: value for name, value in change.items() if name != "task"}
    assert pairs_of(source_of(task, **rest)) != pairs_of(source_of("copy"))


@pytest.mark.parametrize(("task", "digest"), DIGESTS.items())
def test_the_examples_are_those_of_record(task, digest):
    """Drawn from SHA-256, so that no release of a library and no machine changes them."""
    text = "".join(f"{given}\t{target}\n" for given, target in pairs_of(source_of(task)))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("task", "change", "problem"),
    [
        ("parity", dict(symbols=16), "symbols = 16, but task 'parity' is about bits; use 2."),
        ("addition", dict(largest=3), "smallest = 2 and largest = 3, but task 'addition' has two"),
        ("addition", dict(smallest=1), "smallest = 1 and largest = 2, but task 'addition'"),
        ("induction", dict(smallest=2), "smallest = 2, but task 'induction' needs a token"),
        ("recall", dict(largest=5), "largest = 5 pairs need as many keys, but half of symbols=9"),
    ],
)
def test_error_settings_that_do_not_fit_the_task(task, change, problem):
    with pytest.raises(SpecError) as caught:
        read_synthetic(source_of(task, **change))
    assert str(caught.value).startswith(f"data.source.synthetic.{problem}")


@EVERY_TASK
def test_words_give_one_id_a_symbol_and_bytes_work_too(task):
    source = source_of(task)
    data = DataSpec(source=source, rows="padded", length=40, source_length=80, tokenizer=Words())
    corpus = load(data, Seq2Seq())
    extra = task == "recall"
    assert corpus.tokenizer.pieces == source.symbols + extra + 1
    for i in range(5):
        text = corpus.tokenizer.decode(corpus.train.source(i))
        assert len(corpus.train.source(i)) == len(text.split())
        assert [corpus.tokenizer.decode(r) for r in corpus.train.references(i)] == [
            answer(task, text, source.symbols)
        ]
    plain = load(DataSpec(source=source, rows="padded", length=99, tokenizer=Bytes()))
    assert plain.tokenizer.decode(plain.train.source(0)) == corpus.tokenizer.decode(
        corpus.train.source(0)
    )
