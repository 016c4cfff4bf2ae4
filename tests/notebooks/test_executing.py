"""Every notebook runs from its first cell to its last, and what it claims holds."""

import tempfile
import time
from pathlib import Path

import nbclient
import nbformat
import pytest
from traitlets.config import Config

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
MOST_SECONDS = 180
"""By the clock, on two cores: what README promises."""


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_claims_hold(path, tmp_path, monkeypatch):
    # In a process of its own, as a reader runs it: not under the strictness of these tests.
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    # Files of sockets, whose whole paths have to be shorter than those of pytest may be.
    with tempfile.TemporaryDirectory() as sockets:
        client = nbclient.NotebookClient(
            notebook,
            timeout=MOST_SECONDS,
            resources={"metadata": {"path": str(tmp_path)}},
            config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),
        )
        began = time.monotonic()
        client.execute()
    assert time.monotonic() - began < MOST_SECONDS
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
