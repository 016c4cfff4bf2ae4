"""Where a run was computed: what may move the last bits of its numbers."""

import importlib.metadata
import os
import platform
from typing import Any

import jax

import jtransformer
from jtransformer import records
from jtransformer.spec import SpecError

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "grain")
"""Packages whose release may move numbers."""

NUMERICS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)
"""Options of JAX that move numbers."""


def environment(mode: str) -> dict[str, Any]:
    """Returns versions, device and execution mode (`Execution.label`); starts the JAX backend."""
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "jtransformer": jtransformer.__version__,
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "machine": platform.machine(),
        "platform": device.platform,
        "device_kind": device.device_kind,
        "device_count": jax.device_count(),
        "process_count": jax.process_count(),
        # Of an accelerator's numbers the host's threads compute nothing.
        "threads": records.cpu_threads() if device.platform == "cpu" else None,
        "mode": mode,
        **{name: getattr(jax.config, name) for name in NUMERICS},
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def check_same_environment(recorded: dict[str, Any], present: dict[str, Any]) -> None:
    """Refuses to go on with a run in another environment than it was begun in.

    Raises:
        SpecError: If they differ; every difference is named.
    """
    changed = _changed(recorded, present)
    if changed:
        raise SpecError(
            "",
            "The work directory was begun in another environment "
            f"({'; '.join(changed)}), which can move results; restore it, use a fresh work "
            "directory, or pass --accept_environment to continue anyway.",
        )


def check_same_host(first: dict[str, Any], present: dict[str, Any]) -> None:
    """Refuses processes of one run that compute it in several environments.

    Raises:
        SpecError: If this one's differs from that of the first; every difference is named.
    """
    changed = _changed(first, present)
    if changed:
        raise SpecError(
            "",
            f"Process {jax.process_index()} of {jax.process_count()} has another environment than "
            f"the first ({'; '.join(changed)}), which can move results; give all the same one, or "
            "pass --accept_environment.",
        )


def _changed(before: dict[str, Any], present: dict[str, Any]) -> list[str]:
    return [
        f"{name} {before.get(name)} -> {value}"
        for name, value in present.items()
        if before.get(name) != value
    ]
