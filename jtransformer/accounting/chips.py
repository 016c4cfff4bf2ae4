"""What accelerators can do at most, as their vendors state it.

Bandwidths of the network are what one chip can send over all its links at once, which is half of
the figure "bidirectional" and an eighth of one in bits. TPUs are joined by a torus; a collective
along one axis of it reaches the links of that axis alone. GPUs are those of a board of eight
(SXM), joined by NVLink; beyond one host their network is slower and is not known here.

Sources:
* TPU v5e, v5p, v6e: https://cloud.google.com/tpu/docs/v5e, .../v5p and .../v6e. What XLA leaves
  to a program was read from the refusals of libtpu 0.0.52.
* A100 (80 GB): NVIDIA A100 Tensor Core GPU, data sheet, 2022,
  https://www.nvidia.com/en-us/data-center/a100/
* H100 and H200: https://www.nvidia.com/en-us/data-center/h100/ and .../h200/; figures "with
  sparsity" are halved.
"""

import dataclasses

GB = 10**9
GIB = 2**30
TERA = 10**12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """One accelerator.

    Attributes:
        name: Short name, as in "v5e".
        kinds: What JAX calls it, `device_kind`; releases differ.
        memory: Bytes of its memory.
        usable_memory: Bytes of them that one program may take.
        flops: Operations per second of products of bfloat16, without sparsity.
        memory_bandwidth: Bytes per second between chip and memory.
        network_bandwidth: Bytes per second that it can send to other chips of its slice or host.
    """

    name: str
    kinds: tuple[str, ...]
    memory: int
    usable_memory: int
    flops: float
    memory_bandwidth: float
    network_bandwidth: float


CHIPS = (
    Chip(
        name="v5e",
        kinds=("TPU v5 lite", "TPU v5e"),
        memory=16 * GIB,
        usable_memory=int(15.75 * GIB),
        flops=197 * TERA,
        memory_bandwidth=819 * GB,
        network_bandwidth=200 * GB,
    ),
    Chip(
        name="v5p",
        kinds=("TPU v5", "TPU v5p"),
        memory=96 * GIB,
        usable_memory=int(95.73 * GIB),
        flops=459 * TERA,
        memory_bandwidth=2765 * GB,
        network_bandwidth=600 * GB,
    ),
    Chip(
        name="v6e",
        kinds=("TPU v6 lite", "TPU v6e"),
        memory=32 * GIB,
        usable_memory=int(31.24 * GIB),
        flops=918 * TERA,
        memory_bandwidth=1600 * GB,
        network_bandwidth=400 * GB,
    ),
    Chip(
        name="A100",
        kinds=("NVIDIA A100-SXM4-80GB",),
        memory=80 * GIB,
        usable_memory=80 * GIB,
        flops=312 * TERA,
        memory_bandwidth=2039 * GB,
        network_bandwidth=300 * GB,
    ),
    Chip(
        name="H100",
        kinds=("NVIDIA H100 80GB HBM3",),
        memory=80 * GIB,
        usable_memory=80 * GIB,
        flops=989 * TERA,
        memory_bandwidth=3350 * GB,
        network_bandwidth=450 * GB,
    ),
    Chip(
        name="H200",
        kinds=("NVIDIA H200",),
        memory=141 * GB,
        usable_memory=141 * GB,
        flops=989 * TERA,
        memory_bandwidth=4800 * GB,
        network_bandwidth=450 * GB,
    ),
)
"""Every chip whose figures are known."""


def chip(name: str) -> Chip:
    """Returns the chip of a short name.

    Raises:
        ValueError: If there is none.
    """
    for one in CHIPS:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in CHIPS)
    raise ValueError(f"chip {name!r} is unknown; use one of {known}.")


def chip_of(device_kind: str) -> Chip | None:
    """Returns the chip that JAX names so; None where its figures are not known.

    Args:
        device_kind: `device_kind` of one of its devices.
    """
    return next((one for one in CHIPS if device_kind in one.kinds), None)
