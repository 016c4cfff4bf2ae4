"""The machines that programs are compiled for, present or not.

A TPU slice is named by its chip and its shape, "v5e:4x4": libtpu compiles for it on any Linux
machine, with no TPU in reach. "local" is the devices of this process, whatever they are.
"""

import importlib.util
import math
import os
import re
from typing import Any, NamedTuple

import jax

from jtransformer.accounting import Chip, chip, chip_of
from jtransformer.spec import Layout

LOCAL = "local"
"""The name of the devices of this machine."""
FAMILIES = {"v5e": 2, "v5p": 3, "v6e": 2}
"""TPUs that libtpu compiles for, and the axes of their torus."""
EXAMPLES = "'v5e:4x4', 'v5p:2x2x2', 'v6e:4x4' or 'local'"
MOST_CHIPS = {"v5e": 256, "v5p": 8960, "v6e": 256}
"""Chips of the largest slice of each."""
SHAPE = re.compile(r"(?P<chip>\w+):(?P<sizes>\d+(x\d+){1,2})", re.ASCII)
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_LOG_DIR": "disabled",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
"""What a command sets before JAX starts a back end, if it compiles for a TPU slice and not "local".

JAX itself stays on the CPU; once it is imported it is told so by `jax_platforms` alone. libtpu then
asks no metadata server about the machine, takes its word that there is one host (the type of slice
is asked for and not used), writes no logs, and lets several processes compile at once. Options of
its own go into LIBTPU_INIT_ARGS; one in XLA_FLAGS that it does not know ends the process.
"""


class Topology(NamedTuple):
    """Devices that a program is compiled for.

    Attributes:
        name: As it was asked for.
        chip: What they are; None where the figures are not known, as for a CPU.
        devices: The devices of JAX, which need not be here.
        capacity: Bytes of memory that a program may take on each; None where that is not known.
    """

    name: str
    chip: Chip | None
    devices: tuple[Any, ...]
    capacity: int | None


def topology(name: str) -> Topology:
    """Returns the devices of a name such as "v5e:4x4" or "local".

    Raises:
        ValueError: If there is no such slice, or libtpu is missing.
    """
    if name == LOCAL:
        return _local()
    found = SHAPE.fullmatch(name)
    family = None if found is None else found["chip"]
    if found is None or family not in FAMILIES:
        chips = ", ".join(FAMILIES)
        raise ValueError(
            f"topology {name!r} is unknown; give a chip ({chips}) and its shape, as in {EXAMPLES}."
        )
    sizes = [int(size) for size in found["sizes"].split("x")]
    _check_shape(name, family, sizes)
    if importlib.util.find_spec("libtpu") is None:
        raise ValueError(
            f"topology {name!r} needs the package libtpu, which compiles for TPUs that are not "
            "here; pip install 'jtransformer[tpu-plan]'."
        )
    one = chip(family)
    return Topology(name, one, _devices(name, sizes), one.usable_memory)


def default_layout(found: Topology) -> Layout:
    """Returns the layout that divides rows and parameters over all devices."""
    return Layout(fsdp=len(found.devices))


def check_layout(layout: Layout, found: Topology) -> None:
    """Refuses a layout that is for another number of devices.

    Raises:
        ValueError: If it is.
    """
    here = len(found.devices)
    # Of the devices that are here a run may use some.
    if layout.devices != here and not (found.name == LOCAL and layout.devices < here):
        raise ValueError(
            f"layout {layout.label!r} is for {layout.devices} devices, and topology {found.name!r} "
            f"has {here}; the sizes of its axes must have that product, as in "
            f"{default_layout(found).label!r}."
        )


def _check_shape(name: str, family: str, sizes: list[int]) -> None:
    axes, chips = FAMILIES[family], math.prod(sizes)
    if len(sizes) != axes:
        example = "2x2x2" if axes == 3 else "4x4"
        raise ValueError(
            f"topology {name!r} has {len(sizes)} axes, and {family} is a torus of {axes}; use one "
            f"as {family}:{example}."
        )
    # A host has 2 x 2 chips of the torus; a single chip is a part of one.
    is_slice = chips > 0 and not any(size % 2 for size in sizes[:2])
    if chips != 1 and not (is_slice and chips <= MOST_CHIPS[family]):
        raise ValueError(
            f"topology {name!r} is no slice of {family}: its first two axes must be even and its "
            f"chips at most {MOST_CHIPS[family]}, or it is one chip; use one as {EXAMPLES}."
        )


def _devices(name: str, sizes: list[int]) -> tuple[Any, ...]:
    # A part of JAX that few need, and it loads libtpu.
    from jax.experimental import topologies

    # One chip is less than the host of four that is taken else.
    options = {"chips_per_host_bounds": (1, 1, 1)} if math.prod(sizes) == 1 else {}
    return tuple(topologies.get_topology_desc(name, "tpu", **options).devices)


def _local() -> Topology:
    devices = tuple(jax.devices())
    first = devices[0]
    known = chip_of(first.device_kind)
    if first.platform == "cpu":
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Topology(LOCAL, known, devices, whole // len(devices))
    stats = first.memory_stats() or {}
    limit = stats.get("bytes_limit")
    if limit is None and known is not None:
        limit = known.usable_memory
    return Topology(LOCAL, known, devices, limit)
