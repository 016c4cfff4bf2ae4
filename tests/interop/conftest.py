"""Runs what compares with `transformers` only where it is installed.

One skip then stands for all of it: tests/interop/test_reference.py.
"""

import importlib.util

NEEDED = ("safetensors", "torch", "transformers")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
NEED_A_REFERENCE = [
    "test_commands.py",
    "test_answers.py",
    "test_damage.py",
    "test_defaults.py",
    "test_encoder_references.py",
    "test_families.py",
    "test_files.py",
    "test_known_faults.py",
    "test_memory.py",
    "test_start.py",
    "test_tokenizer.py",
]

collect_ignore = NEED_A_REFERENCE if MISSING else []
