"""A mean of the parameters along training, evaluated in their place.

The mean is exponential and bias-corrected: after t updates it is Σ w_i θ_i over the parameters
θ_1 … θ_t behind each update, with w_i proportional to decay^(t - i) and Σ w_i = 1. The initial
values have no part in it; begun at them without the correction, a decay of 0.999 would leave two
thirds of the untrained model in the mean of a run of 400 updates.

Sources: Polyak and Juditsky 1992, https://doi.org/10.1137/0330046 (the mean of iterates); Kingma
and Ba 2014, sec. 3 and 7.2, https://arxiv.org/abs/1412.6980 (exponential, bias-corrected);
Izmailov et al. 2018, https://arxiv.org/abs/1803.05407 (for networks; an equal mean there).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def average(mean: Any, parameters: Any, update: Int[Array, ""], decay: Float[Array, ""]) -> Any:
    """Takes the parameters behind an update into their mean.

    Args:
        mean: The mean before; before the first update, anything finite.
        parameters: The parameters behind the update.
        update: Number of the update, 1 for the first.
        decay: Factor of a parameter's weight with each further update, in (0, 1).
    """
    # (1 - decay) / (1 - decay^t), which near a decay of 1 would lose half its digits as written.
    log = jnp.log(decay)
    share = jnp.expm1(log) / jnp.expm1(log * update.astype(jnp.float32))

    def mixed(old: Array, new: Array) -> Array:
        part = share.astype(old.dtype)
        return part * new + (1 - part) * old

    return jax.tree.map(mixed, mean, parameters)
