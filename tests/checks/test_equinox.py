"""A reader's model, written with Equinox, is judged; each mistake is caught by the law for it."""

import equinox as eqx
import pytest
import reader_equinox
from quickly import quickly
from reader_equinox import arguments, made

from jtransformer.checks import NAMES, run_all

# Each mistake, and the laws that it breaks among those that are judged.
CAUGHT = {
    "shifted mask": ("reach by perturbation", "labels stay hidden"),
    "leaking prefix": ("prefix",),
    "one-pass variance": ("definition of the norm",),
    "wrong cache index": ("cached decoding",),
    "no final norm": ("norm before the head",),
    "swapped pairing": ("rotary positions",),
    "batch statistics": ("other rows of the batch",),
    "heads of every other channel": ("order of heads",),
    "heads across tokens": ("reach by perturbation",),
}

SHIFT = "shift of the labels"


def saved(model, directory):
    """Saves a model as Equinox does, and reads it back."""
    eqx.tree_serialise_leaves(directory / "model.eqx", model)
    return eqx.tree_deserialise_leaves(directory / "model.eqx", model)


def test_a_right_model_keeps_the_laws_that_mistakes_break():
    given = arguments(made())
    laws = list(dict.fromkeys([*(name for names in CAUGHT.values() for name in names), SHIFT]))
    report = run_all(given.pop("apply"), **given, laws=laws)
    assert {row.verdict for row in report.rows} == {"pass"}, report.rows
    assert [row.name for row in report.rows] == [name for name in NAMES if name in laws]


@pytest.mark.slow
def test_a_right_model_keeps_every_law_that_it_can_be_judged_by(tmp_path):
    given = arguments(made(), most=None)
    report = run_all(given.pop("apply"), **given, save_and_restore=lambda m: saved(m, tmp_path))
    assert report.passed, report.failures
    assert tuple(row.name for row in report.rows) == NAMES
    assert sum(row.verdict == "pass" for row in report.rows) >= 24
    for row in report.rows:
        if row.verdict == "not applicable":
            assert row.detail and row.figure is None


@pytest.mark.parametrize("fault", CAUGHT)
def test_a_mistake_is_caught_by_the_law_for_it(fault):
    given = arguments(made(fault))
    found = run_all(given.pop("apply"), **given, laws=CAUGHT[fault])
    assert {row.name for row in found.failures} == set(CAUGHT[fault]), found.rows


@pytest.mark.parametrize("shift", [0, 2])
def test_a_missing_or_doubled_shift_is_named(shift):
    given = arguments(made(), shift)
    found = run_all(given.pop("apply"), **given, laws=[SHIFT])
    row = found[SHIFT]
    assert not found.passed and f"that of labels {shift} on" in row.detail


def test_nothing_that_is_no_number_passes():
    model = made()
    broken = eqx.tree_at(lambda m: m.layers[0].out, model, model.layers[0].out * float("nan"))
    given = arguments(broken)
    # One of each kind of comparison; the parameters have a part in all.
    laws = (
        "reach by perturbation",
        "labels stay hidden",
        "padding is invisible",
        "other rows of the batch",
        "order of tokens",
        "shift of the labels",
        "sharing after restoring",
        "same bits again",
    )
    found = run_all(given.pop("apply"), **given, laws=laws, save_and_restore=lambda m: m)
    assert [row.verdict for row in found.rows] == ["fail"] * len(laws), found.rows


def test_a_reader_needs_three_arguments_only():
    model = made()
    call = quickly(lambda tokens: model(tokens))
    found = run_all(call, vocabulary=reader_equinox.V, length=4)
    assert found.passed
    judged = {row.name for row in found.rows if row.verdict == "pass"}
    assert {"reach by perturbation", "a row alone", "teacher forcing"} <= judged
    assert "not given" in found["cached decoding"].detail
