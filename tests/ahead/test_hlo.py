"""Tests for jtransformer.ahead.hlo."""

import jax
import jax.numpy as jnp
import pytest
from ahead.hlo_texts import KNOWN, NESTED, UNKNOWN

from jtransformer.ahead.hlo import Shape, parse


def times(text):
    """Returns how often each computation runs."""
    return {run.computation.name: run.times for run in parse(text).runs()}


def test_a_loop_in_a_loop_runs_as_often_as_both_say():
    """0, 2, 4, 6, 8 is five turns, 4, 5, 6 three."""
    assert times(NESTED) == {"main": 1, "outer_body": 5, "inner_body": 15}


def test_a_number_that_is_written_down_comes_first():
    assert times(KNOWN) == {"main": 1, "outer_body": 5, "inner_body": 55}


def test_a_loop_of_unknown_length_counts_once_and_is_told():
    assert times(UNKNOWN) == {"main": 1, "outer_body": 1, "inner_body": 3}
    assert [parse(text).unknown_loops() for text in (NESTED, KNOWN, UNKNOWN)] == [0, 0, 1]


def test_shapes_have_their_place_and_size():
    body = parse(NESTED).computations["inner_body"]
    assert body.instructions["x"].result == (Shape("f32", (4, 8), 1),)
    assert body.instructions["p"].result == (Shape("s32", (), 0), Shape("f32", (4, 8), 1))
    assert body.instructions["x"].result[0].nbytes == 128
    assert Shape("s4", (3,), 0).nbytes == 2
    assert parse(NESTED).partitions == 8


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_compiled_scan_runs_its_body_that_often(length):
    def f(x):
        return jax.lax.scan(lambda x, _: (jnp.sin(x) @ x, None), x, length=length)[0]

    text = jax.jit(f).lower(jnp.ones((8, 8))).compile().as_text()
    program = parse(text)
    counted = sum(
        run.times
        for run in program.runs()
        for one in run.computation.instructions.values()
        if one.opcode == "dot" or "matmul" in one.attributes
    )
    assert counted == length
    assert program.unknown_loops() == 0
