"""Tests that a run with all that is random and remembered ends as if nothing had stopped it."""

import dataclasses
import threading

import jax
import numpy as np
import pytest
import tiny_run
from tiny_run import deterministic, stop_after

from jtransformer import records
from jtransformer.spec import Dropout, MaskedLM, OptimizerSpec, Patience, Precision
from jtransformer.training import Checkpoints, Hooks, Interrupted, Trainer, parameter_key

PROGRAMS = {}


def train(spec, directory, **hooks):
    trainer = Trainer(Hooks(**hooks))
    trainer._programs = PROGRAMS
    tiny_run.program(spec, PROGRAMS)
    return trainer.train(spec, directory)


def everything(spec, directory):
    """All that a run leaves without a clock: status, rows, and the last state."""
    files = records.RunFiles(directory)
    status, rows = deterministic(directory)
    start = tiny_run.program(spec, PROGRAMS).start(parameter_key(spec.seed))
    with Checkpoints(files, status["fingerprint"]) as checkpoints:
        step, state = checkpoints.restore_newest(start)
    return status, rows, step, state


def assert_same(found, expected):
    assert found[:3] == expected[:3]
    jax.tree.map(np.testing.assert_array_equal, found[3], expected[3])


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """A masked model with dropout and a mean of its parameters, undisturbed."""
    root = tmp_path_factory.mktemp("rich")
    spec = tiny_run.masked_run_spec(root, average_decay=0.7)
    model = dataclasses.replace(spec.model, dropout=Dropout(embedding=0.1, residual=0.2))
    spec = dataclasses.replace(spec, model=model, objective=MaskedLM(rate=0.3))
    train(spec, root / "run")
    return spec, root / "run"


@pytest.mark.parametrize("stops", [(4,), (1, 1, 5), (9,), (5, 0, 2)], ids=str)
def test_law_mean_dropout_and_masks_go_on_as_if_nothing_had_been(rich, tmp_path, stops):
    spec, directory = rich
    for updates in stops:
        with pytest.raises(Interrupted):
            train(spec, tmp_path / "run", should_stop=stop_after(updates))
        assert not [one for one in threading.enumerate() if one.name.startswith("batches")]
    train(spec, tmp_path / "run")
    assert_same(everything(spec, tmp_path / "run"), everything(spec, directory))


@pytest.mark.slow
def test_a_run_in_bfloat16_goes_on_as_if_nothing_had_been(rich, tmp_path):
    parts = dict.fromkeys(("stream", "attention", "ffn", "head"), "bfloat16")
    model = dataclasses.replace(rich[0].model, precision=Precision(**parts))
    spec = dataclasses.replace(rich[0], model=model)
    train(spec, tmp_path / "undisturbed")
    for updates in (1, 5):
        with pytest.raises(Interrupted):
            train(spec, tmp_path / "run", should_stop=stop_after(updates))
    train(spec, tmp_path / "run")
    found = everything(spec, tmp_path / "run")
    assert_same(found, everything(spec, tmp_path / "undisturbed"))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(found[3])} == {"float32", "int32"}
    # And it is another run than that in float32.
    assert found[0]["result"]["train_nll"] != everything(*rich)[0]["result"]["train_nll"]


def test_the_mean_is_what_is_evaluated(rich):
    spec, directory = rich
    state = everything(spec, directory)[3]
    table = "embedding", "table"
    raw, mean = (tree[table[0]][table[1]] for tree in (state.parameters, state.average))
    assert not np.allclose(raw, mean, atol=1e-5)
    bare = dataclasses.replace(spec, training=dataclasses.replace(spec.training,
                                                                  average_decay=None))  # fmt: skip
    plain = train(bare, directory.parent / "bare")["result"]
    found = records.read_json(records.RunFiles(directory).status)["result"]
    # The mean takes no part in training itself.
    assert plain["train_nll"] == found["train_nll"]
    assert plain["validation_nll"] != found["validation_nll"]
    assert plain["test_nll"] != found["test_nll"]


def test_scored_tokens_are_those_of_the_masks(rich):
    rows = everything(*rich)[1]
    counts = [row["scored_tokens"] for row in rows]
    assert all(0 < count < row["tokens"] for count, row in zip(counts, rows, strict=True))
    assert counts == sorted(counts) and counts[-1] > counts[0]


@pytest.fixture(scope="module")
def stalled(tmp_path_factory):
    """A run that gains too little and ends at its third evaluation."""
    root = tmp_path_factory.mktemp("stalled")
    spec = tiny_run.run_spec(
        root,
        steps=40,
        log_every=1,
        evaluate_every=2,
        checkpoint_every=1,
        early_stopping=Patience(evaluations=2, least_gain=0.5),
    )
    spec = dataclasses.replace(spec, optimizer=OptimizerSpec(learning_rate=1e-3))
    train(spec, root / "run")
    return spec, root / "run"


def test_a_run_without_gain_ends_early_and_is_done(stalled):
    status, rows, step, _ = everything(*stalled)
    result = status["result"]
    assert status["state"] == "done" and result["diverged_at"] is None
    assert result["stopped_early_at"] == result["steps"] == rows[-1]["step"] == step == 6
    assert result["validation_nll"] == rows[-1]["validation_nll"]
    assert result["test_nll"] is not None


@pytest.mark.parametrize("stops", [(2,), (3, 1), (5,)], ids=str)
def test_law_early_stopping_counts_the_rows_on_disk(stalled, tmp_path, stops):
    spec, directory = stalled
    for updates in stops:
        with pytest.raises(Interrupted):
            train(spec, tmp_path / "run", should_stop=stop_after(updates))
    train(spec, tmp_path / "run")
    assert_same(everything(spec, tmp_path / "run"), everything(spec, directory))


def test_a_kill_behind_the_last_checkpoint_makes_no_further_update(stalled, tmp_path):
    spec, directory = stalled
    train(spec, tmp_path / "run")
    records.RunFiles(tmp_path / "run").status.unlink()
    rows = []
    train(spec, tmp_path / "run", on_row=lambda spec, row: rows.append(row))
    assert not rows
    assert_same(everything(spec, tmp_path / "run"), everything(spec, directory))


def test_null_patience_that_is_never_exhausted_changes_nothing(stalled, tmp_path):
    spec, _ = stalled
    short = dataclasses.replace(spec.training, steps=6)
    for name, rule in (("a", Patience(evaluations=99)), ("b", short.early_stopping)):
        training = dataclasses.replace(short, early_stopping=rule)
        train(dataclasses.replace(spec, training=training), tmp_path / name)
    found = [records.read_json(tmp_path / name / "status.json")["result"] for name in "ab"]
    assert found[0] == found[1] and found[0]["stopped_early_at"] is None
