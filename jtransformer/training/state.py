"""What an update changes."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Tally(NamedTuple):
    """Sums since the last row of metrics; part of the state, so that a resumed run has them.

    Attributes:
        loss_sum: What was minimised, summed over the scored tokens.
        nll_sum: Plain negative log-likelihood of the labels.
        weight_sum: Scored tokens.
        gradient_norm_sum: Norms of the gradients before they were clipped.
        updates: Updates made.
    """

    loss_sum: Float[Array, ""]
    nll_sum: Float[Array, ""]
    weight_sum: Float[Array, ""]
    gradient_norm_sum: Float[Array, ""]
    updates: Int[Array, ""]


class TrainState(NamedTuple):
    """Everything that an update changes.

    Attributes:
        step: Updates made.
        parameters: What is trained.
        average: Their mean along training; None where a run has none.
        optimizer: State of the optimizer.
        tally: Sums for the next row of metrics.
    """

    step: Int[Array, ""]
    parameters: Any
    average: Any
    optimizer: Any
    tally: Tally

    @property
    def evaluated(self) -> Any:
        """The parameters whose loss is the run's figure."""
        return self.parameters if self.average is None else self.average


def empty_tally() -> Tally:
    """Returns the sums of no update."""
    # One buffer each: the update donates them, and a buffer cannot be donated twice.
    sums = [jnp.zeros((), jnp.float32) for _ in range(4)]
    return Tally(*sums, updates=jnp.zeros((), jnp.int32))
