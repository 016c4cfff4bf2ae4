"""What the tests of generation share."""

import pytest
import tiny_generation


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly():
    with tiny_generation.compiled_quickly():
        yield


@pytest.fixture(scope="session")
def tiny():
    """Parameters of the one decoder that many tests share, so that it is compiled once."""
    return tiny_generation.drawn(tiny_generation.TINY)
