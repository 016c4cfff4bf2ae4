"""Keeps JAX from looking for a TPU on a machine that has none.

Where JAX_PLATFORMS says nothing, JAX starts every back end that is installed and takes the best one
that starts. libtpu is installed to compile for TPUs that are not here too (extra `tpu-plan`); asked
for the TPUs of a machine without one it prints what it lacks, and seconds go by. JAX itself looks
on the PCI bus only in order to insist on a TPU.
"""

import importlib.metadata
import importlib.util
from collections.abc import MutableMapping
from pathlib import Path

PLATFORMS = "JAX_PLATFORMS"
CHOSEN = "JTRANSFORMER_CHOSE_PLATFORMS"
"""Set where `PLATFORMS` is this module's choice and no user's: on another host it is made anew."""
NAMES_OF_TPU = (
    "JAX_FORCE_TPU_INIT", "TPU_NAME", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES",
    "TPU_ACCELERATOR_TYPE", "TPU_PROCESS_ADDRESSES", "CLOUD_TPU_TASK_ID",
)  # fmt: skip
"""Variables by which users, Cloud TPU and Kubernetes say that there is a TPU.

TPU_LIBRARY_PATH is none of them: libtpu sets it itself when it is imported.
"""
GOOGLE = "0x1ae0"
NETWORK_AND_DISKS = ("0x01", "0x02")
"""Classes of PCI devices that Google's machines without a TPU have as well."""


def spare_missing_tpu(environment: MutableMapping[str, str], root: Path = Path("/")) -> None:
    """Has JAX start on the CPU at once where it would look for a TPU in vain; before it starts.

    Nothing is said where a TPU may be, where another accelerator may be, which JAX then chooses as
    ever, or where the user has said something.

    Args:
        environment: The variables of this process, which those that it starts inherit.
        root: Where /sys and /dev are.
    """
    if environment.pop(CHOSEN, None) is not None and environment.get(PLATFORMS) == "cpu":
        del environment[PLATFORMS]
    if environment.get(PLATFORMS) or any(name in environment for name in NAMES_OF_TPU):
        return
    if importlib.util.find_spec("libtpu") is None or has_plugins() or may_have_tpu(root):
        return
    environment[PLATFORMS], environment[CHOSEN] = "cpu", "1"


def may_have_tpu(root: Path) -> bool:
    """Whether a machine may have a TPU: a device file as of one, or a PCI device of Google's.

    Args:
        root: Where /sys and /dev are.
    """
    files = [*root.glob("dev/accel*"), *root.glob("dev/vfio/[0-9]*")]
    vendors = root.glob("sys/bus/pci/devices/*/vendor")
    return bool(files) or any(_is_tpu(path) for path in vendors)


def has_plugins() -> bool:
    """Whether JAX has back ends beside those of the CPU and of TPUs."""
    if importlib.util.find_spec("jax_plugins") is not None:
        return True
    return bool(importlib.metadata.entry_points(group="jax_plugins"))


def _is_tpu(vendor: Path) -> bool:
    if vendor.read_text().strip() != GOOGLE:
        return False
    kind = vendor.parent / "class"
    return not (kind.exists() and kind.read_text().startswith(NETWORK_AND_DISKS))
