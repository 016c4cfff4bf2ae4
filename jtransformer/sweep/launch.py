"""What one `sweep` command wants of the workers of its work directory."""

import dataclasses
import uuid
from pathlib import Path
from typing import Any, get_type_hints

from jtransformer import records
from jtransformer.spec import DIVIDING_MODES, SpecError, nearest
from jtransformer.sweep.ledger import LEASE_SECONDS

MODES = ("auto", "loop", "vmap", "map", "spread", *DIVIDING_MODES)
"""Those of `training.Execution`, and the fastest of them."""
TURNS = ("loop", *DIVIDING_MODES)
"""The modes in which runs are trained one after another."""


@dataclasses.dataclass(frozen=True)
class Launch:
    """The wishes of one `sweep` command; a run that failed is tried again by the next.

    Attributes:
        identity: Tells launches apart.
        retries: How often a run that failed is tried again within the launch.
        lease_seconds: How long a worker may be silent before others take its run over.
        accept_environment: Whether a run begun in another environment may be continued.
        mode: How the runs of one program are computed; "auto" is what is measured to be fastest.
        runs_at_once: How many of them at a time, where the mode has that; None is what fits.
        mesh: By what each run is divided, as `spec.Layout.label` has it, for "mesh" and "pmap";
            None is over all devices.
        steps_per_dispatch: Updates that are made before Python has its turn; None is one, or what
            is measured to be fastest.
        compile_cache: Where compiled programs are kept; None is in the work directory.
        workers: How many workers are expected, so that one does not take what all could share.
    """

    identity: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    retries: int = 0
    lease_seconds: float = LEASE_SECONDS
    accept_environment: bool = False
    mode: str = "auto"
    runs_at_once: int | None = None
    mesh: str | None = None
    steps_per_dispatch: int | None = None
    compile_cache: str | None = None
    workers: int = 1

    def __post_init__(self):
        if self.mode not in MODES:
            allowed = nearest(self.mode, MODES)
            raise SpecError("--mode", f"= {self.mode!r} is not known; {allowed}.")
        for name in ("runs_at_once", "steps_per_dispatch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SpecError(f"--{name}", f"must be at least 1, got {value}.")
        if self.mode in TURNS and self.runs_at_once not in (None, 1):
            raise SpecError(
                "--runs_at_once",
                f"= {self.runs_at_once} has no meaning for --mode {self.mode}, which trains one "
                "run at a time; use vmap, map or spread.",
            )
        if self.mode in DIVIDING_MODES and self.steps_per_dispatch not in (None, 1):
            raise SpecError(
                "--steps_per_dispatch",
                f"= {self.steps_per_dispatch} has no meaning for --mode {self.mode}, in which an "
                "update is a dispatch; leave it out.",
            )


def write_launch(workdir: Path, launch: Launch) -> None:
    """Makes a launch the one that workers of a work directory follow."""
    records.write_json(records.SweepFiles(workdir).launch, dataclasses.asdict(launch))


def read_launch(workdir: Path) -> Launch:
    """Reads what the workers of a work directory follow.

    Raises:
        SpecError: If no sweep was launched there.
        DamagedRecord: If the file is damaged.
    """
    path = records.SweepFiles(workdir).launch
    try:
        found = records.read_json(path)
    except FileNotFoundError:
        raise SpecError(
            "--workdir",
            f"= {str(workdir)!r} has no {path.name}; plan the sweep first by "
            "`jtransformer sweep … --workers 0`.",
        ) from None
    kinds: dict[str, Any] = get_type_hints(Launch)
    if not isinstance(found, dict) or sorted(found) != sorted(kinds):
        raise records.DamagedRecord(
            f"{path} is damaged (it must hold {', '.join(kinds)}); run the sweep again."
        )
    for name, kind in kinds.items():
        value = found[name]
        # JSON may write 60.0 as 60; a bool is an int to Python alone.
        fits = isinstance(value, kind | int if kind is float else kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise records.DamagedRecord(
                f"{path} is damaged ({name} is {value!r}); run the sweep again."
            )
    return Launch(**found)
