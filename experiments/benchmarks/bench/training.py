"""Measures the training step: every peer in turn, size by size, round by round."""

from collections.abc import Mapping

from .bench import Bench, in_turn
from .peers import OURS, PEERS, TORCH
from .sizes import Size


def measure(bench: Bench, sizes: Mapping[str, Size]) -> None:
    """Times updates of all peers; beside them, the products of this machine.

    Lines: "prepared" has the number of parameters, the losses of the first updates and the seconds
    until the first was made; "step" the seconds of an update in a round; "peak" the operations per
    second of a matrix product in a round, in JAX and in PyTorch.

    Raises:
        RuntimeError: If the loss of a peer does not fall, or a peer that has the same model has
            another number of parameters.
    """
    used = False
    for label, size in sizes.items():
        each = [{"size": label, "peer": peer} for peer in bench.peers]
        left = bench.journal.rounds_left(bench.plan.rounds, "step", each)
        if left:
            if used:
                # How a process treats its memory is settled by the first size that it trains.
                bench.renew()
            used = True
            updates = {peer: _prepare(bench, peer, label, size) for peer in bench.peers}
            _check_parameters(bench, label)
            for round_ in left:
                _round(bench, label, round_, updates)
            for peer in bench.peers:
                bench.ask(peer, "forget", label=label)


def _prepare(bench: Bench, peer: str, label: str, size: Size) -> int:
    """Starts a peer's training and returns how many updates make a measurement."""
    made = bench.ask(peer, "prepare", label=label, size=list(size))
    seconds = made.pop("update_seconds")
    bench.write("prepared", size=label, peer=peer, **made)
    losses = made["losses"]
    if not min(losses[1:]) < losses[0]:
        raise RuntimeError(f"{peer} at {label}: the loss does not fall, it is {losses}.")
    return bench.updates(seconds)


def _check_parameters(bench: Bench, label: str) -> None:
    found = {line["peer"]: line["parameters"] for line in bench.journal.of("prepared", size=label)}
    others = {p: n for p, n in found.items() if PEERS[p].is_same and n != found[OURS]}
    if others:
        raise RuntimeError(f"{label}: {found[OURS]} parameters here, but {others} elsewhere.")


def _round(bench: Bench, label: str, round_: int, updates: Mapping[str, int]) -> None:
    first_torch = next((peer for peer in bench.peers if peer in TORCH), None)
    for library, peer in (("jax", OURS), ("torch", first_torch)):
        if peer is not None:
            flops = bench.ask(peer, "peak")
            bench.write("peak", size=label, library=library, round=round_, flops=flops)
    for peer in in_turn(round_, bench.peers):
        seconds = bench.ask(peer, "time", label=label, updates=updates[peer])
        bench.write("step", size=label, peer=peer, round=round_, seconds=seconds)
