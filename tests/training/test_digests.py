"""Tests for jtransformer.training.digests: what a checksum sees, and what it does not depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import several_processes

from jtransformer.training.digests import AT_ONCE, checksums, describe, digest

MASK = 2**64 - 1
RNG = np.random.default_rng(0)
ARRAYS = {
    "float32": RNG.normal(size=(7, 5, 3)).astype(np.float32),
    "bfloat16": np.asarray(jnp.asarray(RNG.normal(size=(4, 6)), jnp.bfloat16)),
    "bool": RNG.random(11) > 0.5,
    "int8": RNG.integers(-9, 9, (3, 4), np.int8),
    "float64": RNG.normal(size=(2, 3)),
    "scalar": np.float32(2.5),
}


def expected(array):
    """The sum, number by number in Python's own integers."""
    array = np.asarray(array)
    words = np.frombuffer(array.tobytes(), f"u{min(array.dtype.itemsize, 4)}")
    total = 0
    for place, word in enumerate(words.tolist()):
        term = (place << 32 | word) & MASK
        term = (term ^ term >> 30) * 0xBF58476D1CE4E5B9 & MASK
        term = (term ^ term >> 27) * 0x94D049BB133111EB & MASK
        total += term ^ term >> 31
    return f"{total & MASK:016x}"


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_matches_the_sum_in_python(array):
    assert checksums(array) == [expected(array)]


def test_more_numbers_than_are_mixed_at_once_and_none():
    long = RNG.integers(0, 2**32, 2 * AT_ONCE + 5, np.uint32)
    assert checksums([long, long.reshape(1, -1)]) == [expected(long)] * 2
    assert checksums(np.zeros((3, 0), np.float32)) == ["0" * 16]


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_a_flipped_bit_anywhere_always_shows(array):
    before = checksums(array)
    content = np.asarray(array).tobytes()
    for place in range(len(content)):
        for bit in (0, 3, 7):
            if np.asarray(array).dtype == bool and bit:
                continue
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            found = np.frombuffer(bytes(damaged), np.asarray(array).dtype)
            assert checksums(found.reshape(np.shape(array))) != before


def test_numbers_that_have_changed_places_show():
    """With many zeros at the end of each, as numbers of a lower precision have."""
    rounded = np.arange(1, 2**12 + 1, dtype=np.float32)
    for distance in (1, 2, 2**5, 2**11):
        other = rounded.copy()
        other[[0, distance]] = other[[distance, 0]]
        assert checksums(other) != checksums(rounded)


def test_description_names_form_and_path():
    found = describe({"w": jnp.zeros((2, 3), jnp.bfloat16)})
    assert list(found) == ["['w']"] and found["['w']"]["shape"] == [2, 3]
    assert found["['w']"]["dtype"] == "bfloat16" and len(found["['w']"]["digest"]) == 16
    assert digest(np.zeros(3)) != digest(np.zeros(4)) != digest(np.zeros(4, np.float32))


LAYOUTS = """
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jtransformer.training.digests import checksums
array = np.random.default_rng(1).normal(size=(8, 4, 6)).astype(np.float32)
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
found = []
for axes in ((), ("a",), (None, "b"), ("b", "a"), (("a", "b"),), (None, "a", "b")):
    place = NamedSharding(mesh, P(*axes))
    spread = jax.make_array_from_callback(array.shape, place, lambda index: array[index])
    found += checksums(spread)
say([found, checksums(array)])
"""


@pytest.mark.parametrize("processes", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_no_layout_and_no_number_of_processes_changes_it(tmp_path, processes):
    array = np.random.default_rng(1).normal(size=(8, 4, 6)).astype(np.float32)
    for spread, alone in several_processes.run(LAYOUTS, tmp_path, processes, 8 // processes):
        assert set(spread) == set(alone) == {expected(array)}


def test_an_array_of_one_device_is_its_numbers():
    array = ARRAYS["float32"]
    assert checksums(jax.device_put(array)) == checksums(array)
