"""What differs between the environments of two runs, and what each difference can do."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

Kind = Literal["version", "device", "mode"]

DEVICE = ("machine", "platform", "device_kind", "device_count", "process_count", "threads")
MODE = (
    "mode",
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "xla_flags",
)
"""All other entries of an environment are versions."""
DRAWS = ("jax_default_prng_impl", "jax_threefry_partitionable", "jax_enable_x64")
"""Settings under which other random numbers are drawn, so that even the start is another."""
EXPLANATIONS: dict[Kind, str] = {
    "version": "another release may compile, draw or add differently",
    "device": "another machine, or number of devices or threads, adds in another order",
    "mode": "another program of the same mathematics rounds differently",
}
OF_ARMS = ("decayed_parameters",)
"""What stands beside an environment and follows from the spec."""


class Change(NamedTuple):
    """An entry of an environment that has another value.

    Attributes:
        name: The entry.
        kind: What it belongs to.
        recorded: Its value then.
        present: Its value now.
        explanation: What that can do to a number.
    """

    name: str
    kind: Kind
    recorded: Any
    present: Any
    explanation: str


def changes(recorded: Sequence[dict[str, Any]], present: dict[str, Any]) -> list[Change]:
    """Lists what differs from the environments in which a run was trained.

    Args:
        recorded: One, or several where the run was continued elsewhere.
        present: The one of now.
    """
    found = {}
    for before in recorded:
        for name in {**before, **present}:
            values = before.get(name), present.get(name)
            if name not in OF_ARMS and values[0] != values[1]:
                kind = _kind(name)
                why = "other random numbers are drawn" if name in DRAWS else EXPLANATIONS[kind]
                found[name, repr(values[0])] = Change(name, kind, *values, why)
    return list(found.values())


def _kind(name: str) -> Kind:
    return "device" if name in DEVICE else "mode" if name in MODE else "version"
