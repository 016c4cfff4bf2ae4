"""How one run is spread over devices: what is divided, and by how many.

A layout moves the last bits of a run's numbers and nothing else, so it is no part of a run's
identity: it stands beside the spec, and `training.Execution` records it.

Sources: rows over devices with parameters in parts (Rajbhandari et al. 2019, ZeRO, sec. 5,
https://arxiv.org/abs/1910.02054; its stage 1 is `shard_optimizer`, its stage 3 `fsdp`); heads and
hidden units over devices, Shoeybi et al. 2019 (Megatron-LM), sec. 3,
https://arxiv.org/abs/1909.08053.
"""

import dataclasses
import math
import re

from jtransformer.spec.errors import SpecError, nearest
from jtransformer.spec.fields import Checked, check, number

MESH_AXES = ("data", "fsdp", "tensor", "sequence")
"""The axes of every mesh, in their order; those that are not used have size 1."""
DIVIDING_MODES = ("mesh", "pmap")
"""The modes of execution in which one run is computed by several devices."""
_WORDS = {"true": True, "false": False}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout(Checked):
    """By how many devices each part of a training step is divided.

    Attributes:
        data: Rows of a batch, beside `fsdp`; the parameters are whole on each of these devices.
        fsdp: Rows of a batch, and the parameters with them: each device keeps a part of every
            matrix and fetches the rest when it is used.
        tensor: Heads, hidden units and the vocabulary, of parameters and of activations.
        sequence: The tokens of a row.
        shard_optimizer: Whether the optimizer's state is divided over `data` too.
    """

    data: int = number(1, minimum=1)
    fsdp: int = number(1, minimum=1)
    tensor: int = number(1, minimum=1)
    sequence: int = number(1, minimum=1)
    shard_optimizer: bool = False

    def __post_init__(self):
        check(self)
        if self.shard_optimizer and self.data == 1:
            raise SpecError(
                "shard_optimizer",
                "= True divides the optimizer's state over the axis data, which is 1; give data, "
                "or leave it out.",
            )

    @classmethod
    def parse(cls, text: str) -> "Layout":
        """Reads a layout such as "fsdp=4, tensor=2"; an axis that is left out is 1.

        Raises:
            SpecError: If it is none.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        found: dict[str, int | bool] = {}
        for part in text.split(","):
            name, equals, word = (piece.strip() for piece in part.partition("="))
            if name not in known:
                raise SpecError(name or repr(text), f"is no part of a layout; "
                                f"{nearest(name, known)}.")  # fmt: skip
            if name in found:
                raise SpecError(name, f"is given twice in {text!r}; leave one of them out.")
            value = int(word) if re.fullmatch(r"[0-9]{1,9}", word) else _WORDS.get(word.lower())
            if not equals or value is None:
                kind, example = ("a number", 2) if name in MESH_AXES else ("true", "true")
                raise SpecError(
                    name, f"must have {kind}, as in {name}={example}, got {part.strip()!r}."
                )
            found[name] = value
        return cls(**found)  # pyright: ignore[reportArgumentType]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the axes of a mesh, in the order of `MESH_AXES`."""
        return tuple(getattr(self, axis) for axis in MESH_AXES)

    @property
    def devices(self) -> int:
        """How many devices it takes."""
        return math.prod(self.sizes)

    @property
    def row_parts(self) -> int:
        """Into how many parts the rows of a batch are divided."""
        return self.data * self.fsdp

    @property
    def replicas(self) -> int | None:
        """How many devices have all of a run but its rows; None where more is divided."""
        return self.data if self == Layout(data=self.data) else None

    @property
    def label(self) -> str:
        """What `parse` reads as this layout: the axes that divide something."""
        parts = [f"{axis}={n}" for axis, n in zip(MESH_AXES, self.sizes, strict=True) if n > 1]
        if self.shard_optimizer:
            parts.append("shard_optimizer=true")
        return ", ".join(parts or ["data=1"])
