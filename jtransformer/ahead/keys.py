"""By what findings of a compiler are kept: all that it would find something else by.

That is the program's fingerprint, the devices and their layout, the options that compilers are
told beside the program, and the releases of all that takes part.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
from typing import Any

import jax

import jtransformer
from jtransformer.ahead.programs import Lowered
from jtransformer.ahead.topologies import Topology
from jtransformer.spec import Layout

GPUS = ("cuda12", "cuda13", "rocm7")
PACKAGES = (
    *("jax", "jaxlib", "libtpu", "flax", "optax"),
    *(f"jax-{kind}-{part}" for kind in GPUS for part in ("pjrt", "plugin")),
)
"""Whose releases a compiled program depends on, beside this project's own."""
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
"""Variables from which compilers read options."""
OPTIONS = (
    "jax_disable_most_optimizations", "jax_optimization_level", "jax_memory_fitting_level",
    "jax_exec_time_optimization_effort", "jax_memory_fitting_effort",
    "jax_compiler_enable_remat_pass", "jax_use_shardy_partitioner",
)  # fmt: skip
"""Settings of JAX that go to the compiler beside the program; a release need not have them all."""


def key_of(lowered: Lowered, found: Topology, layout: Layout) -> dict[str, Any]:
    """Returns by what the findings of a program are kept, as plain data.

    Args:
        lowered: The program.
        found: The devices.
        layout: How the run is laid over them.
    """
    return {
        "fingerprint": lowered.fingerprint,
        "topology": found.name,
        "device_kind": found.devices[0].device_kind,
        "layout": layout.label,
        "versions": versions(),
        "options": options(),
    }


def digest_of(key: dict[str, Any]) -> str:
    """Returns 32 hex digits of a key."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]


def versions() -> dict[str, str]:
    """Returns the releases of what takes part in compiling; what is missing is left out."""
    found = {"jtransformer": jtransformer.__version__}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def options() -> dict[str, str]:
    """Returns what a compiler is told beside the program, and would compile it otherwise by."""
    settings = jax.config.values
    told = {name: str(settings[name]) for name in OPTIONS if name in settings}
    return told | {name: os.environ.get(name, "") for name in FLAGS}
