"""How long a step takes at least, and about how long: numbers alone, nothing is compiled.

With C operations, M bytes of memory traffic and W bytes sent, all of one chip and one step, and
the chip's peak P, memory bandwidth BM and network bandwidth BN:

    compute = C / P        memory = M / BM        network = W / BN
    at least  = max(compute, memory, network)                   everything overlaps, at the peak
    estimate  = max(compute, memory, network) / ATTAINED        everything overlaps
    at most   = (compute + memory + network) / ATTAINED         nothing overlaps

The bound is the greatest of the three (Williams, Waterman and Patterson 2009,
https://doi.org/10.1145/1498765.1498785, with a third roof for the network). C holds what is
computed again in the backward pass; utilisation does not: it is the model's own operations per
second over the peak (Chowdhery et al. 2022, appendix B, https://arxiv.org/abs/2204.02311).

What this knows and what not. P and BM are vendors' peaks; ATTAINED is the share of them that
well-tuned training of large models reaches: MaxText publishes a utilisation of 64 to 71 % on v5p,
46 to 67 % on v5e and 39 to 50 % on v6e (https://github.com/AI-Hypercomputer/maxtext). Models below
a billion parameters were seen to reach 8 to 17 %, since their products are too small for the matrix
units and each operation costs a start; for them the estimate is too good by a factor of 4 or more.
M takes no reuse between instructions into account and W takes all links of a chip to be of use,
which a collective along one axis of a torus is not. The estimate has met no TPU: it ranks layouts
and finds the bound, and a step time within a factor of two is all that it claims.
"""

from typing import Literal, NamedTuple

from jtransformer.accounting import Chip

Bound = Literal["compute", "memory", "network"]
ATTAINED = 0.7
"""Share of a chip's peaks that well-tuned training reaches; see above."""


class Work(NamedTuple):
    """What one step does.

    Attributes:
        model_flops: Operations that the model needs, on all devices together.
        extra_flops: Operations beside them, for what is computed again; likewise.
        memory_bytes: Bytes that one device moves to and from its memory.
        network_bytes: Bytes that one device sends.
        tokens: Tokens of the step, on all devices together.
    """

    model_flops: float
    extra_flops: float
    memory_bytes: float
    network_bytes: float
    tokens: int


class Roofline(NamedTuple):
    """What a step is bound by, and for how long; all times in seconds.

    Attributes:
        compute_seconds: Of its operations at the peak of all devices.
        memory_seconds: Of its memory traffic.
        network_seconds: Of what is sent.
        bound: Which of these is the greatest.
        seconds: Estimate of a step.
        seconds_at_least: If all overlaps and the peaks are reached.
        seconds_at_most: If nothing overlaps.
        tokens_per_second: By the estimate, on all devices together.
        utilisation: The model's operations per second over the peak, by the estimate.
    """

    compute_seconds: float
    memory_seconds: float
    network_seconds: float
    bound: Bound
    seconds: float
    seconds_at_least: float
    seconds_at_most: float
    tokens_per_second: float
    utilisation: float


def roofline(work: Work, chip: Chip, *, devices: int) -> Roofline:
    """Estimates the time of a step.

    Args:
        work: What it does.
        chip: What each device is.
        devices: How many there are.
    """
    peak = chip.flops * devices
    times: dict[Bound, float] = {
        "compute": (work.model_flops + work.extra_flops) / peak,
        "memory": work.memory_bytes / chip.memory_bandwidth,
        "network": work.network_bytes / chip.network_bandwidth,
    }
    bound: Bound = max(times, key=lambda name: times[name])
    least = times[bound]
    seconds = least / ATTAINED
    return Roofline(
        compute_seconds=times["compute"],
        memory_seconds=times["memory"],
        network_seconds=times["network"],
        bound=bound,
        seconds=seconds,
        seconds_at_least=least,
        seconds_at_most=sum(times.values()) / ATTAINED,
        tokens_per_second=work.tokens / seconds,
        utilisation=work.model_flops / (seconds * peak),
    )
