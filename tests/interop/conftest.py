"""Runs what compares with `transformers` only where it is installed.

One skip then stands for all of it: tests/interop/test_reference.py.
"""

import importlib.util

MISSING = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
NEED_A_REFERENCE = ["test_families.py", "test_known_faults.py", "test_pickled.py"]

collect_ignore = NEED_A_REFERENCE if MISSING else []
