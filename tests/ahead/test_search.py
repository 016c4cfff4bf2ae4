"""Tests of the search over layouts, rematerialisations and microbatches."""

import dataclasses
import math

import jax
import pytest
import tiny_run

from jtransformer import ahead
from jtransformer.accounting import chip, parameters
from jtransformer.ahead.candidates import COMPUTED_AGAIN, Candidate, expected, state_bytes
from jtransformer.ahead.memory import DeviceMemory
from jtransformer.ahead.roofline import Work, roofline
from jtransformer.spec import (
    Adafactor,
    Layout,
    LossSpec,
    ModelSpec,
    OptimizerSpec,
    Precision,
    Sgd,
)
from jtransformer.training import Program, parameter_key

V5E = chip("v5e")
MODEL = ModelSpec(width=24, layers=3, heads=6, ffn_width=36, scan_layers=True)


@pytest.fixture
def run(tmp_path):
    """A run of 8 rows of 16 tokens whose width, heads and tokens have other divisors."""
    spec = tiny_run.run_spec(tmp_path, batch_size=8)
    return dataclasses.replace(spec, model=MODEL)


def shapes(spec):
    return jax.eval_shape(Program(spec).start, parameter_key(0))


def test_layouts_are_all_products_that_divide_the_run(run):
    found = ahead.layouts(run, 12)
    # 3 divides heads, hidden units and width, but neither rows nor tokens.
    assert {layout.sizes for layout in found} == {
        (data, fsdp, 3 * tensor, sequence)
        for data in (1, 2, 4)
        for fsdp in (1, 2, 4)
        for tensor in (1, 2)
        for sequence in (1, 2, 4)
        if data * fsdp * tensor * sequence == 4
    }
    assert len(found) == len(set(found))
    sharded = [layout for layout in found if layout.shard_optimizer]
    assert {layout.sizes for layout in sharded} == {one.sizes for one in found if one.data > 1}
    assert not ahead.layouts(run, 5)


@pytest.mark.parametrize(
    "change", [dict(width=22, heads=2), dict(heads=3), dict(ffn_width=37), dict(heads=12)]
)
def test_live_each_size_of_the_model_changes_the_layouts(run, change):
    # 8 devices over width and heads, whatever else.
    other = dataclasses.replace(run, model=dataclasses.replace(MODEL, **change))
    assert ahead.layouts(run, 8) != ahead.layouts(other, 8)


def test_microbatches_divide_the_rows_of_a_device_and_keep_a_chunk_alive(run):
    found = ahead.candidates(run, [Layout(fsdp=2)])
    assert {one.microbatches for one in found} == {1, 2, 4}
    assert {one.rematerialize for one in found} == set(COMPUTED_AGAIN)
    assert len(found) == 3 * len(COMPUTED_AGAIN)
    chunked = dataclasses.replace(run, loss=LossSpec(chunk=60))
    # 4 microbatches are 32 positions each: a chunk of 60 would do nothing.
    assert {one.microbatches for one in ahead.candidates(chunked, [Layout(fsdp=2)])} == {1, 2}
    # Of 9 rows a device has 4 or 5: 2 and 4 divide its rows, and not the batch.
    odd = dataclasses.replace(run, training=dataclasses.replace(run.training, batch_size=9))
    assert {one.microbatches for one in ahead.candidates(odd, [Layout(data=2)])} == {1}
    for one in found:
        assert one.applied(run).training.microbatches == one.microbatches
        assert one.applied(run).model.rematerialize == one.rematerialize


@pytest.mark.parametrize("rule", [OptimizerSpec().rule, Adafactor()])
def test_the_share_of_the_state_is_that_of_the_arrays(run, rule):
    spec = dataclasses.replace(run, optimizer=OptimizerSpec(rule=rule))
    state = shapes(spec)
    whole = state_bytes(state, Layout())
    assert whole.parameters == 4 * parameters(MODEL).total
    held = (state.parameters, state.optimizer)
    assert whole.state == sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(held))
    for layout in (Layout(fsdp=4), Layout(tensor=2), Layout(fsdp=2, tensor=3)):
        own = state_bytes(state, layout)
        assert whole.parameters / layout.devices <= own.parameters < whole.parameters
        assert own.state < whole.state
    assert state_bytes(state, Layout(data=4)) == whole


def test_an_average_is_held_beside_the_parameters(run):
    averaging = dataclasses.replace(run.training, average_decay=0.9)
    own, plain = (
        state_bytes(shapes(dataclasses.replace(run, training=averaging)), FSDP),
        state_bytes(shapes(run), FSDP),
    )
    assert own.state == plain.state + plain.parameters


FSDP = Layout(fsdp=4)


def predicted(run, layout=FSDP, rematerialize="nothing", microbatches=1):
    one = Candidate(layout, rematerialize, microbatches)
    return expected(run, one, state_bytes(shapes(run), layout), V5E)


def test_expectations_move_as_the_schemes_say(run):
    plain = predicted(run)
    # Each microbatch gathers the parameters anew, and holds the activations of its own rows.
    more = predicted(run, microbatches=2)
    assert more.held < plain.held
    network = plain.roofline.network_seconds
    assert math.isclose(more.roofline.network_seconds, 2 * network, rel_tol=1e-3)
    again = predicted(run, rematerialize="everything")
    assert again.held < plain.held
    assert again.roofline.compute_seconds > plain.roofline.compute_seconds
    # Whole copies send no parameters, yet both gradients' halves: 8 bytes instead of 4 + 2 x 4.
    copies = predicted(run, Layout(data=4))
    assert math.isclose(copies.roofline.network_seconds, network * 8 / 12, rel_tol=1e-3)
    small = dataclasses.replace(MODEL, precision=Precision(ffn="bfloat16"))
    halved = predicted(dataclasses.replace(run, model=small))
    assert math.isclose(halved.roofline.network_seconds, network * 8 / 12, rel_tol=1e-3)


def program(one, *, capacity, held):
    """A program of a candidate that takes as much memory as `held` says."""
    work = Work(1e12 * (1 + len(COMPUTED_AGAIN[one.rematerialize])), 0.0, 0, 0, 128)
    nothing = dict.fromkeys(DeviceMemory._fields, 0)
    memory = DeviceMemory(**nothing | dict(temporaries=held(one), capacity=capacity, refusal=None))
    return ahead.Compiled(
        what="train",
        fingerprint="",
        lower_seconds=0.0,
        compile_seconds=0.0,
        cached=False,
        memory=memory,
        collectives=(),
        unknown_loops=0,
        work=work,
        roofline=roofline(work, V5E, devices=one.layout.devices),
    )


def searched(run, *, held, capacity=2**30, limit=1000, layout=None):
    """Returns what a search finds if programs take as `held` says, and in which order it asked."""
    slice_of_four = ahead.Topology("v5e:2x2", V5E, tuple(range(4)), capacity)
    asked = []

    def compiled(one):
        asked.append(one)
        return program(one, capacity=capacity, held=held)

    return ahead.search(run, slice_of_four, compiled, limit=limit, layout=layout), asked


def test_a_plain_candidate_that_fits_settles_its_layout(run):
    found, asked = searched(run, held=lambda _: 1)
    assert {(one.rematerialize, one.microbatches) for one in asked} == {("nothing", 1)}
    assert [one.layout for one in asked] == list(dict.fromkeys(one.layout for one in asked))
    # Where it fits with the optimizer's state whole, to divide that gains nothing.
    assert {one.layout for one in asked} == {
        layout for layout in ahead.layouts(run, 4) if not layout.shard_optimizer
    }
    assert found.spared == found.candidates - len(asked)
    assert (found.too_large, found.left) == (0, 0)


def test_what_does_not_fit_spares_what_is_plainer(run):
    lean = Candidate(FSDP, "everything", 1)

    def held(one):
        return 1 if one.is_leaner(lean) else 2**31

    found, asked = searched(run, held=held, layout=FSDP)
    fits = [tried.candidate for tried in found.tried if tried.program.memory.fits]
    assert fits == [lean] == [found.tried[0].candidate]
    # "nothing" with 2 microbatches does not fit, so that with 1 it was not asked, or before.
    assert Candidate(FSDP, "everything", 2) not in asked
    assert len(set(asked)) == len(asked)
    assert len(asked) + found.spared == found.candidates == len(ahead.candidates(run, [FSDP]))


def test_an_optimizer_in_parts_is_tried_where_a_whole_one_does_not_fit(run):
    sharded = Layout(data=4, shard_optimizer=True)
    whole = state_bytes(shapes(run), Layout(data=4))
    assert state_bytes(shapes(run), sharded).state < whole.state
    found, asked = searched(run, held=lambda _: 1, capacity=whole.state - 1)
    assert Layout(data=4) not in {one.layout for one in asked}
    assert Candidate(sharded, "nothing", 1) in asked
    # Where even the divided one does not fit, the whole one is not asked; else it is, and first.
    _, asked = searched(run, held=lambda one: 2**31 * (one.layout.data == 4))
    assert [one.layout for one in asked if one.layout.data == 4].count(Layout(data=4)) > 0
    first = next(one for one in asked if one.layout.data == 4)
    assert first == Candidate(Layout(data=4), "nothing", 1)
    # A state that does not get smaller is no other layout.
    nothing = OptimizerSpec(rule=Sgd(momentum=None))
    found, asked = searched(dataclasses.replace(run, optimizer=nothing), held=lambda _: 2**31)
    assert not any(one.layout.shard_optimizer for one in asked)
    plain = [layout for layout in ahead.layouts(run, 4) if not layout.shard_optimizer]
    assert found.candidates == len(ahead.candidates(run, plain))


def test_where_the_leanest_does_not_fit_no_other_of_its_layout_is_asked(run):
    leanest = Candidate(FSDP, "everything", 2)
    # It alone is expected to fit, and so it is asked first.
    own = expected(run, leanest, state_bytes(shapes(run), FSDP), V5E)
    capacity = math.ceil(own.held)
    found, asked = searched(run, held=lambda _: 2**31, capacity=capacity, layout=FSDP)
    assert asked == [leanest]
    assert found.spared == found.candidates - 1


def test_the_limit_is_one_of_compiles(run):
    every, _ = searched(run, held=lambda _: 1)
    some, asked = searched(run, held=lambda _: 1, limit=3)
    assert len(asked) == len(some.tried) == 3
    assert some.left > 0
    assert len(asked) + some.left + some.spared + some.too_large == some.candidates
    assert some.candidates == every.candidates


def test_what_cannot_hold_its_state_is_never_compiled(run):
    state = shapes(run)
    most = state_bytes(state, Layout(data=4)).state
    found, asked = searched(run, held=lambda _: 1, capacity=most - 1)
    large = [one for one in ahead.layouts(run, 4) if state_bytes(state, one).state == most]
    assert Layout(data=4) in large and len(large) < len(ahead.layouts(run, 4))
    assert not set(large) & {one.layout for one in asked}
    assert found.too_large == len(ahead.candidates(run, large))


def test_the_fastest_that_fits_comes_first(run):
    def held(one):
        return 2**31 if one.layout.fsdp == 4 else 1 + one.layout.tensor

    found, _ = searched(run, held=held)
    fits = [one.program.memory.fits for one in found.tried]
    assert fits == sorted(fits, reverse=True) and {True, False} == set(fits)
    seconds = [one.program.roofline.seconds for one in found.tried if one.program.memory.fits]
    assert seconds == sorted(seconds)


def test_errors_name_what_is_missing(run):
    unknown = ahead.Topology("local", None, (0,), None)
    with pytest.raises(ValueError, match="'local' has no known chip.*v5e:4x4"):
        ahead.search(run, unknown, program, limit=1)
    with pytest.raises(ValueError, match=r"no layout of 5 devices divides this run.*\(8\)"):
        ahead.search(run, ahead.Topology("v5e:5", V5E, tuple(range(5)), 1), program, limit=1)
    with pytest.raises(ValueError, match=r"layout 'data=16' does not divide this run.*\(8\)"):
        searched(run, held=lambda _: 1, layout=Layout(data=16))
