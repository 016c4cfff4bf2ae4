"""Makes updates of small trees, one compiled program for each rule."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax
from quickly import quickly

from jtransformer.spec import RunSpec
from jtransformer.training import hyperparameters, transformation

RATE = 0.1


def updated(optimizer, parameters, gradients):
    """Returns the parameters after one update for each gradient, at one rate throughout."""
    hyper = hyperparameters(RunSpec(optimizer=optimizer))
    clip = None if optimizer.gradient_clip is None else 1.0
    program = dataclasses.replace(
        optimizer, learning_rate=1.0, weight_decay=0.0, gradient_clip=clip
    )
    state = _started(program, hyper, parameters)
    for gradient in gradients:
        parameters, state = _updated(program, hyper, parameters, state, gradient)
    return parameters


@functools.partial(quickly, static_argnums=0)
def _started(optimizer, hyper, parameters):
    return transformation(optimizer, hyper, jnp.asarray(RATE)).init(parameters)


@functools.partial(quickly, static_argnums=0)
def _updated(optimizer, hyper, parameters, state, gradient):
    change = transformation(optimizer, hyper, jnp.asarray(RATE))
    updates, state = change.update(gradient, state, parameters)
    return optax.apply_updates(parameters, updates), state


def updated_by(optimizer, parameters, gradients):
    """The same by an optimizer of optax."""

    @quickly
    def update(parameters, state, gradient):
        updates, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates), state

    state = jax.jit(optimizer.init)(parameters)
    for gradient in gradients:
        parameters, state = update(parameters, state, gradient)
    return parameters
