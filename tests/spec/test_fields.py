"""Tests for jtransformer.spec.fields: every field of every spec holds what its hint says."""

import dataclasses
import decimal
import math
import pathlib
import types
import typing

import numpy as np
import pytest
from every_kind import spec_classes
from spec_bounds import BOUNDS

from jtransformer.spec import ModelSpec, OptimizerSpec, SpecError, TrainingSpec

SPECS = spec_classes()
FIELDS = [
    pytest.param(cls, name, hint, id=f"{cls.__name__}.{name}")
    for cls in SPECS
    for name, hint in typing.get_type_hints(cls).items()
    if typing.get_origin(hint) is not typing.ClassVar
]
NEVER_NUMBERS = (True, False, "1", b"1", [1], {}, math.nan, math.inf, -math.inf, 1j, object)
FOREIGN = (np.int64(1), np.float32(0.5), np.float64(0.5), np.True_, decimal.Decimal("0.5"))


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
    none = () if types.NoneType in options_of(hint) else (None,)
    if int in options_of(hint):
        return (*NEVER_NUMBERS, *none, 1.0, 0.5, *FOREIGN, 10**30, -(10**5000))
    if float in options_of(hint):
        return (*NEVER_NUMBERS, *none, *FOREIGN, 10**400, 10**5000)
    if bool in options_of(hint):
        return (0, 1, "True", *none, np.True_, 1.0, 10**5000)
    if typing.get_origin(hint) is tuple:
        return (None, 0, 1.0, "1", {}, {1, 2}, *options_of(hint), 10**5000)
    if str in options_of(hint):
        return (0, *none, True, b"text", pathlib.Path("text"), ["text"])
    return (None, "learned", 0, {}, {"kind": "kjv"}, *options_of(hint), TrainingSpec)


def test_every_spec_is_covered():
    assert len(SPECS) > 60
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


@pytest.mark.parametrize(
    ("cls", "name", "hint"),
    [param for param in FIELDS if typing.get_origin(param.values[2]) is typing.Literal],
)
def test_error_lists_the_allowed_values(cls, name, hint):
    with pytest.raises(SpecError) as caught:
        cls(**{name: "nonsense"})
    assert (
        str(caught.value)
        == f"{name} must be one of {', '.join(typing.get_args(hint))}, got 'nonsense'."
    )
    for allowed in typing.get_args(hint):
        try:
            assert getattr(cls(**{name: allowed}), name) == allowed
        except SpecError as refusal:
            # By another rule: not every value goes with the defaults of the other fields.
            assert " must be one of " not in str(refusal)


def test_an_int_becomes_the_float_it_stands_for():
    spec = OptimizerSpec(learning_rate=1, weight_decay=0, gradient_clip=2)
    assert spec == OptimizerSpec(learning_rate=1.0, weight_decay=0.0, gradient_clip=2.0)
    numbers = (spec.learning_rate, spec.weight_decay, spec.gradient_clip)
    assert {type(number) for number in numbers} == {float}


def test_a_float_keeps_its_bits_and_zero_has_no_sign():
    for value in (0.1, 1 / 3, 1e-30, 3e-4, 1e22):
        assert OptimizerSpec(learning_rate=value).learning_rate.hex() == value.hex()
    assert math.copysign(1, OptimizerSpec(weight_decay=-0.0).weight_decay) == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([0, 1.0], r"^probe_steps\[1\] must be an integer, got 1.0.$"),
        (("0",), r"^probe_steps\[0\] must be an integer, got '0'.$"),
        ([True], r"^probe_steps\[0\] must be an integer, got True.$"),
        ([10**5000], r"^probe_steps\[0\] must not exceed"),
    ],
    ids=range(4),
)
def test_error_a_list_names_the_place_of_what_is_wrong(value, said):
    with pytest.raises(SpecError, match=said):
        TrainingSpec(probe_steps=value)


def test_a_list_becomes_a_tuple_so_that_specs_stay_values():
    spec = TrainingSpec(probe_steps=[0, 3])  # pyright: ignore[reportArgumentType]
    assert spec.probe_steps == (0, 3) and spec == TrainingSpec(probe_steps=(0, 3))
    assert hash(spec) != hash(TrainingSpec())


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


@pytest.mark.parametrize("rate", [1e-300, 1e-40, 1e300])
def test_error_what_single_precision_loses_is_refused(rate):
    """All would train with another rate than the one on record: 0, or infinity.

    XLA computes with 0 in the place of 1e-40, though float32 has it.
    """
    with pytest.raises(SpecError, match="is 0 or infinite in float32"):
        OptimizerSpec(learning_rate=rate)
