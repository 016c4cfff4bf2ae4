"""One update of the parameters: clip, rule, decay, rate; which numbers are data to it."""

import optax
from jaxtyping import Array, Float

from jtransformer.spec import Adam, OptimizerSpec
from jtransformer.training.matrices import decayed
from jtransformer.training.rules import direction
from jtransformer.training.schedules import Hyperparameters


def transformation(
    optimizer: OptimizerSpec, hyper: Hyperparameters, rate: Float[Array, ""]
) -> optax.GradientTransformation:
    """Returns a whole optimizer; its state depends neither on `hyper` nor on `rate`.

    Update: -rate · (direction(clip(gradient)) + weight_decay · parameter), decay on matrices
    alone and never with Adam.

    Args:
        optimizer: The static choices: the rule and its numbers, whether gradients are clipped.
        hyper: The numbers of the run.
        rate: Learning rate of this update.
    """
    clip = (
        optax.identity()
        if optimizer.gradient_clip is None
        else optax.clip_by_global_norm(hyper.gradient_clip)  # pyright: ignore[reportArgumentType]
    )
    decay = (
        optax.identity()
        if isinstance(optimizer.rule, Adam)
        else optax.add_decayed_weights(hyper.weight_decay, decayed)
    )
    return optax.chain(clip, direction(optimizer.rule), decay, optax.scale_by_learning_rate(rate))
