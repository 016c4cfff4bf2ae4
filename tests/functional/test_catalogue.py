"""Every variant: compiled and mapped, its knobs, its rows, and that none is missing.

They share a file, and so a process, because most compare with the same program of a row. Their
values are in `test_catalogue_double`, low precision and what a query sees in files of their own.
"""

import functools
import inspect

import jax
import numpy as np
import pytest
from catalogue import CATALOGUE
from catalogue.row import draw, on_device
from quickly import quickly

from jtransformer import functional as F

# What users run, where the rest of the folder compiles quickly: see `conftest.py`.
OPTIMISED = functools.partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 3,
        "xla_llvm_disable_expensive_passes": False,
    },
)
EVERY = pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)
# Each is compiled when a test first calls it.
PROGRAMS = {name: quickly(row.call) for name, row in CATALOGUE.items()}


@pytest.mark.slow  # each step of an eager call is compiled: 170 s on one core
@EVERY
def test_compiled_and_mapped_equals_an_eager_loop(row):
    runs = draw(row, copies=(2,))
    loop = [np.asarray(row.call(*on_device(run[r] for run in runs))) for r in range(2)]
    mapped = OPTIMISED(jax.vmap(row.call))(*on_device(runs))
    np.testing.assert_allclose(mapped, np.stack(loop), atol=1e-5)


def each(field, but=lambda name, knob: False):
    rows = CATALOGUE.items()
    pairs = [(name, knob) for name, row in rows for knob in getattr(row, field)]
    pairs = [pair for pair in pairs if not but(*pair)]
    ids = [f"{name}: {knob}" for name, knob in pairs]
    return pytest.mark.parametrize(("name", "knob"), pairs, ids=ids)


@each("live")
def test_live_each_knob_changes_the_output(name, knob):
    row = CATALOGUE[name]
    arrays = on_device(draw(row))
    before = PROGRAMS[name](*arrays)
    after = quickly(functools.partial(row.call, **{knob: row.live[knob]}))(*arrays)
    assert before.shape != after.shape or not np.allclose(before, after, rtol=1e-3, atol=1e-6)


def is_default(name, knob):
    option = inspect.signature(getattr(F, CATALOGUE[name].public)).parameters[knob]
    neutral = CATALOGUE[name].null[knob]
    return neutral is option.default or (np.isscalar(neutral) and neutral == option.default)


# Where the neutral value is the default, leaving the option out is the same call.
@each("null", but=is_default)
def test_null_each_knob_has_a_neutral_value(name, knob):
    row = CATALOGUE[name]
    arrays = on_device(draw(row))
    neutral = quickly(functools.partial(row.call, **{knob: row.null[knob]}))(*arrays)
    left_out = quickly(row.without(knob).call) if knob in row.options else PROGRAMS[name]
    np.testing.assert_array_equal(neutral, left_out(*arrays))


@each("program")
def test_live_an_option_of_the_program_changes_it_and_not_the_value(name, knob):
    row = CATALOGUE[name]
    arrays = on_device(draw(row))
    changed = functools.partial(row.call, **{knob: row.program[knob]})
    assert str(jax.make_jaxpr(changed)(*arrays)) != str(jax.make_jaxpr(row.call)(*arrays))
    np.testing.assert_allclose(quickly(changed)(*arrays), PROGRAMS[name](*arrays), atol=1e-5)


BATCHED = {name: row for name, row in CATALOGUE.items() if row.batched}


@pytest.mark.parametrize("name", BATCHED)
def test_other_rows_of_the_batch_do_not_matter(name):
    row, function = BATCHED[name], PROGRAMS[name]
    arrays = draw(row)
    out = np.asarray(function(*on_device(arrays)))
    for array in arrays[: row.batched]:
        array[1] = array[1] ** 2 - 1
    after = np.asarray(function(*on_device(arrays)))
    np.testing.assert_array_equal(after[0], out[0])
    assert not np.allclose(after[1], out[1])


def public_functions():
    return {
        name: inspect.unwrap(value)
        for name, value in vars(F).items()
        if name in F.__all__ and inspect.isfunction(value)
    }


# They take no activations, or return masks or integers: the tests of their own modules hold them
# to values, and each of their options to a live and a null one.
ROWLESS = {
    "attention_backend",
    "causal_mask",
    "combine_masks",
    "cross_mask",
    "deepnorm",
    "draw_deepnorm",
    "draw_depth_scaled",
    "draw_fan_in",
    "draw_normal",
    "draw_xavier",
    "emit",
    "padding_mask",
    "prefix_mask",
    "sample",
    "segment_mask",
    "visible",
    "wait_k_mask",
    "window_mask",
}


# It chooses kernels that are made for other machines than tests run on: see `test_tpu_attention`.
ELSEWHERE = {"dot_product_attention(platform=…)"}


def test_every_public_function_of_arrays_has_a_row():
    assert set(public_functions()) - ROWLESS - {row.public for row in CATALOGUE.values()} == set()
    assert {row.public for row in CATALOGUE.values()} <= set(F.__all__)


@pytest.mark.parametrize("kind", ["live", "null"])
def test_every_option_of_every_function_has_a_live_and_a_null_test(kind):
    missing = []
    for name, function in public_functions().items():
        rows = [row for row in CATALOGUE.values() if row.public == name]
        tested = {knob for row in rows for knob in getattr(row, kind)}
        if kind == "live":
            tested |= {knob for row in rows for knob in row.program}
        for option in inspect.signature(function).parameters.values():
            needed = kind == "live" or option.default is not option.empty
            if option.kind is option.KEYWORD_ONLY and needed and name not in ROWLESS:
                missing += [f"{name}({option.name}=…)"] if option.name not in tested else []
    assert set(missing) == ELSEWHERE
