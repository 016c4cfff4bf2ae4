"""The import of a checkpoint holds it in memory once."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "benchmarks" / "import_memory.py"
MOST = 1.3
"""Peak memory over the size of the parameters."""
BYTES = 10**9


@pytest.mark.slow
def test_a_checkpoint_is_in_memory_once(tmp_path):
    found = importlib.util.spec_from_file_location("import_memory", SCRIPT)
    assert found is not None and found.loader is not None
    script = importlib.util.module_from_spec(found)
    found.loader.exec_module(script)
    figures = script.measured(tmp_path, BYTES)
    assert figures["parameter_bytes"] > 0.9 * BYTES
    assert figures["ratio"] < MOST, figures
