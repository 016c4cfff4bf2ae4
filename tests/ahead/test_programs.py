"""Tests for jtransformer.ahead.programs that lower and do not compile."""

import dataclasses
import hashlib

import pytest
import tiny_run
from quickly import quickly

from jtransformer.accounting import parameters
from jtransformer.ahead import Decoding, compile_run, programs_of, topology
from jtransformer.ahead.programs import decoding_of, device_bytes, lower
from jtransformer.data import TrainingBatches, load
from jtransformer.spec import Dropout, Layout, RMSNorm
from jtransformer.training import Program, dropout_key, hyperparameters, parameter_key

ALONE = Layout()


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    base = tiny_run.run_spec(tmp_path_factory.mktemp("text"))
    model = dataclasses.replace(base.model, dropout=Dropout(residual=0.1))
    return dataclasses.replace(base, model=model)


@pytest.fixture(scope="module")
def lowered(spec):
    return lower("train", spec, topology("local"), ALONE, decoding_of(spec))


def test_the_update_is_the_one_of_real_arrays(spec, lowered):
    """Of a state that was begun, a batch of the corpus, and the run's own numbers and key."""
    program = Program(spec, quickly)
    state = program.start(parameter_key(spec.seed))
    batch = TrainingBatches(load(spec.data, spec.objective), spec)[0]
    real = program.update.lower(state, batch, hyperparameters(spec), dropout_key(spec))
    assert lowered.fingerprint == hashlib.sha256(real.as_text().encode()).hexdigest()


def test_live_the_fingerprint_follows_the_program_alone(spec, lowered):
    def fingerprint(changed):
        return lower("train", changed, topology("local"), ALONE, Decoding(1, 1)).fingerprint

    assert fingerprint(dataclasses.replace(spec, seed=5)) == lowered.fingerprint
    model = dataclasses.replace(spec.model, norm=RMSNorm())
    assert fingerprint(dataclasses.replace(spec, model=model)) != lowered.fingerprint


def test_what_is_held_is_counted_by_kind(spec, lowered):
    weights = 4 * parameters(spec.model).total
    held = {kind: device_bytes(tree) for kind, tree in lowered.held.items()}
    rows = 4 * spec.training.batch_size * spec.data.length
    # Two numbers per parameter and a counter; ids, labels and weights.
    assert held == {
        "parameters": weights,
        "optimizer": 2 * weights + 4,
        "average": 0,
        "batch": 3 * rows,
    }


def test_an_encoder_does_not_decode(tmp_path):
    spec = tiny_run.masked_run_spec(tmp_path)
    assert programs_of(spec) == ("train",)
    with pytest.raises(ValueError, match="An encoder .* has no cache"):
        compile_run(spec, "local", ALONE, what=("decode",))
