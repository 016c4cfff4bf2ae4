"""Tests of updates in bfloat16: what is remembered stays float32, and losses move by roundings."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny_run

from jtransformer.data import blank_batch
from jtransformer.spec import Adam, OptimizerSpec, Precision
from jtransformer.spec.optimizer import Rule
from jtransformer.training import Program, dropout_key, hyperparameters, parameter_key

PARTS = tuple(field.name for field in dataclasses.fields(Precision))
RULES = {rule.kind: rule() for rule in Rule.__args__}
UNIT = 2.0**-9
"""Half the distance of 1 from the next number of bfloat16."""
B, T = 4, 16


def run_of(root, *parts, rule=None):
    """Returns a run with parts in bfloat16."""
    spec = tiny_run.run_spec(root, average_decay=0.9)
    optimizer = spec.optimizer
    if rule is not None:
        decay = 0.0 if isinstance(rule, Adam) else 0.1
        optimizer = OptimizerSpec(learning_rate=1e-2, weight_decay=decay, rule=rule)
    precision = Precision(**dict.fromkeys(parts, "bfloat16"))
    model = dataclasses.replace(spec.model, precision=precision)
    return dataclasses.replace(spec, model=model, optimizer=optimizer)


@pytest.mark.parametrize("kind", RULES)
def test_whatever_the_rule_an_optimizer_remembers_float32(tmp_path, kind):
    """An update is traced and not compiled."""
    spec = run_of(tmp_path, *PARTS, rule=RULES[kind])
    program = Program(spec)
    arguments = program.abstract(blank_batch(spec))
    trees = arguments[0], jax.eval_shape(program.step, *arguments)
    before, after = ([(x.dtype.name, x.shape) for x in jax.tree.leaves(tree)] for tree in trees)
    assert before == after
    assert {name for name, _ in after} == {"float32", "int32"}


def updated(spec):
    """Returns the mean loss and the size of the gradients over two updates."""
    program = tiny_run.program(spec, {})
    state = program.start(parameter_key(0))
    ids = np.random.default_rng(0).integers(0, 256, (2, B, T + 1)).astype(np.int32)
    for own in ids:
        weights = np.ones((B, T), np.float32)
        batch = blank_batch(spec)._replace(
            tokens=own[:, :-1], labels=own[:, 1:], weights=weights
        )  # fmt: skip
        state = program.update(state, batch, hyperparameters(spec), dropout_key(spec))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(state)} == {"float32", "int32"}
    tally = jax.device_get(state.tally)
    return float(tally.loss_sum / tally.weight_sum), float(tally.gradient_norm_sum)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return updated(run_of(tmp_path_factory.mktemp("plain")))


@pytest.mark.slow
@pytest.mark.parametrize("parts", [*((part,) for part in PARTS), PARTS], ids="+".join)
def test_each_part_in_bfloat16_moves_the_losses_by_roundings(tmp_path, plain, parts):
    """The mean of 128 losses near ln 256 moves by less than one rounding of each of them.

    A gradient passes through ten rounded products.
    """
    loss, norm = updated(run_of(tmp_path, *parts))
    assert loss != plain[0] and abs(loss - plain[0]) < UNIT * plain[0]
    assert norm != plain[1] and abs(norm - plain[1]) < 10 * UNIT * plain[1]
