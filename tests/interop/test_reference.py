"""Stands for everything that needs torch and transformers, where they are not installed."""

import pytest
from interop.conftest import MISSING


def test_the_reference_implementation_is_here():
    if MISSING:
        pytest.skip(
            f"{' and '.join(MISSING)} not installed, so no family is compared with its reference; "
            "pip install 'jtransformer[interop]' (maintainers, 2026-12-01)"
        )
