"""How the runs of a group are computed: several together on one device, or each over several."""

import dataclasses
import re
from typing import Any, Literal, get_args

from jtransformer.spec import DIVIDING_MODES, Layout, SpecError

Mode = Literal["loop", "vmap", "map", "spread", "mesh", "pmap"]
MODES: tuple[str, ...] = get_args(Mode)
"""Every way in which runs are executed."""
LOCKSTEP = ("vmap", "map", "spread")
"""The modes in which several runs are in progress at once."""
OVER_DEVICES = ("spread", "pmap")
"""The modes that take a number of devices."""
LABEL = re.compile(
    r"(?P<mode>\w+)(, (?P<runs_at_once>\d+) runs)?(, (?P<devices>\d+) devices)?"
    r"(, (?P<mesh>\w+=.*?))?(, (?P<steps_per_dispatch>\d+) steps)?"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """How runs of one program are computed; each mode may move the last bits of their numbers.

    Attributes:
        mode: "loop": one after another. "vmap": in lockstep, every operation of all runs at once.
            "map": in lockstep, one after another inside one program. "spread": in lockstep, on
            several devices, those of one device as by "vmap". "mesh": one after another, each
            over the devices of a layout. "pmap": one after another, the rows of each over
            several devices.
        runs_at_once: Runs in lockstep [R]; 1 for what is not, a multiple of `devices` for
            "spread".
        steps_per_dispatch: Updates that the program makes before Python has its turn; 1 for "mesh"
            and "pmap".
        devices: Local devices that take part in "spread" and "pmap".
        layout: By what a run is divided in "mesh"; None elsewhere.
    """

    mode: Mode = "loop"
    runs_at_once: int = 1
    steps_per_dispatch: int = 1
    devices: int = 1
    layout: Layout | None = None

    def __post_init__(self):
        if self.mode not in MODES:
            raise SpecError("mode", f"must be one of {', '.join(MODES)}, got {self.mode!r}.")
        for name in ("runs_at_once", "steps_per_dispatch", "devices"):
            if getattr(self, name) < 1:
                raise SpecError(name, f"must be at least 1, got {getattr(self, name)}.")
        self._refuse_what_has_no_meaning()
        if (self.layout is None) == (self.mode == "mesh"):
            found = "none" if self.layout is None else self.layout.label
            raise SpecError("layout", f"belongs to mode 'mesh' and to no other, got {found} with "
                            f"mode {self.mode!r}; change one of them.")  # fmt: skip
        if self.mode == "pmap" and self.devices == 1:
            raise SpecError("devices", "= 1 has nothing to divide by mode 'pmap'; use 'loop'.")
        if self.runs_at_once % (self.devices if self.mode == "spread" else 1):
            raise SpecError(
                "runs_at_once",
                f"must be a multiple of the devices, got runs_at_once={self.runs_at_once}, "
                f"devices={self.devices}; use {-(-self.runs_at_once // self.devices)} per device.",
            )

    def _refuse_what_has_no_meaning(self) -> None:
        if self.mode not in LOCKSTEP and self.runs_at_once > 1:
            raise SpecError(
                "runs_at_once",
                f"= {self.runs_at_once} has no meaning for mode {self.mode!r}, which trains one "
                f"run at a time; use {', '.join(map(repr, LOCKSTEP))}.",
            )
        if self.mode not in OVER_DEVICES and self.devices > 1:
            raise SpecError(
                "devices",
                f"= {self.devices} has no meaning for mode {self.mode!r}; use 'spread', 'pmap', "
                "or a layout.",
            )
        if self.mode in DIVIDING_MODES and self.steps_per_dispatch > 1:
            raise SpecError(
                "steps_per_dispatch",
                f"= {self.steps_per_dispatch} has no meaning for mode {self.mode!r}, in which an "
                "update is a dispatch; leave it out.",
            )

    @property
    def all_devices(self) -> int:
        """How many devices take part, whatever the mode."""
        return self.devices if self.layout is None else self.layout.devices

    @property
    def label(self) -> str:
        """All that may move bits, as records have it; "loop" alone is one run by itself."""
        parts = [self.mode]
        if self.mode in LOCKSTEP:
            parts.append(f"{self.runs_at_once} runs")
        if self.devices > 1:
            parts.append(f"{self.devices} devices")
        if self.layout is not None:
            parts.append(self.layout.label)
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
            name: word if name in ("mode", "mesh") else int(word) for name, word in given.items()
        }
        found = cls.from_record(record)
        if found.label != label:
            raise SpecError("mode", f"= {label!r} is no label of an execution.")
        return found

    def to_record(self) -> dict[str, Any]:
        """Returns the plain data of which `from_record` makes this value."""
        record = dataclasses.asdict(self)
        del record["layout"]
        mesh = f"data={self.devices}" if self.mode == "pmap" else None
        return record | {"mesh": mesh if self.layout is None else self.layout.label}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Execution":
        """Reads what `to_record` wrote; what is missing, as in older records, is the default."""
        known = {field.name for field in dataclasses.fields(cls)}
        found = {name: value for name, value in record.items() if name in known}
        if found["mode"] == "mesh" and isinstance(record.get("mesh"), str):
            found["layout"] = Layout.parse(record["mesh"])
        return cls(**found)

    @classmethod
    def over_devices(cls, mode: str, layout: Layout | None, devices: int) -> "Execution":
        """Returns how one run is spread.

        Args:
            mode: "mesh" or "pmap".
            layout: By what it is divided; None is over all devices: the parameters with the rows
                in a mesh, the rows alone by `jax.pmap`.
            devices: How many there are.

        Raises:
            SpecError: If `jax.pmap` is to divide anything but rows.
        """
        if mode == "mesh":
            return cls(mode="mesh", layout=Layout(fsdp=devices) if layout is None else layout)
        assert mode == "pmap"
        replicas = devices if layout is None else layout.replicas
        if replicas is None:
            assert layout is not None
            raise SpecError(
                "layout",
                f"= {layout.label!r} divides more than rows, which is all that mode 'pmap' does; "
                f"use data={layout.devices}, or mode 'mesh'.",
            )
        return cls(mode="pmap", devices=replicas)


LOOP = Execution()
"""One run after the other, each on one device."""
