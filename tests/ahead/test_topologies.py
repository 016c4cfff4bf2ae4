"""Tests for jtransformer.ahead.topologies; those that need libtpu are in test_slices.py."""

import importlib.util

import jax
import pytest

from jtransformer.ahead import Topology, check_layout, default_layout, topology
from jtransformer.spec import Layout


def test_local_is_what_is_here():
    found = topology("local")
    assert found.devices == tuple(jax.devices())
    assert found.chip is None
    assert found.capacity is not None and found.capacity > 2**28


@pytest.mark.parametrize(
    "name",
    ["v5e", "v9:2x2", "tpu:4", "v5e:", "v5e:axb", "", "v5e:4", "H100:8"]
    + ["v5e:\N{FULLWIDTH DIGIT ONE}x1"],
)
def test_an_unknown_name_is_answered_with_the_known_ones(name):
    with pytest.raises(ValueError, match="v5e, v5p, v6e.*'v5e:4x4'.*'local'"):
        topology(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("v5e:2x2x2", "has 3 axes, and v5e is a torus of 2"),
        ("v5p:4x4", "has 2 axes, and v5p is a torus of 3"),
        ("v5e:3x3", "no slice of v5e"),
        ("v5e:0x0", "no slice of v5e"),
        ("v5p:2x2x0", "no slice of v5p"),
        ("v5e:32x32", "at most 256"),
    ],
)
def test_a_shape_that_no_slice_has_is_refused(name, said):
    """Before libtpu is asked, which divides by the number of chips."""
    with pytest.raises(ValueError, match=said):
        topology(name)


def test_a_missing_libtpu_is_one_sentence(monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "libtpu" else there(name)
    )
    with pytest.raises(ValueError, match=r"libtpu.*pip install 'jtransformer\[tpu-plan\]'"):
        topology("v5e:2x2")


SLICE = Topology("v5e:4x4", None, tuple(range(16)), None)


def test_the_default_is_over_all_devices():
    assert default_layout(SLICE) == Layout(fsdp=16)
    check_layout(default_layout(SLICE), SLICE)
    check_layout(Layout(data=2, fsdp=4, tensor=2), SLICE)


@pytest.mark.parametrize("layout", [Layout(fsdp=8), Layout(data=4, fsdp=8), Layout()])
def test_a_layout_for_another_number_is_refused(layout):
    with pytest.raises(ValueError, match=f"{layout.devices} devices.*has 16.*'fsdp=16'"):
        check_layout(layout, SLICE)


def test_of_the_devices_that_are_here_some_may_be_used():
    check_layout(Layout(fsdp=2), SLICE._replace(name="local"))
    with pytest.raises(ValueError, match="32 devices"):
        check_layout(Layout(fsdp=32), SLICE._replace(name="local"))
