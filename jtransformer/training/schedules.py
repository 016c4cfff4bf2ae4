"""The learning rate of every update, with the numbers of a schedule as data.

optax has most of these shapes, but there the step counts are Python numbers, and each would
compile a program of its own.

Sources: Loshchilov and Hutter 2016 (half a cosine), sec. 3, https://arxiv.org/abs/1608.03983;
Raffel et al. 2019 (inverse square root), sec. 3.1.2, https://arxiv.org/abs/1910.10683; Hu et al.
2024 (warm-up, stable, decay), sec. 4, https://arxiv.org/abs/2404.06395, whose last part is here a
line; Vaswani et al. 2017 (noam), sec. 5.3, https://arxiv.org/abs/1706.03762.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jtransformer.modules import DropoutRates
from jtransformer.spec import (
    Constant,
    Noam,
    RunSpec,
    WarmupCosine,
    WarmupInverseSqrt,
    WarmupLinear,
    WarmupStableDecay,
)
from jtransformer.spec.optimizer import Schedule


class Hyperparameters(NamedTuple):
    """Numbers that change no program: runs that differ in them alone share one compilation."""

    learning_rate: Float[Array, ""]
    weight_decay: Float[Array, ""]
    gradient_clip: Float[Array, ""]
    warmup_steps: Float[Array, ""]
    decay_steps: Float[Array, ""]
    final_fraction: Float[Array, ""]
    steps: Float[Array, ""]
    average_decay: Float[Array, ""]
    label_smoothing: Float[Array, ""]
    z_loss: Float[Array, ""]
    dropout: DropoutRates


def hyperparameters(spec: RunSpec) -> Hyperparameters:
    """Returns the numbers of a run, float32; what a run does not have is 0 and is not read."""
    schedule = {field.name: 0.0 for field in dataclasses.fields(WarmupStableDecay)}
    schedule |= dataclasses.asdict(spec.schedule)
    values = {
        "learning_rate": spec.optimizer.learning_rate,
        "weight_decay": spec.optimizer.weight_decay,
        "gradient_clip": spec.optimizer.gradient_clip or 0.0,
        **schedule,
        "steps": spec.training.steps,
        "average_decay": spec.training.average_decay or 0.0,
        "label_smoothing": spec.loss.label_smoothing,
        "z_loss": spec.loss.z_loss,
        "dropout": DropoutRates(**dataclasses.asdict(spec.model.dropout)),
    }
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), Hyperparameters(**values))


def blank(schedule: Schedule) -> Schedule:
    """Returns the schedule of the same kind that fits into a run of one update.

    Its numbers are the least that are allowed; no program depends on them.
    """
    match schedule:
        case WarmupInverseSqrt() | Noam():
            return type(schedule)(warmup_steps=1)
        case WarmupStableDecay():
            return WarmupStableDecay(warmup_steps=0, decay_steps=1)
        case _:
            return type(schedule)(warmup_steps=0)


def learning_rate(
    schedule: Schedule, update: Int[Array, ""], hyper: Hyperparameters, *, width: int
) -> Float[Array, ""]:
    """Returns the rate of an update, counted from 1.

    A warm-up of W updates gives update t ≤ W the fraction t / W of the peak; the first update is
    never lost. Afterwards the rate follows the schedule, so that the last update uses
    `final_fraction` of the peak where there is one.

    Args:
        schedule: Its kind alone is read.
        update: Number of the update, 1 for the first.
        hyper: The numbers of the run.
        width: Width of the model [D], on which "noam" depends.
    """
    t = update.astype(jnp.float32)
    if isinstance(schedule, Noam):
        lower = jnp.minimum(t**-0.5, t * hyper.warmup_steps**-1.5)
        return hyper.learning_rate * (width**-0.5 * lower)
    warmup = jnp.minimum(t / jnp.maximum(hyper.warmup_steps, 1.0), 1.0)
    if isinstance(schedule, Constant):
        return hyper.learning_rate * warmup
    share = jnp.where(t <= hyper.warmup_steps, warmup, _descent(schedule, t, hyper))
    return hyper.learning_rate * share


def _descent(schedule: Schedule, t: Float[Array, ""], hyper: Hyperparameters) -> Float[Array, ""]:
    """Returns the fraction of the peak behind the warm-up."""
    done = (t - hyper.warmup_steps) / jnp.maximum(hyper.steps - hyper.warmup_steps, 1.0)
    match schedule:
        case WarmupCosine():
            left = 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(done, 0.0, 1.0)))
        case WarmupLinear():
            left = 1.0 - jnp.clip(done, 0.0, 1.0)
        case WarmupStableDecay():
            begin = hyper.steps - hyper.decay_steps
            left = 1.0 - jnp.clip((t - begin) / jnp.maximum(hyper.decay_steps, 1.0), 0.0, 1.0)
        case WarmupInverseSqrt():
            return jnp.sqrt(hyper.warmup_steps / t)
        case _:
            raise AssertionError(f"{schedule} has no descent")
    return hyper.final_fraction + (1.0 - hyper.final_fraction) * left
