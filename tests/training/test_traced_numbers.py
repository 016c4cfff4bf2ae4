"""Tests that loss and dropout rates are data to a program, and that only their presence is not."""

import dataclasses

import chex
import numpy as np
import pytest
import tiny_run
from quickly import quickly

from jtransformer import data
from jtransformer.spec import Dropout, LossSpec
from jtransformer.training import (
    Program,
    dropout_key,
    hyperparameters,
    parameter_key,
    program_key,
)

NUMBERS = {
    "model": {
        "dropout": {"embedding": (0.1, 0.6), "attention": (0.2, 0.7), "ffn": (0.3, 0.8),
                    "residual": (0.4, 0.1)},
    },
    "loss": {"label_smoothing": (0.1, 0.4), "z_loss": (1e-3, 0.1)},
    "optimizer": {"learning_rate": (1e-2, 0.5), "weight_decay": (0.1, 9.0),
                  "gradient_clip": (1.0, 0.01)},
    "schedule": {"warmup_steps": (2, 1), "final_fraction": (0.1, 0.9)},
    "training": {"steps": (10, 30), "average_decay": (0.9, 0.2)},
}  # fmt: skip
"""Every number that is data: that of the run, and another."""


def replaced(spec, values):
    """Returns a spec with the values of a tree."""
    parts = {
        name: replaced(getattr(spec, name), value) if isinstance(value, dict) else value
        for name, value in values.items()
    }
    return dataclasses.replace(spec, **parts)


def paths(tree, before=()):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from paths(value, (*before, name))
        else:
            yield (*before, name), value


def at(path, value):
    """Returns the tree that holds one value."""
    for name in reversed(path):
        value = {name: value}
    return value


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    spec = tiny_run.run_spec(tmp_path_factory.mktemp("numbers"))
    for path, (value, _) in paths(NUMBERS):
        spec = replaced(spec, at(path, value))
    return spec


@pytest.fixture(scope="module")
def trained(spec):
    """Returns a function that trains a run for four updates by the one program there is."""
    program = Program(spec)
    start = quickly(program._start)(parameter_key(0))
    update = quickly(chex.assert_max_traces(program.step, n=1))
    batch = data.TrainingBatches(data.load(spec.data), spec)[0]

    def train(run):
        state = start
        for _ in range(4):
            state = update(state, batch, hyperparameters(run), dropout_key(run))
        return np.asarray(state.evaluated["embedding"]["table"]), float(state.tally.loss_sum)

    return train


def test_a_grid_over_every_number_is_traced_once_and_each_is_live(spec, trained):
    before = trained(spec)
    for path, (_, other) in paths(NUMBERS):
        run = replaced(spec, at(path, other))
        assert program_key(run) == program_key(spec), path
        assert not np.array_equal(trained(run)[0], before[0]), path
    np.testing.assert_array_equal(trained(spec)[0], before[0])


@pytest.mark.parametrize(
    "path", [path for path, _ in paths(NUMBERS) if path[0] in ("model", "loss")]
)
def test_null_a_number_of_0_is_the_program_without_it(spec, path):
    """A rate of 0 is no rate that happens to be small: the program has no such part at all."""
    absent = replaced(spec, at(path, 0.0))
    assert program_key(absent) != program_key(spec)
    written = program_key(absent)
    for name in path:
        written = getattr(written, name)
    assert written == 0.0


def test_every_number_of_loss_and_dropout_is_data():
    for kind, part in (Dropout, NUMBERS["model"]["dropout"]), (LossSpec, NUMBERS["loss"]):
        # A chunk is a size.
        assert set(part) == {field.name for field in dataclasses.fields(kind)} - {"chunk"}
