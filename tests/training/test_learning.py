"""Tests that every rule, schedule and objective lowers the loss of the tiny run."""

import dataclasses
import itertools

import pytest
import tiny_run

from jtransformer import data, records
from jtransformer.spec import (
    Adafactor,
    Adam,
    AdamW,
    Constant,
    DataSpec,
    Encoder,
    EncoderDecoder,
    Lion,
    MaskedLM,
    Muon,
    OptimizerSpec,
    PrefixDecoder,
    PrefixLM,
    Seq2Seq,
    Sgd,
    SpanCorruption,
    Synthetic,
    Words,
)
from jtransformer.spec.optimizer import Rule
from jtransformer.training import dropout_key, hyperparameters, mean_nll, parameter_key, run

UPDATES = 30
RATES = {AdamW: 1e-2, Adam: 1e-2, Adafactor: 3e-2, Lion: 3e-3, Sgd: 0.1, Muon: 1e-2}
"""A usual rate of each rule: Lion's a third of Adam's, that of SGD far above."""


def losses(spec):
    """The validation loss before and after some updates."""
    corpus = data.load(spec.data, spec.objective)
    program, batches = tiny_run.program(spec, {}), data.TrainingBatches(corpus, spec)
    evaluation = list(itertools.islice(data.evaluation_batches(corpus, "validation", spec), 4))
    state = program.start(parameter_key(spec.seed))
    before = mean_nll(program, state.evaluated, evaluation)
    for t in range(UPDATES):
        state = program.update(state, batches[t], hyperparameters(spec), dropout_key(spec))
    return before, mean_nll(program, state.evaluated, evaluation)


@pytest.mark.parametrize("kind", RATES, ids=lambda kind: kind.kind)
def test_every_rule_lowers_the_loss(tmp_path, kind):
    optimizer = OptimizerSpec(
        learning_rate=RATES[kind], weight_decay=0.0 if kind is Adam else 0.1, rule=kind()
    )
    spec = dataclasses.replace(
        tiny_run.run_spec(tmp_path), optimizer=optimizer, schedule=Constant()
    )
    before, after = losses(spec)
    assert after < before - 0.3


def test_every_rule_has_a_rate():
    assert set(RATES) == set(Rule.__args__)


def objectives(directory):
    """The tiny run on every objective: texts as they are, and pairs that are made up."""
    base = tiny_run.run_spec(directory)
    pairs = DataSpec(
        source=Synthetic(symbols=4, smallest=2, largest=5, examples=500),
        tokenizer=Words(),
        length=16,
        source_length=16,
        rows="padded",
    )
    stack = EncoderDecoder(encoder_layers=1)
    chosen = {
        "masked": (MaskedLM(), base.data, Encoder()),
        "prefix": (PrefixLM(), base.data, PrefixDecoder()),
        "seq2seq": (Seq2Seq(), pairs, stack),
        "spans": (SpanCorruption(), base.data, stack),
    }
    return {
        name: dataclasses.replace(
            base,
            model=dataclasses.replace(base.model, stack=stack, vocabulary=300),
            data=data,
            objective=objective,
        )
        for name, (objective, data, stack) in chosen.items()
    }


@pytest.mark.parametrize(
    "name",
    [
        "seq2seq",
        pytest.param("masked", marks=pytest.mark.slow),
        pytest.param("prefix", marks=pytest.mark.slow),
        pytest.param("spans", marks=pytest.mark.slow),
    ],
)
def test_every_objective_lowers_its_loss(tmp_path, name):
    before, after = losses(objectives(tmp_path)[name])
    assert after < before - 0.3


def test_the_tokens_of_a_row_of_spans_are_those_of_its_target(tmp_path):
    spec = objectives(tmp_path)["spans"]
    training = dataclasses.replace(spec.training, steps=2, evaluate_every=2, batch_size=4)
    spec = dataclasses.replace(spec, training=training)
    batch = data.TrainingBatches(data.load(spec.data, spec.objective), spec)[0]
    run(run_specs=[spec], workdir=tmp_path / "runs")
    (rows,) = map(records.read_rows, (tmp_path / "runs").glob("*/metrics.jsonl"))
    assert batch.tokens.shape[1] < spec.data.length
    assert rows[-1]["tokens"] == 2 * batch.tokens.size
