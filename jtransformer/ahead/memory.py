"""What one device holds while a compiled program runs, by kind.

What is held between calls is exact: the parts of parameters, optimizer and average that the layout
gives a device. The rest is what the compiler reserved. Of its temporaries the activations are the
estimate of `jtransformer.accounting`, divided evenly over the devices and never more than all of
them; the others are gradients, gathered parameters and what the compiler forms beside that.

A compiler that finds a program too large says so and compiles nothing. That is a result here.
"""

import re
from typing import Any, NamedTuple

from jtransformer import accounting
from jtransformer.ahead.programs import Lowered, device_bytes
from jtransformer.spec import Layout, RunSpec

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
NUMBER = r"(\d+(?:\.\d+)?)([KMGT]?)B?"
TEMPORARIES = re.compile(rf"HLO temporaries \({NUMBER}\)")
IN_ALL = re.compile(rf"Used {NUMBER} of {NUMBER} hbm", re.IGNORECASE)
ALLOCATION = re.compile(r"allocate (\d+) bytes")
EXHAUSTED = "RESOURCE_EXHAUSTED"


class Reserved(NamedTuple):
    """Bytes of one device that the compiler planned with.

    Attributes:
        arguments: What it is given.
        outputs: What it returns, in buffers of its own.
        temporaries: What it needs in between.
        code: The program itself.
        refusal: What the compiler said, where it found too little memory; only temporaries are
            then known. None where it compiled.
    """

    arguments: int
    outputs: int
    temporaries: int
    code: int
    refusal: str | None = None


class DeviceMemory(NamedTuple):
    """Bytes of one device.

    Attributes:
        parameters: Its part of the model.
        optimizer: Of what the optimizer remembers.
        average: Of the mean of the parameters.
        batch: Of a batch.
        cache: Of the keys and values of decoding.
        padding: Other arguments, and what the layout of arrays in memory adds to all of them.
        activations: What the forward pass leaves for the backward pass, estimated.
        temporaries: All else that the program needs in between, gradients among it.
        outputs: What it returns beside the buffers that it was given.
        code: The program itself.
        capacity: What a program may take; None where that is not known.
        refusal: What the compiler said where it refused; None where it compiled.
    """

    parameters: int
    optimizer: int
    average: int
    batch: int
    cache: int
    padding: int
    activations: int
    temporaries: int
    outputs: int
    code: int
    capacity: int | None
    refusal: str | None

    @property
    def total(self) -> int:
        """All of it; of a program that was refused, what it would take at least."""
        return sum(value for name, value in self._asdict().items() if name not in APART)

    @property
    def fits(self) -> bool:
        """Whether the compiler took it and it stays below the capacity."""
        return self.refusal is None and (self.capacity is None or self.total <= self.capacity)

    def to_record(self) -> dict[str, Any]:
        """Returns plain data, with the total and whether it fits."""
        return {**self._asdict(), "total": self.total, "fits": self.fits}


APART = ("capacity", "refusal")
"""What is no part of the total."""


def reserved(compiled: Any) -> Reserved:
    """Reads what a compiled program reserves on each device."""
    found = compiled.memory_analysis()
    return Reserved(
        arguments=found.argument_size_in_bytes,
        outputs=found.output_size_in_bytes - found.alias_size_in_bytes,
        temporaries=found.temp_size_in_bytes,
        code=found.generated_code_size_in_bytes,
    )


def refused(message: str, arguments: int) -> Reserved:
    """Reads how much memory a program wanted that the compiler refused.

    Args:
        message: What it said.
        arguments: Bytes that each device holds of the arguments.
    """
    temporaries = 0
    if (found := TEMPORARIES.search(message)) is not None:
        temporaries = _bytes(*found.groups())
    elif (found := IN_ALL.search(message)) is not None:
        temporaries = _bytes(*found.groups()[:2]) - arguments
    elif (found := ALLOCATION.search(message)) is not None:
        temporaries = int(found.group(1))
    first = message.strip().splitlines()[0]
    return Reserved(arguments, 0, max(0, temporaries), 0, first)


def device_memory(
    lowered: Lowered, found: Reserved, spec: RunSpec, layout: Layout, capacity: int | None
) -> DeviceMemory:
    """Sorts what a device holds by kind.

    Args:
        lowered: The program.
        found: What the compiler reserved.
        spec: The run.
        layout: How it is laid over devices.
        capacity: Bytes that a program may take on one of them; None where that is not known.
    """
    held = {kind: device_bytes(tree) for kind, tree in lowered.held.items()}
    kept = 0
    if lowered.what == "train":
        kept = min(found.temporaries, accounting.memory(spec).activations // layout.devices)
    return DeviceMemory(
        parameters=held["parameters"],
        optimizer=held.get("optimizer", 0),
        average=held.get("average", 0),
        batch=held.get("batch", 0),
        cache=held.get("cache", 0),
        padding=max(0, found.arguments - sum(held.values())),
        activations=kept,
        temporaries=found.temporaries - kept,
        outputs=found.outputs,
        code=found.code,
        capacity=capacity,
        refusal=found.refusal,
    )


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * UNITS[unit])
