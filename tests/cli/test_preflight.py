"""Tests that what a checkpoint may take is what its arrays take at most, under every rule."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny_run
from probe_fixture import probe

from jtransformer import accounting, records
from jtransformer.cli import preflight
from jtransformer.spec.optimizer import OptimizerSpec, Rule
from jtransformer.training import Program, parameter_key

SCALARS = 1000
"""Counts and sums, and one-element stand-ins, that are no moment."""


@pytest.mark.parametrize("average_decay", [None, 0.9], ids=str)
@pytest.mark.parametrize("rule", Rule.__args__, ids=lambda rule: rule.kind)
def test_a_checkpoint_takes_what_is_said_at_most_and_nearly(tmp_path, rule, average_decay):
    spec = tiny_run.run_spec(tmp_path, average_decay=average_decay)
    optimizer = OptimizerSpec(weight_decay=0.0, rule=rule())
    spec = dataclasses.replace(spec, optimizer=optimizer)
    state = jax.eval_shape(Program(spec)._start, parameter_key(0))
    held = sum(leaf.size for leaf in jax.tree.leaves(state))
    said = preflight.checkpoint_bytes(spec) - preflight.OVERHEAD_BYTES
    said //= preflight.CHECKPOINTS_ON_DISK * preflight.BYTES_PER_NUMBER
    assert held - SCALARS <= said
    assert said <= held + 0.9 * accounting.parameters(spec.model).total


def test_a_probe_takes_what_is_said_at_most(tmp_path):
    """Eight maps of the largest size, of numbers with all the digits that are kept."""
    found = probe(0, layers=4, heads=2, places=64)
    for one in found["maps"]:
        one["weights"] = np.round(np.random.default_rng(0).random((64, 64)), 5).tolist()
    records.write_json(tmp_path / "probe.json", found)
    taken = (tmp_path / "probe.json").stat().st_size
    assert 0.7 * preflight.PROBE_BYTES < taken <= preflight.PROBE_BYTES
    bare = tiny_run.run_spec(tmp_path)
    probed = tiny_run.run_spec(tmp_path, probe_steps=(0, 5, 10))
    more = preflight.checkpoint_bytes(probed) - preflight.checkpoint_bytes(bare)
    assert more == 3 * preflight.PROBE_BYTES
