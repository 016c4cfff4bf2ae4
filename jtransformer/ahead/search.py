"""Tries layouts, rematerialisations and microbatches of a run on a topology, and ranks what fits.

Layouts are meshes, each also with an optimizer's state that is divided over "data" where that
makes it smaller.

Programs are compiled in the order of what is expected of them, until the limit is reached. What
cannot hold its state is never compiled. Of candidates with one mesh, one that computes more again,
has more microbatches or divides the optimizer's state is left out where a plainer one fits, since
it is no faster; and a plainer one is left out where a leaner one does not fit. Compiles are cached,
so that a search that was stopped goes on where it was.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax

from jtransformer.ahead.candidates import (
    COMPUTED_AGAIN,
    Candidate,
    Expected,
    StateBytes,
    candidates,
    expected,
    layouts,
    state_bytes,
)
from jtransformer.ahead.compiling import Compiled
from jtransformer.ahead.topologies import Topology
from jtransformer.spec import Layout, RunSpec
from jtransformer.training import Program, parameter_key


class Tried(NamedTuple):
    """A candidate that was compiled.

    Attributes:
        candidate: How the run is computed.
        program: What the compiler made of its update.
    """

    candidate: Candidate
    program: Compiled


class Ranking(NamedTuple):
    """What a search has found.

    Attributes:
        tried: What was compiled: what fits by seconds, then the rest by memory.
        candidates: How many there were.
        too_large: How many of them cannot hold their state.
        spared: How many another one made needless.
        left: How many the limit has left untried.
    """

    tried: list[Tried]
    candidates: int
    too_large: int
    spared: int
    left: int


def search(
    run: RunSpec,
    topology: Topology,
    compiled: Callable[[Candidate], Compiled],
    *,
    limit: int,
    layout: Layout | None = None,
) -> Ranking:
    """Finds the fastest way to compute a run that fits.

    Args:
        run: The run; its own rematerialisation and microbatches are among the candidates.
        topology: What it is compiled for.
        compiled: Compiles the update of a candidate.
        limit: Most candidates to compile.
        layout: The only layout to try; None is all that divide the run.

    Raises:
        ValueError: If nothing is known of the topology's chips, or no layout divides the run.
    """
    if topology.chip is None or topology.capacity is None:
        raise ValueError(
            f"topology {topology.name!r} has no known chip, so that nothing ranks its layouts; "
            "search on one as 'v5e:4x4'."
        )
    state = jax.eval_shape(Program(run).start, parameter_key(run.seed))
    arrangements = layouts(run, len(topology.devices)) if layout is None else [layout]
    shares = {layout: state_bytes(state, layout) for layout in arrangements}
    if layout is None:
        arrangements = [one for one in arrangements if _divides_more(one, shares)]
    every = candidates(run, arrangements)
    if not every:
        what = f"no layout of {len(topology.devices)} devices divides"
        raise ValueError(
            f"{what if layout is None else f'layout {layout.label!r} does not divide'} this run: "
            f"its rows ({run.training.batch_size}), its width, heads and hidden units "
            f"({run.model.width}, {run.model.heads}, {run.model.ffn_width}) and its tokens "
            f"({run.data.length}); choose another topology, mesh or batch size."
        )
    chip, capacity = topology.chip, topology.capacity
    possible = [one for one in every if shares[one.layout].state <= capacity]
    known = {one: expected(run, one, shares[one.layout], chip) for one in possible}
    possible.sort(key=lambda one: _order(one, known[one], capacity))
    tried: list[Tried] = []
    spared = 0
    for place, one in enumerate(possible):
        if _is_needless(one, tried):
            spared += 1
            continue
        if len(tried) == limit:
            left = sum(not _is_needless(other, tried) for other in possible[place:])
            spared += len(possible) - place - left
            break
        tried.append(Tried(one, compiled(one)))
    else:
        left = 0
    tried.sort(key=_rank)
    return Ranking(tried, len(every), len(every) - len(possible), spared, left)


def _divides_more(layout: Layout, shares: Mapping[Layout, StateBytes]) -> bool:
    """Whether the part of a layout that divides the optimizer's state makes it smaller."""
    if not layout.shard_optimizer:
        return True
    return shares[layout].state < shares[dataclasses.replace(layout, shard_optimizer=False)].state


def _order(one: Candidate, found: Expected, capacity: int) -> tuple[float, ...]:
    """What is expected to fit comes first; of that the fastest, then the plainest."""
    excess = max(0.0, found.held - capacity)
    speed = found.roofline.seconds, found.roofline.seconds_at_most
    plain = len(COMPUTED_AGAIN[one.rematerialize]), one.microbatches, one.layout.shard_optimizer
    return excess, *speed, *plain, found.held


def _is_needless(one: Candidate, tried: list[Tried]) -> bool:
    return any(
        one.is_leaner(other.candidate)
        if other.program.memory.fits
        else other.candidate.is_leaner(one)
        for other in tried
    )


def _rank(tried: Tried) -> tuple[float, ...]:
    memory, found = tried.program.memory, tried.program.roofline
    if not memory.fits or found is None:
        return 1, memory.total, 0.0
    return 0, found.seconds, found.seconds_at_most
