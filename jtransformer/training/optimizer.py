"""AdamW, its schedule, and which of its numbers are data to the compiled step.

The schedule is written out because the step counts of optax's are Python numbers, which would
compile one program for each; here they are data.

Sources: Kingma and Ba 2014 (Adam), sec. 2, https://arxiv.org/abs/1412.6980; Loshchilov and
Hutter 2017 (decoupled decay), sec. 2, https://arxiv.org/abs/1711.05101; Loshchilov and Hutter
2016 (half a cosine), sec. 3, https://arxiv.org/abs/1608.03983.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from jtransformer.spec import OptimizerSpec, RunSpec, WarmupCosine

DECAYED = ("kernel", "table")
"""Names of parameters that are matrices by role; norms and biases are never decayed."""


class Hyperparameters(NamedTuple):
    """Numbers that change no program: runs that differ in them alone share one compilation."""

    learning_rate: Float[Array, ""]
    weight_decay: Float[Array, ""]
    gradient_clip: Float[Array, ""]
    warmup_steps: Float[Array, ""]
    final_fraction: Float[Array, ""]
    steps: Float[Array, ""]


def hyperparameters(spec: RunSpec) -> Hyperparameters:
    """Returns the numbers of a run, float32; what a run does not have is 0 and is not read."""
    schedule = spec.schedule
    cosine = isinstance(schedule, WarmupCosine)
    values = {
        "learning_rate": spec.optimizer.learning_rate,
        "weight_decay": spec.optimizer.weight_decay,
        "gradient_clip": spec.optimizer.gradient_clip or 0.0,
        "warmup_steps": schedule.warmup_steps,
        "final_fraction": schedule.final_fraction if cosine else 0.0,
        "steps": spec.training.steps,
    }
    return Hyperparameters(**{name: jnp.asarray(x, jnp.float32) for name, x in values.items()})


def learning_rate(
    update: Int[Array, ""], hyper: Hyperparameters, *, cosine: bool
) -> Float[Array, ""]:
    """Returns the rate of an update, counted from 1.

    A warm-up of W updates gives update t ≤ W the fraction t / W of the peak; the first update is
    never lost. Afterwards the rate stays, or falls along half a cosine, so that the last update
    uses `final_fraction` of the peak.

    Args:
        update: Number of the update, 1 for the first.
        hyper: The numbers of the run.
        cosine: Whether the rate falls after the warm-up.
    """
    t = update.astype(jnp.float32)
    warmup = jnp.minimum(t / jnp.maximum(hyper.warmup_steps, 1.0), 1.0)
    if not cosine:
        return hyper.learning_rate * warmup
    done = (t - hyper.warmup_steps) / jnp.maximum(hyper.steps - hyper.warmup_steps, 1.0)
    fall = 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(done, 0.0, 1.0)))
    share = hyper.final_fraction + (1.0 - hyper.final_fraction) * fall
    return hyper.learning_rate * jnp.where(t <= hyper.warmup_steps, warmup, share)


def adamw(
    optimizer: OptimizerSpec, hyper: Hyperparameters, rate: Float[Array, ""]
) -> optax.GradientTransformation:
    """Returns clipping, Adam and decoupled decay; its state does not depend on `hyper` or `rate`.

    Update: -rate · (adam(clip(gradient)) + weight_decay · parameter), decay on matrices alone.

    Args:
        optimizer: The static choices: betas, epsilon, whether gradients are clipped.
        hyper: The numbers of the run.
        rate: Learning rate of this update.
    """
    clip = (
        optax.identity()
        if optimizer.gradient_clip is None
        else optax.clip_by_global_norm(hyper.gradient_clip)  # pyright: ignore[reportArgumentType]
    )
    return optax.chain(
        clip,
        optax.scale_by_adam(optimizer.beta1, optimizer.beta2, optimizer.epsilon),
        optax.add_decayed_weights(hyper.weight_decay, decayed),
        optax.scale_by_learning_rate(rate),
    )


def decayed(parameters: Any) -> Any:
    """Returns the tree of whether a parameter is decayed, by its role."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key in DECAYED, parameters)
