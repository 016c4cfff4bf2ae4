"""Processes of peers, as the asking side sees them."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from .peers import PEERS

FOLDER = pathlib.Path(__file__).resolve().parents[1]
ROOT = FOLDER.parents[1]


class Process:
    """A process that runs one peer; it sleeps until it is asked.

    Attributes:
        missing: What its Python lacks; with any, it answers nothing.
        versions: Of its Python and its packages.
    """

    def __init__(self, name: str, python: str):
        self.name = name
        # The checkout too: a Python that has a peer need not have this project.
        path = [str(FOLDER), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [python, "-m", "bench.child", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Whatever else is there: peers on PyTorch compute on the CPU too.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path), "JAX_PLATFORMS": "cpu"},
        )
        hello = self._read()
        self.missing: list[str] = hello["missing"]
        self.versions: dict[str, str] = hello["versions"]

    def ask(self, what: str, **arguments: Any) -> Any:
        """Calls a function of the peer and waits for its result.

        Raises:
            RuntimeError: If it fails there.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {what} of {arguments} failed.\n{answer['error']}")
        return answer["answer"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: its process ended with {self._process.wait()}.")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def python_of(name: str, pythons: Mapping[str, str]) -> str:
    """Returns the Python that runs a peer.

    Args:
        name: The peer.
        pythons: Paths by a package that a peer needs; of several, the most particular one counts.
    """
    wanted = [pythons[need] for need in reversed(PEERS[name].needs) if need in pythons]
    return wanted[0] if wanted else sys.executable
