"""The states of R runs in lockstep: the one place where runs are an axis.

An update is written for one run. Here it becomes the update of R runs that know nothing of each
other: every lane has a state, a step, numbers, a key and batches of its own. The program depends
on the execution alone and not on how many lanes are in use, so that neither do the bits.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jtransformer.data import Batch
from jtransformer.spec import RunSpec, SpecError
from jtransformer.training.execution import LOCKSTEP, Execution
from jtransformer.training.hosts import in_turn
from jtransformer.training.program import Program, dropout_key
from jtransformer.training.replicas import Replicas
from jtransformer.training.schedules import Hyperparameters, hyperparameters
from jtransformer.training.state import TrainState

AXIS = "R"


class Numbers(NamedTuple):
    """What a run gives to every update of its own.

    Attributes:
        hyper: Its numbers.
        key: Key of its dropout; None where its model has none.
    """

    hyper: Hyperparameters
    key: jax.Array | None


def numbers_of(spec: RunSpec) -> Numbers:
    """Returns what a run gives to its updates."""
    return Numbers(hyperparameters(spec), dropout_key(spec))


class LanePrograms(NamedTuple):
    """The programs of an execution, each compiled when it is first called.

    Attributes:
        advance: Makes updates, from states, batches, counts and numbers of all lanes.
        lower: Lowers `advance` for such arguments.
        fill: Returns the states of all lanes, each that of one run.
        take: Returns the state of a lane.
        put: Replaces the state of a lane.
        place: Puts the numbers of a run where updates read them.
    """

    advance: Callable[..., Any]
    lower: Callable[..., Any]
    fill: Callable[[TrainState], Any]
    take: Callable[[Any, int], TrainState]
    put: Callable[[Any, int, TrainState], Any]
    place: Callable[[Numbers], Numbers]


def lane_programs(program: Program, execution: Execution) -> LanePrograms:
    """Returns the programs of an execution.

    Raises:
        SpecError: If there are fewer devices than it wants.
    """
    if execution.mode == "pmap":
        return _on_replicas(program, execution)
    several = execution.steps_per_dispatch > 1
    one = functools.partial(_several if several else _single, program.step)
    if execution.mode not in LOCKSTEP:
        if several:
            advance = program.jit(one, donate_argnums=0)
            lower = advance.lower
        else:
            # The update that a run by itself has, to the bit.
            advance = functools.partial(_placed, program, program.update)
            lower = functools.partial(_placed, program, program.update.lower)
        return LanePrograms(advance, lower, _itself, _only, _instead, program.place_whole)
    sharding = None
    if execution.mode == "vmap":
        every = jax.vmap(one)
    elif execution.mode == "map":
        every = functools.partial(_mapped, one)
    else:
        mesh = Mesh(np.asarray(_local_devices(execution.devices)), (AXIS,))
        sharding = NamedSharding(mesh, PartitionSpec(AXIS))
        own = jax.vmap(one) if execution.runs_at_once > execution.devices else _squeezed(one)
        # Nothing passes between the devices, so there is nothing whose variation could be checked.
        every = jax.shard_map(
            own,
            mesh=mesh,
            in_specs=PartitionSpec(AXIS),
            out_specs=PartitionSpec(AXIS),
            check_vma=False,
        )
    advance, take = program.jit(every, donate_argnums=0), program.jit(_taken)
    fill = functools.partial(_filled, execution.runs_at_once)
    return LanePrograms(
        advance=advance,
        lower=advance.lower,
        fill=program.jit(fill, out_shardings=sharding),
        take=take if sharding is None else lambda states, lane: _gathered(take(states, lane)),
        put=program.jit(_replaced, donate_argnums=0, out_shardings=sharding),
        place=_itself,
    )


def _on_replicas(program: Program, execution: Execution) -> LanePrograms:
    devices, parts = _local_devices(execution.devices), program.microbatches
    replicas = Replicas(program.step, devices, parts)
    return LanePrograms(
        advance=functools.partial(_single, replicas.advance),
        lower=functools.partial(_single, replicas.lower),
        fill=replicas.fill,
        take=lambda states, _: replicas.take(states),
        put=lambda _, __, state: replicas.fill(state),
        place=_itself,
    )


class Lanes:
    """The states of the runs that are in progress."""

    def __init__(self, programs: LanePrograms, execution: Execution):
        self._programs, self._execution = programs, execution
        self._states: Any = None
        self._numbers: list[Numbers] = []
        self._stacked_numbers: Any = None

    def enter(self, lane: int, state: TrainState, numbers: Numbers) -> None:
        """Gives a lane to a run; lanes that no run has yet compute what the first one does."""
        if self._states is None:
            self._states = self._programs.fill(state)
            self._numbers = [numbers] * self._execution.runs_at_once
        self.put(lane, state)
        self._numbers[lane] = self._programs.place(numbers)
        self._stacked_numbers = self._stacked(self._numbers)

    def take(self, lane: int) -> TrainState:
        """Returns the state of a run; it is valid until the next update."""
        return self._programs.take(self._states, lane)

    def put(self, lane: int, state: TrainState) -> None:
        """Replaces the state of a run."""
        self._states = self._programs.put(self._states, lane, state)

    def clear(self) -> None:
        """Forgets all states, which a failed update may have spoilt."""
        self._states = None

    def advance(self, batches: Mapping[int, Sequence[Batch]]) -> None:
        """Makes as many updates in each lane as it is given batches; what others compute is lost.

        Args:
            batches: Those of each lane that is in use, at least one and at most as many as
                `steps_per_dispatch`.
        """
        self._states = in_turn(self._programs.advance(*self._arguments(batches)))

    def compile(self, batches: Mapping[int, Sequence[Batch]]) -> Any:
        """Compiles what `advance` will run, and returns it with what the compiler knows of it."""
        return self._programs.lower(*self._arguments(batches)).compile()

    def wait(self) -> None:
        """Returns when all updates have been made."""
        jax.block_until_ready(self._states)

    def _arguments(self, batches: Mapping[int, Sequence[Batch]]) -> tuple[Any, ...]:
        stand_in = next(iter(batches.values()))
        lanes = range(self._execution.runs_at_once)
        given = [batches.get(lane, stand_in) for lane in lanes]
        counts: Any = None
        if self._execution.steps_per_dispatch == 1:
            read = [own[0] for own in given]
        else:
            read = [self._padded(own) for own in given]
            counts = self._stacked([np.int32(len(batches.get(lane, ()))) for lane in lanes])
        return self._states, self._stacked(read), counts, self._stacked_numbers

    def _padded(self, batches: Sequence[Batch]) -> Batch:
        """Stacks the batches of one lane; there is room for the most that it may be given."""
        missing = self._execution.steps_per_dispatch - len(batches)
        return jax.tree.map(lambda *own: np.stack(own), *batches, *[batches[-1]] * missing)

    def _stacked(self, values: Sequence[Any]) -> Any:
        if self._execution.mode not in LOCKSTEP:
            return values[0]
        return jax.tree.map(_stack, *values)


def _single(step: Any, state: TrainState, batch: Batch, _: None, numbers: Numbers) -> TrainState:
    return step(state, batch, numbers.hyper, numbers.key)


def _placed(program: Program, step: Any, state: TrainState, batch: Batch, *rest: Any) -> TrainState:
    return _single(step, state, program.place_batch(batch), *rest)


def _several(step: Any, state: TrainState, batches: Batch, count: Any, numbers: Numbers) -> Any:
    """Makes `count` updates; where the lanes have other counts, those that are done wait."""

    def body(t: Any, state: TrainState) -> TrainState:
        batch = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, t, keepdims=False), batches)
        return step(state, batch, numbers.hyper, numbers.key)

    return jax.lax.fori_loop(0, count, body, state)


def _itself(value: Any) -> Any:
    return value


def _only(state: TrainState, _: int) -> TrainState:
    return state


def _instead(_: Any, __: int, state: TrainState) -> TrainState:
    return state


def _mapped(one: Callable[..., Any], *lanes: Any) -> Any:
    return jax.lax.map(lambda lane: one(*lane), lanes)


def _squeezed(one: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of one lane that has the axis of lanes, of size 1."""

    def own(*lane: Any) -> Any:
        found = one(*jax.tree.map(lambda x: x[0], lane))
        return jax.tree.map(lambda x: x[None], found)

    return own


def _filled(R: int, state: TrainState) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (R, *x.shape)), state)


def _taken(states: Any, lane: Any) -> TrainState:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, lane, keepdims=False), states)


def _replaced(states: Any, lane: Any, state: TrainState) -> Any:
    return jax.tree.map(
        lambda all_, x: jax.lax.dynamic_update_index_in_dim(all_, x, lane, 0), states, state
    )


def _gathered(state: TrainState) -> TrainState:
    """Brings a state from where the lanes are spread to the device of single runs."""
    return jax.device_put(jax.device_get(state))


def _stack(*values: Any) -> Any:
    # A key has no NumPy form.
    is_host = isinstance(values[0], np.ndarray | np.generic)
    return np.stack(values) if is_host else jnp.stack(values)


def _local_devices(count: int) -> list[Any]:
    found = jax.local_devices()
    if len(found) < count:
        raise SpecError(
            "devices", f"= {count} is more than this process has ({len(found)}); use fewer."
        )
    return found[:count]
