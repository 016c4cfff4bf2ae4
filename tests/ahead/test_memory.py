"""Tests for jtransformer.ahead.memory: what compilers say where memory is short."""

import pytest

from jtransformer.ahead.memory import DeviceMemory, refused

GIB = 2**30
# libtpu 0.0.52; an older libtpu; XLA's own allocator.
TEMPORARIES = (
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory "
    "required for HLO temporaries (60.01G) exceeds available HBM (15.75G). HLO module: jit_step.\n"
    "See https://openxla.org/xla/errors/error_1000 for more details."
)
IN_ALL = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
    "Used 16.50G of 15.75G hbm. Exceeded hbm capacity by 768.0M."
)
ALLOCATED = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234567 bytes."


@pytest.mark.parametrize(
    ("message", "temporaries"),
    [
        (TEMPORARIES, int(60.01 * GIB)),
        (IN_ALL, int(16.5 * GIB) - 1000),
        (ALLOCATED, 1234567),
        ("RESOURCE_EXHAUSTED: something else", 0),
    ],
)
def test_what_was_wanted_is_read_from_a_refusal(message, temporaries):
    found = refused(message, 1000)
    assert (found.arguments, found.temporaries) == (1000, temporaries)
    assert found.refusal == message.splitlines()[0]


def memory(**change):
    sizes = dict.fromkeys(DeviceMemory._fields, 10)
    return DeviceMemory(**sizes | dict(capacity=100, refusal=None) | change)


def test_the_total_is_of_all_kinds():
    assert memory().total == 100


def test_it_fits_up_to_the_capacity():
    assert memory().fits
    assert not memory(code=11).fits
    assert not memory(refusal="no").fits
    assert memory(capacity=None, code=10**15).fits


def test_a_record_says_both():
    assert memory().to_record() == {**memory()._asdict(), "total": 100, "fits": True}
