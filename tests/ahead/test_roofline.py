"""Tests for jtransformer.ahead.roofline and the operations that go into it."""

import dataclasses

import numpy as np
import pytest

from jtransformer.accounting import chip, flops
from jtransformer.ahead import Decoding, Work, roofline
from jtransformer.ahead.roofline import ATTAINED
from jtransformer.ahead.work import decoding_work, training_work
from jtransformer.spec import LossSpec, ModelSpec, RunSpec

V5E = chip("v5e")
# On 4 chips: 2 s of operations, 1 s of memory, 0.5 s of network.
WORK = Work(4 * 1.5 * V5E.flops, 4 * 0.5 * V5E.flops, 819e9, 100e9, 1000)


def test_a_step_is_as_long_as_its_greatest_part():
    found = roofline(WORK, V5E, devices=4)
    parts = (found.compute_seconds, found.memory_seconds, found.network_seconds)
    np.testing.assert_allclose(parts, (2.0, 1.0, 0.5))
    assert found.bound == "compute"
    times = (found.seconds_at_least, found.seconds, found.seconds_at_most)
    np.testing.assert_allclose(times, (2.0, 2.0 / ATTAINED, 3.5 / ATTAINED))
    np.testing.assert_allclose(found.tokens_per_second, 1000 / found.seconds)
    # What is computed again is no use: three quarters of the operations are the model's.
    np.testing.assert_allclose(found.utilisation, 0.75 * ATTAINED)


@pytest.mark.parametrize(
    ("change", "bound"),
    [
        (dict(memory_bytes=3 * 819e9), "memory"),
        (dict(network_bytes=600e9), "network"),
        (dict(extra_flops=0, model_flops=1), "memory"),
    ],
)
def test_live_each_part_may_bind(change, bound):
    found = roofline(WORK._replace(**change), V5E, devices=4)
    assert found.bound == bound
    assert found.seconds != roofline(WORK, V5E, devices=4).seconds


def test_live_the_chip_and_their_number_count():
    base = roofline(WORK, V5E, devices=4)
    assert roofline(WORK, chip("v5p"), devices=4).seconds < base.seconds
    assert roofline(WORK, V5E, devices=8).compute_seconds == base.compute_seconds / 2


MODEL = ModelSpec(width=16, layers=3, heads=4, ffn_width=32)
RUN = RunSpec(model=MODEL)
TOKENS = RUN.training.batch_size * RUN.data.length


def extra(**model):
    run = dataclasses.replace(RUN, model=dataclasses.replace(MODEL, **model))
    return training_work(run, memory_bytes=0, network_bytes=0).extra_flops


def test_what_is_computed_again_is_counted_apart():
    forward = flops(MODEL, length=RUN.data.length)
    found = training_work(RUN, memory_bytes=1, network_bytes=2)
    assert found == Work(forward.training * TOKENS, 0, 1, 2, TOKENS)
    assert extra(rematerialize="elementwise") == 0
    assert extra(rematerialize="everything") == TOKENS * (forward.forward - forward.head)
    assert extra(rematerialize="attention") == TOKENS * forward.scores / 2
    chunked = dataclasses.replace(RUN, loss=LossSpec(chunk=64))
    again = training_work(chunked, memory_bytes=0, network_bytes=0).extra_flops
    assert again == TOKENS * forward.head


def test_decoding_is_one_token_of_every_row():
    found = decoding_work(RUN, Decoding(5, 40), memory_bytes=1, network_bytes=2)
    assert found == Work(5 * flops(MODEL, length=40).decoding, 0, 1, 2, 5)
