"""Which execution of a group is the fastest on this machine: measured, never assumed.

On a CPU runs in lockstep are slower than runs in turn as often as not; on an accelerator that a
small model leaves idle they are several times as fast.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from jtransformer.data import Batch
from jtransformer.spec import Layout, SpecError
from jtransformer.training.execution import LOOP, MODES, Execution, Mode
from jtransformer.training.lanes import LanePrograms, Lanes, Numbers
from jtransformer.training.machine import peak_flops, program_bytes
from jtransformer.training.state import TrainState

MOST_RUNS_AT_ONCE = 64
DISPATCH_SECONDS = 2.5e-4
"""What Python takes for a dispatch of an update; it shows where it is a tenth of the update."""
SEVERAL_STEPS = 16
"""Updates that a dispatch makes where it shows, if rows of metrics are not nearer together."""
BURST, BURSTS = 4, 3
"""Dispatches that are timed together, and how often: the median counts."""
REACHED = 0.5
"""The share of the best that can be hoped for which is expected, when measuring is weighed."""
WORTHWHILE = 0.9
"""The share of the loop's time below which another execution is taken."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wish:
    """What is asked of an execution; None and "auto" leave it to the machine.

    Attributes:
        mode: One mode, or the fastest.
        runs_at_once: Runs in lockstep; None is as many as there are and memory holds.
        steps_per_dispatch: Updates per dispatch; None is one, or more where dispatch shows and
            the mode is "auto".
        layout: By what a run is divided, for "mesh" and "pmap"; None is over all devices.
    """

    mode: Mode | Literal["auto"] = "auto"
    runs_at_once: int | None = None
    steps_per_dispatch: int | None = None
    layout: Layout | None = None

    def __post_init__(self):
        if self.mode not in ("auto", *MODES):
            allowed = ", ".join(("auto", *MODES))
            raise SpecError("mode", f"must be one of {allowed}, got {self.mode!r}.")
        for name in ("runs_at_once", "steps_per_dispatch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SpecError(name, f"must be at least 1, got {value}.")


class TimedRun(NamedTuple):
    """A run by which executions are measured; none of its updates is kept.

    Attributes:
        programs: Returns the programs of an execution, the same ones that will train.
        state: A state before an update.
        numbers: The numbers of the run.
        batches: As many batches as a dispatch may take.
    """

    programs: Callable[[Execution], LanePrograms]
    state: TrainState
    numbers: Numbers
    batches: Sequence[Batch]


class Workload(NamedTuple):
    """What is to be executed, and where.

    Attributes:
        runs: Runs of the group.
        updates: Those of all of them together.
        devices: Local devices that may take part.
        memory_bytes: What one of them has.
    """

    runs: int
    updates: int
    devices: int
    memory_bytes: int


class Timing(NamedTuple):
    """Figures of one execution.

    Attributes:
        execution: What was measured.
        compile_seconds: Until it was compiled.
        seconds: Per update of one run.
        memory_bytes: What one device holds while it runs.
        flops: Of an update of one run, as the compiler counts; 0 if it does not.
    """

    execution: Execution
    compile_seconds: float
    seconds: float
    memory_bytes: int
    flops: float


class ExecutionChoice(NamedTuple):
    """The execution of a group, and why it is that.

    Attributes:
        execution: How the runs are to be computed.
        record: The same with all figures, as plain data.
    """

    execution: Execution
    record: dict[str, Any]


def choose(sample: TimedRun, wish: Wish, work: Workload) -> ExecutionChoice:
    """Chooses the execution of a group.

    The loop is measured first: its program is needed anyway, for whatever runs alone. No execution
    can be faster than the device is with one large matrix product, which is measured too. Another
    execution is compiled and measured only where half of what it could save so at best, over all
    updates, is more than what it costs to try, taken to be what the loop has cost.
    Tried are "vmap", "spread" where there are several devices, and the fastest of them with
    several steps per dispatch where dispatch shows; not "map", which saves nothing but dispatch.
    The loop is left only for what is a tenth faster: less is noise, and the arms of a sweep would
    be executed in different modes by chance.

    Args:
        sample: What is measured.
        wish: What is asked for; a mode that is named is fitted to memory, and beside no other.
        work: What is to be done.

    Raises:
        SpecError: If what is asked for has no meaning.
    """
    if wish.mode != "auto":
        return _as_told(sample, wish, work)
    began = time.perf_counter()
    turn = dataclasses.replace(LOOP, steps_per_dispatch=wish.steps_per_dispatch or 1)
    loop = measure(sample, turn, work.memory_bytes)
    assert loop is not None
    cost, peak = time.perf_counter() - began, peak_flops()
    measured, skipped = [loop], []
    for candidate in candidates(wish, work, len(sample.batches), measured):
        could_save = work.updates * max(_fastest(measured).seconds - loop.flops / peak, 0.0)
        if REACHED * could_save <= cost:
            skipped.append({"execution": candidate.label, "could_save_seconds": could_save,
                            "cost_seconds": cost})  # fmt: skip
            continue
        found = measure(sample, candidate, work.memory_bytes)
        # Fewer than were asked for are no answer to that.
        if found is not None and wish.runs_at_once in (None, found.execution.runs_at_once):
            measured.append(found)
    fastest = _fastest(measured)
    execution = (fastest if fastest.seconds < WORTHWHILE * loop.seconds else loop).execution
    figures = [one._asdict() | {"execution": one.execution.label} for one in measured]
    return ExecutionChoice(execution, _record(execution, figures, skipped))


def choose_over_devices(wish: Wish, devices: int) -> ExecutionChoice:
    """Returns the execution of runs each of which is spread over devices; nothing is measured.

    Args:
        wish: Its mode is "mesh" or "pmap".
        devices: How many devices there are.

    Raises:
        SpecError: If what is asked for has no meaning.
    """
    execution = dataclasses.replace(
        Execution.over_devices(wish.mode, wish.layout, devices),
        runs_at_once=wish.runs_at_once or 1,
        steps_per_dispatch=wish.steps_per_dispatch or 1,
    )
    return ExecutionChoice(execution, _record(execution, [], []))


def measure(sample: TimedRun, execution: Execution, memory_bytes: int) -> Timing | None:
    """Compiles an execution and times a few of its updates.

    Runs in lockstep are made fewer until memory holds them.

    Returns:
        The figures; None if memory holds less than two runs.
    """
    own = sum(leaf.nbytes for leaf in jax.tree.leaves(sample.state))
    fitting: Execution | None = execution
    if execution.mode != "loop":
        held = own * execution.runs_at_once // execution.devices
        fitting = _fewer(execution, held, memory_bytes)
    while fitting is not None:
        lanes = Lanes(sample.programs(fitting), fitting)
        # A copy, since updates use the buffers of a state again.
        lanes.enter(0, jax.tree.map(jnp.copy, sample.state), sample.numbers)
        given = sample.batches[: fitting.steps_per_dispatch]
        batches = dict.fromkeys(range(fitting.runs_at_once), given)
        began = time.perf_counter()
        program = lanes.compile(batches)
        seconds, needed = time.perf_counter() - began, program_bytes(program)
        if needed <= memory_bytes or fitting.mode == "loop":
            flops = (program.cost_analysis() or {}).get("flops", 0.0)
            per_update = _timed(lanes, batches) / (fitting.runs_at_once * len(given))
            return Timing(fitting, seconds, per_update, needed, float(flops))
        fitting = _fewer(fitting, needed, memory_bytes)
    return None


def _as_told(sample: TimedRun, wish: Wish, work: Workload) -> ExecutionChoice:
    assert wish.mode != "auto"
    steps = wish.steps_per_dispatch or 1
    if wish.mode == "loop":
        execution = Execution(runs_at_once=wish.runs_at_once or 1, steps_per_dispatch=steps)
        return ExecutionChoice(execution, _record(execution, [], []))
    execution = lockstep(wish.mode, wish, work, steps)
    if wish.runs_at_once is None:
        found = measure(sample, execution, work.memory_bytes)
        if found is None:
            raise SpecError(
                "mode",
                f"= {wish.mode!r} needs room for two runs, and {work.memory_bytes / 2**20:.0f} MiB "
                "hold less; use 'loop'.",
            )
        execution = found.execution
    return ExecutionChoice(execution, _record(execution, [], []))


def candidates(
    wish: Wish, work: Workload, most_steps: int, measured: list[Timing]
) -> Iterator[Execution]:
    """Yields what may be tried, in the light of what has been measured by then."""
    steps = wish.steps_per_dispatch or 1
    if work.runs > 1 and wish.runs_at_once != 1:
        yield lockstep("vmap", wish, work, steps)
        if work.devices > 1 and (wish.runs_at_once or 0) % work.devices == 0:
            yield lockstep("spread", wish, work, steps)
    best = _fastest(measured)
    shows = best.seconds * best.execution.runs_at_once < 10 * DISPATCH_SECONDS
    if wish.steps_per_dispatch is None and most_steps > 1 and shows:
        yield dataclasses.replace(best.execution, steps_per_dispatch=most_steps)


def _fastest(measured: Sequence[Timing]) -> Timing:
    return min(measured, key=lambda one: one.seconds)


def lockstep(mode: Mode, wish: Wish, work: Workload, steps: int) -> Execution:
    """Returns the execution with as many runs at once as there are, or even chunks of them."""
    devices = work.devices if mode == "spread" else 1
    most = MOST_RUNS_AT_ONCE * devices
    chunks = -(-work.runs // most)
    # Chunks of one size, and on every device as many.
    even = devices * -(-work.runs // (chunks * devices))
    return Execution(
        mode=mode,
        runs_at_once=wish.runs_at_once or even,
        steps_per_dispatch=steps,
        devices=devices,
    )


def _fewer(execution: Execution, needed: int, memory_bytes: int) -> Execution | None:
    """Returns the execution with no more runs than memory should hold; None if that is one."""
    if needed <= memory_bytes:
        return execution
    own = execution.runs_at_once // execution.devices
    fitting = min(int(own * memory_bytes / needed), own - 1)
    if fitting * execution.devices < 2:
        return None
    return dataclasses.replace(execution, runs_at_once=fitting * execution.devices)


def _timed(lanes: Lanes, batches: dict[int, Sequence[Batch]]) -> float:
    """Returns the seconds of a dispatch."""
    lanes.advance(batches)
    lanes.wait()
    seconds = []
    for _ in range(BURSTS):
        began = time.perf_counter()
        for _ in range(BURST):
            lanes.advance(batches)
        lanes.wait()
        seconds.append((time.perf_counter() - began) / BURST)
    return statistics.median(seconds)


def _record(
    execution: Execution, measured: list[dict[str, Any]], skipped: list[dict[str, Any]]
) -> dict[str, Any]:
    return execution.to_record() | {"measured": measured, "not_measured": skipped}
