"""The process of a peer: reads requests and writes answers, one JSON value a line.

Command: python -m bench.child PEER, with the folder above this one on PYTHONPATH
"""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import traceback
from typing import Any, TextIO

from .peers import PEERS

PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "numpy", "torch"),
    *("x-transformers", "transformers"),
)


def main() -> None:
    """Says what this Python has, then answers until its input ends."""
    peer = PEERS[sys.argv[1]]
    # What libraries print must not come between answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    missing = [name for name in peer.needs if importlib.util.find_spec(name) is None]
    say(answers, {"missing": missing, "versions": versions()})
    if missing:
        return
    handlers = importlib.import_module(f".peers.{peer.module}", __package__).serve()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"answer": handlers[name](**arguments)}
        except Exception:
            # The asking side raises it: it knows what was measured.
            answer = {"error": traceback.format_exc()}
        say(answers, answer)


def versions() -> dict[str, str]:
    """Returns the versions of this Python and of the packages that it has."""
    found = {"python": platform.python_version()}
    installed = {dist.name.lower().replace("_", "-") for dist in importlib.metadata.distributions()}
    return found | {
        name: importlib.metadata.version(name) for name in PACKAGES if name in installed
    }


def say(answers: TextIO, value: dict[str, Any]) -> None:
    """Writes one line."""
    answers.write(json.dumps(value) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
