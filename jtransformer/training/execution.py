"""How the runs of a group are computed together."""

import dataclasses
import re
from typing import Any, Literal, get_args

from jtransformer.spec import SpecError

Mode = Literal["loop", "vmap", "map", "spread"]
MODES: tuple[str, ...] = get_args(Mode)
LABEL = re.compile(
    r"(?P<mode>\w+)(, (?P<runs_at_once>\d+) runs)?(, (?P<devices>\d+) devices)?"
    r"(, (?P<steps_per_dispatch>\d+) steps)?"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """How runs of one program are computed; each mode may move the last bits of their numbers.

    Attributes:
        mode: "loop": one after another. "vmap": in lockstep, every operation of all runs at once.
            "map": in lockstep, one after another inside one program. "spread": in lockstep, on
            several devices, those of one device as by "vmap".
        runs_at_once: Runs in lockstep [R]; 1 for "loop", a multiple of `devices` for "spread".
        steps_per_dispatch: Updates that the program makes before Python has its turn.
        devices: Local devices that take part.
    """

    mode: Mode = "loop"
    runs_at_once: int = 1
    steps_per_dispatch: int = 1
    devices: int = 1

    def __post_init__(self):
        if self.mode not in MODES:
            raise SpecError("mode", f"must be one of {', '.join(MODES)}, got {self.mode!r}.")
        for name in ("runs_at_once", "steps_per_dispatch", "devices"):
            if getattr(self, name) < 1:
                raise SpecError(name, f"must be at least 1, got {getattr(self, name)}.")
        if self.mode == "loop" and self.runs_at_once > 1:
            raise SpecError(
                "runs_at_once",
                f"= {self.runs_at_once} has no meaning for mode 'loop', which trains one run at a "
                "time; use 'vmap', 'map' or 'spread'.",
            )
        if self.mode != "spread" and self.devices > 1:
            raise SpecError(
                "devices", f"= {self.devices} has no meaning for mode {self.mode!r}; use 'spread'."
            )
        if self.runs_at_once % self.devices:
            raise SpecError(
                "runs_at_once",
                f"must be a multiple of the devices, got runs_at_once={self.runs_at_once}, "
                f"devices={self.devices}; use {-(-self.runs_at_once // self.devices)} per device.",
            )

    @property
    def label(self) -> str:
        """All that may move bits, as records have it; "loop" alone is one run by itself."""
        parts = [self.mode]
        if self.mode != "loop":
            parts.append(f"{self.runs_at_once} runs")
        if self.devices > 1:
            parts.append(f"{self.devices} devices")
        if self.steps_per_dispatch > 1:
            parts.append(f"{self.steps_per_dispatch} steps")
        return ", ".join(parts)

    @classmethod
    def from_label(cls, label: str) -> "Execution":
        """Returns the execution that has a label.

        Raises:
            SpecError: If none has.
        """
        match = LABEL.fullmatch(label)
        if match is None:
            raise SpecError("mode", f"= {label!r} is no label of an execution.")
        given = {name: word for name, word in match.groupdict().items() if word is not None}
        record: dict[str, Any] = {
            name: word if name == "mode" else int(word) for name, word in given.items()
        }
        return cls(**record)

    def to_record(self) -> dict[str, Any]:
        """Returns the plain data of which `Execution(**data)` is this value."""
        return dataclasses.asdict(self)


LOOP = Execution()
