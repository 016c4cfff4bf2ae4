"""Tests that a run over eight devices is the run of one, and that each device has its part."""

import dataclasses

import jax
import numpy as np
import pytest
from meshed import (
    IN_PARTS,
    MODELS,
    ROUNDED,
    SPANS,
    TOLERANCE,
    batches,
    in_eight_devices,
    layouts,
    model,
    program_of,
    run,
)

from jtransformer.spec import Layout, OptimizerSpec, Sgd, SpecError
from jtransformer.training import Program, arrange, padded
from jtransformer.training.fitting import check_layout

DROPPING = "scan, dropout"
ROWS_AND_MOMENTS = "data=8, shard_optimizer=true"
TWICE = "data=2, tensor=2, sequence=2"
# Every axis is on one of them, and each divides the ten rows of a batch otherwise.
THREE = (ROWS_AND_MOMENTS, "fsdp=4, tensor=2", TWICE)
TEN = 10


def losses_of(names, layouts, devices=()):
    """Returns what `mesh_losses.py` finds of runs, by name and by what computed them."""
    listed = (";".join(map(str, each)) for each in (names, layouts, devices))
    return in_eight_devices("mesh_losses.py", *listed, str(TEN))


def assert_alike(found, one, tolerance=TOLERANCE):
    """Asserts that everything of a run is what it is on one device."""
    for label, other in found.items():
        np.testing.assert_allclose(other["losses"], one["losses"], rtol=tolerance, err_msg=label)
        if label.startswith("pmap") or label == "one":
            continue
        np.testing.assert_allclose(other["evaluated"], one["evaluated"], rtol=tolerance)
        assert other["starts_alike"], label
        assert other["compiled"] == 1, f"{label}: the state drifts to another place"


def test_a_mesh_gives_the_losses_of_one_device():
    found = losses_of([DROPPING], [TWICE])[DROPPING]
    assert_alike(found, found["one"])


@pytest.mark.slow
def test_every_mesh_of_eight_devices_gives_the_losses_of_one():
    labels = [ROWS_AND_MOMENTS, *(layout.label for layout in layouts())]
    found = losses_of([DROPPING], labels, [8, 2])[DROPPING]
    assert len(found) == 1 + 1 + 20 + 2
    assert_alike(found, found["one"])
    # A little more than an eighth: norms are whole, and heads that eight does not divide.
    spread = found["fsdp=4, tensor=2"]
    assert 1 / 8 < spread["parameters"] < 0.16
    assert 1 / 8 <= spread["moments"] < 0.16
    rows_alone = found[ROWS_AND_MOMENTS]
    assert rows_alone["parameters"] == 1
    assert 1 / 8 <= rows_alone["moments"] < 0.16


@pytest.mark.exhaustive
def test_every_model_has_the_losses_of_one_device():
    others = [SPANS, *(name for name in MODELS if name not in (DROPPING, ROUNDED))]
    for found in losses_of(others, THREE, [8]).values():
        assert len(found) == 1 + len(THREE) + 1
        assert_alike(found, found["one"])


@pytest.mark.slow
def test_a_mesh_in_bfloat16_is_one_device_but_for_roundings():
    found = losses_of([ROUNDED], THREE, [8])[ROUNDED]
    assert len(found) == 1 + len(THREE) + 1
    # Parts of a sum are rounded where they meet; the mean of a loss moves by less than one rounding
    # of each of them.
    assert_alike(found, found["one"], tolerance=2.0**-9)


@pytest.mark.slow
def test_parts_of_a_batch_give_the_losses_of_the_whole_on_one_device():
    parts = [f"{DROPPING} in {parts}" for parts in IN_PARTS]
    whole = losses_of([DROPPING], [])[DROPPING]["one"]
    # Five rows at a time.
    meshes = ("data=2, shard_optimizer=true", "fsdp=4, tensor=2", TWICE)
    for found in losses_of(parts, meshes, [2]).values():
        assert len(found) == 1 + len(meshes) + 1
        assert_alike(found, whole)


@pytest.mark.slow
def test_parameters_in_parts_take_less_memory_and_are_fetched_by_layer():
    found = in_eight_devices("mesh_memory.py", "data=8", "fsdp=8")
    whole, parts = (found["layouts"][label] for label in ("data=8", "fsdp=8"))
    assert parts["state"] < whole["state"] / 6
    assert parts["temporary"] < whole["temporary"]
    assert not whole["gathered"]
    # One layer's matrix at a time, and neither all of a stack nor the activations of all rows.
    assert parts["gathered"] and max(parts["gathered"]) < found["stacked"]
    for one in (whole, parts):
        assert one["aliased"] > 0.9 * one["state"]


REFUSED = {
    "--mesh data = 16 leaves devices without a row: .*batch_size=8 has 8": Layout(data=16),
    r"--mesh data \* fsdp = 16 leaves": Layout(data=4, fsdp=4),
    "--mesh sequence must divide data.length, got sequence=3 for 16": Layout(sequence=3),
    "--mesh fsdp = 5 divides nothing: it is for the width of the model, which this model has in "
    "24; use one of 2, 3, 4, 6, 8, 12": Layout(fsdp=5),
    "--mesh tensor = 7 divides nothing: it is for heads, hidden units and the vocabulary, which "
    "this model has in 2, 4, 32, 256; use one of 2, 4, 8, 16, 32, 64": Layout(tensor=7),
}


@pytest.fixture(scope="module")
def shapes():
    spec = run(MODELS["loop"])
    return spec, program_of(spec, None).abstract(batches(spec, 8, 1)[0])[0]


@pytest.mark.parametrize("message", REFUSED)
def test_an_axis_that_divides_nothing_is_refused(shapes, message):
    with pytest.raises(SpecError, match=message):
        check_layout(*shapes, REFUSED[message])


def test_an_optimizer_without_a_state_has_nothing_to_divide():
    spec = dataclasses.replace(
        run(MODELS["loop"]), optimizer=OptimizerSpec(rule=Sgd(momentum=None))
    )
    state = Program(spec).abstract(batches(spec, 8, 1)[0])[0]
    check_layout(spec, state, Layout(data=2))
    with pytest.raises(SpecError, match="shard_optimizer = true divides nothing"):
        check_layout(spec, state, Layout(data=2, shard_optimizer=True))


def test_more_devices_than_there_are_are_refused():
    with pytest.raises(SpecError, match="--mesh = 'fsdp=2' takes 2 devices and there is 1; make"):
        arrange(Layout(fsdp=2), jax.devices()[:1])


def test_rows_that_are_added_are_not_scored():
    batch = batches(run(MODELS["two stacks, dropout"]), 5, 1)[0]
    longer = padded(batch, 4)
    assert padded(batch, 5) is batch
    for own, found in zip(batch, longer, strict=True):
        if own is not None:
            np.testing.assert_array_equal(found[:5], own)
            assert len(found) == 8
    assert longer.weights[5:].sum() == 0 and batch.weights[4].sum() > 0


def test_a_mesh_of_one_device_is_that_device():
    spec = run(model(layers=1), batch_size=2)
    alone, meshed = program_of(spec, None), program_of(spec, Layout())
    batch = batches(spec, 2, 1)[0]
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), alone.abstract(batch))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), meshed.abstract(batch)) == shapes


def test_evaluated_rows_are_not_made_up_for_microbatches():
    program = program_of(run(model(layers=1), batch_size=4, microbatches=4), Layout())
    batch = batches(run(MODELS["loop"]), 3, 1)[0]
    assert len(program.place_batch(batch).tokens) == 4
    assert len(program.place_evaluated(batch).tokens) == 3


@pytest.mark.slow
def test_runs_over_devices_have_the_records_of_one(tmp_path):
    found = in_eight_devices("mesh_runs.py", str(tmp_path))
    runs = found["runs"]
    assert {name: one["mode"] for name, one in runs.items()} == {
        "loop": "loop",
        "mesh": "mesh, fsdp=2, tensor=2",
        "pmap": "pmap, 4 devices",
        "again": "mesh, fsdp=2, tensor=2",
        "launched": "mesh, fsdp=2, tensor=2",
    }
    # Stopped and continued, and as the run of a sweep: the same bits.
    assert runs["again"] == runs["mesh"] == runs["launched"]
    assert found["execution"]["mesh"] == "fsdp=2, tensor=2"
    for name in ("mesh", "pmap"):
        rows = zip(runs[name]["run"][1], runs["loop"]["run"][1], strict=True)
        for ours, theirs in rows:
            for key in ("train_loss", "validation_nll", "gradient_norm", "scored_tokens"):
                if theirs[key] is not None:
                    np.testing.assert_allclose(ours[key], theirs[key], rtol=2 * TOLERANCE)
        probed = runs[name]["probed"], runs["loop"]["probed"]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2 * TOLERANCE), *probed)
    assert found["said"] == [
        "Training on 1 of 8 devices; --mesh fsdp=8 uses all of them.",
        "Training on 4 of 8 devices; --mesh fsdp=8 uses all of them.",
        None,
    ]
