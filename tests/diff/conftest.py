"""Runs what compares with `transformers` only where it is installed.

The skip of tests/interop/test_reference.py stands for this too.
"""

import importlib.util

NEEDED = ("safetensors", "torch", "transformers")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

collect_ignore = ["test_foreign.py"] if MISSING else []
