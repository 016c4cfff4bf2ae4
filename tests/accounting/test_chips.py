"""Tests for jtransformer.accounting.chips."""

import pytest

from jtransformer.accounting import CHIPS, chip, chip_of

# What JAX 0.10 calls them; TPUs by libtpu 0.0.52, GPUs by their drivers.
KINDS = {
    "TPU v5 lite": "v5e",
    "TPU v5": "v5p",
    "TPU v6 lite": "v6e",
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H200": "H200",
}


@pytest.mark.parametrize(("kind", "name"), KINDS.items())
def test_a_device_of_jax_has_its_chip(kind, name):
    assert chip_of(kind) == chip(name)


@pytest.mark.parametrize("kind", ["cpu", "NVIDIA H100 PCIe", "TPU v4", "NVIDIA H200 NVL", ""])
def test_what_is_not_known_is_not_guessed(kind):
    assert chip_of(kind) is None


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="'v7'.*v5e, v5p, v6e, A100, H100, H200"):
        chip("v7")


def test_every_figure_is_of_its_unit():
    """A figure that is off by a factor of 1000 leaves these ranges."""
    for one in CHIPS:
        assert 2**34 <= one.memory <= 2**38, one.name
        assert 0.9 * one.memory < one.usable_memory <= one.memory, one.name
        assert 1e14 < one.flops < 1e15, one.name
        assert 8e11 < one.memory_bandwidth < 5e12, one.name
        assert 1e11 < one.network_bandwidth < 1e12, one.name
        # Operations per byte of memory below which a chip waits for its memory.
        assert 100 < one.flops / one.memory_bandwidth < 600, one.name


def test_no_kind_belongs_to_two_chips():
    kinds = [kind for one in CHIPS for kind in one.kinds]
    assert len(kinds) == len(set(kinds))
