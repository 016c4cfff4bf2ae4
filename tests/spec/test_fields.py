"""Tests for jtransformer.spec.fields: every field of every spec holds what its hint says."""

import dataclasses
import decimal
import math
import pathlib
import types
import typing

import numpy as np
import pytest

from jtransformer import spec as package
from jtransformer.spec import (
    Constant,
    DataSpec,
    Kjv,
    LayerNorm,
    Learned,
    ModelSpec,
    NoPosition,
    OptimizerSpec,
    RMSNorm,
    RunSpec,
    Sinusoidal,
    SpecError,
    TextFile,
    TrainingSpec,
    WarmupCosine,
)

KINDS = (Kjv, TextFile, LayerNorm, RMSNorm, NoPosition, Sinusoidal, Learned, Constant, WarmupCosine)
SPECS = (*KINDS, ModelSpec, DataSpec, OptimizerSpec, TrainingSpec, RunSpec)
FIELDS = [
    pytest.param(cls, name, hint, id=f"{cls.__name__}.{name}")
    for cls in SPECS
    for name, hint in typing.get_type_hints(cls).items()
    if typing.get_origin(hint) is not typing.ClassVar
]
NEVER_NUMBERS = (True, False, "1", b"1", [1], {}, math.nan, math.inf, -math.inf, 1j, object)
FOREIGN = (np.int64(1), np.float32(0.5), np.float64(0.5), np.True_, decimal.Decimal("0.5"))

# (spec, field): the nearest values that are refused, and the outermost that are accepted.
TINY, BIG = 1e-45, 2**63 - 1  # The smallest number of float32.
BOUNDS = {
    (LayerNorm, "epsilon"): ((0, -1e-5, 1e-2, 1), (TINY, math.nextafter(1e-2, 0))),
    (RMSNorm, "epsilon"): ((0, -1e-5, 1e-2, 1), (TINY, math.nextafter(1e-2, 0))),
    (Learned, "max_length"): ((0, -1), (1, BIG)),
    (ModelSpec, "vocabulary"): ((1, 0, -256), (2, BIG)),
    (ModelSpec, "width"): ((1, 0, -64), (4, 4 * (BIG // 4))),
    (ModelSpec, "layers"): ((0, -1), (1, BIG)),
    (ModelSpec, "heads"): ((0, -4), (1, 64)),
    (ModelSpec, "ffn_width"): ((0, -1), (1, BIG)),
    (DataSpec, "length"): ((0, -1), (1, BIG)),
    (DataSpec, "validation_fraction"): ((0, -0.1, 0.5, 1), (TINY, math.nextafter(0.5, 0))),
    (DataSpec, "test_fraction"): ((0, -0.1, 0.5, 1), (TINY, math.nextafter(0.5, 0))),
    (OptimizerSpec, "learning_rate"): ((0, -1e-3), (TINY, 3e38)),
    (OptimizerSpec, "weight_decay"): ((-TINY, -1), (0, 3e38)),
    (OptimizerSpec, "beta1"): ((-TINY, 1, 1.5), (0, math.nextafter(1, 0))),
    (OptimizerSpec, "beta2"): ((-TINY, 1, 1.5), (0, math.nextafter(1, 0))),
    (OptimizerSpec, "epsilon"): ((0, -1e-8), (TINY, 3e38)),
    (OptimizerSpec, "gradient_clip"): ((0, -1.0), (TINY, 3e38, None)),
    (Constant, "warmup_steps"): ((-1,), (0, BIG)),
    (WarmupCosine, "warmup_steps"): ((-1,), (0, BIG)),
    (WarmupCosine, "final_fraction"): ((-TINY, math.nextafter(1, 2)), (0, 1)),
    **{
        (TrainingSpec, field.name): ((0, -1), (1, BIG))
        for field in dataclasses.fields(TrainingSpec)
    },
    (RunSpec, "seed"): ((-1, 2**31), (0, 2**31 - 1)),
}


def options_of(hint):
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def wrong_values(hint):
    """Values of another type than the hint's."""
    if typing.get_origin(hint) is typing.Literal:
        return (
            "nonsense",
            "",
            None,
            True,
            1,
            typing.get_args(hint),
            typing.get_args(hint)[0].upper(),
        )
    if int in options_of(hint):
        return (*NEVER_NUMBERS, None, 1.0, 0.5, *FOREIGN, 10**30, -(10**5000))
    if float in options_of(hint):
        none = () if types.NoneType in options_of(hint) else (None,)
        return (*NEVER_NUMBERS, *none, *FOREIGN, 10**400, 10**5000)
    if hint is bool:
        return (0, 1, "True", None, np.True_, 1.0, 10**5000)
    if hint is str:
        return (0, None, True, b"text", pathlib.Path("text"), ["text"])
    return (None, "learned", 0, {}, {"kind": "kjv"}, *options_of(hint), TrainingSpec)


def test_every_spec_is_covered():
    exported = [getattr(package, name) for name in package.__all__]
    assert {one for one in exported if dataclasses.is_dataclass(one)} == set(SPECS)
    numeric = {
        (cls, name)
        for cls, name, hint in (param.values for param in FIELDS)
        if {int, float} & set(options_of(hint))
    }
    assert numeric == BOUNDS.keys()


@pytest.mark.parametrize(("cls", "name", "hint"), FIELDS)
def test_error_wrong_type_names_the_field(cls, name, hint):
    for value in wrong_values(hint):
        with pytest.raises(SpecError) as caught:
            cls(**{name: value})
        assert caught.value.path == name
        assert str(caught.value).startswith(f"{name} must ")
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("cls", "name"), BOUNDS, ids=lambda one: getattr(one, "__name__", one))
def test_bounds(cls, name):
    refused, accepted = BOUNDS[cls, name]
    for value in refused:
        with pytest.raises(SpecError, match=rf"^{name} must be (at least|at most|greater|less)"):
            cls(**{name: value})
    for value in accepted:
        assert getattr(cls(**{name: value}), name) == value


@pytest.mark.parametrize(("cls", "name", "hint"), FIELDS)
def test_error_lists_the_allowed_values(cls, name, hint):
    if typing.get_origin(hint) is not typing.Literal:
        return
    with pytest.raises(SpecError) as caught:
        cls(**{name: "nonsense"})
    assert (
        str(caught.value)
        == f"{name} must be one of {', '.join(typing.get_args(hint))}, got 'nonsense'."
    )
    for allowed in typing.get_args(hint):
        assert getattr(cls(**{name: allowed}), name) == allowed


def test_an_int_becomes_the_float_it_stands_for():
    spec = OptimizerSpec(learning_rate=1, weight_decay=0, gradient_clip=2)
    assert spec == OptimizerSpec(learning_rate=1.0, weight_decay=0.0, gradient_clip=2.0)
    kinds = {type(getattr(spec, field.name)) for field in dataclasses.fields(spec)}
    assert kinds == {float}


def test_a_float_keeps_its_bits_and_zero_has_no_sign():
    for value in (0.1, 1 / 3, 1e-30, 3e-4, 1e22):
        assert OptimizerSpec(learning_rate=value).learning_rate.hex() == value.hex()
    assert math.copysign(1, OptimizerSpec(weight_decay=-0.0).weight_decay) == 1


def test_error_foreign_numbers_are_told_what_to_do():
    with pytest.raises(
        SpecError, match=r"an integer, got np.int64\(64\); use a plain Python number"
    ):
        ModelSpec(width=np.int64(64))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("cls", SPECS)
def test_specs_are_values(cls):
    spec = cls()
    assert spec == cls() and hash(spec) == hash(cls()) and len({spec, cls()}) == 1
    assert dataclasses.replace(spec) == spec
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.width = 8
    with pytest.raises(TypeError, match="positional"):
        cls(1)
    with pytest.raises(TypeError, match="unexpected keyword"):
        cls(widht=8)
    assert eval(repr(spec), {one.__name__: one for one in SPECS}) == spec


@pytest.mark.parametrize("rate", [1e-300, 1e300])
def test_error_what_single_precision_loses_is_refused(rate):
    """Both would train with another rate than the one on record: 0, or infinity."""
    with pytest.raises(SpecError, match="is 0 or infinite in float32"):
        OptimizerSpec(learning_rate=rate)
