"""Executes the notebooks only where what they need is installed.

One skip then stands for all eight: tests/notebooks/test_notebooks.py.
"""

import importlib.util

NEEDED = ("equinox", "ipykernel", "nbclient", "nbformat", "safetensors", "torch", "transformers")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

collect_ignore = ["test_executing.py"] if MISSING else []
