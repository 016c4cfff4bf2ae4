"""The compiled functions of a run: start, one update, one evaluation step.

A program depends on shapes and static choices alone. Runs that differ in seed, learning rate,
decay or schedule numbers share it; see `program_key`.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jtransformer import functional as F
from jtransformer.data import Batch
from jtransformer.modules import build
from jtransformer.spec import Constant, RunSpec, WarmupCosine
from jtransformer.training.optimizer import Hyperparameters, adamw, hyperparameters, learning_rate


class Tally(NamedTuple):
    """Sums since the last row of metrics; part of the state, so that a resumed run has them."""

    nll_sum: Float[Array, ""]
    weight_sum: Float[Array, ""]
    gradient_norm_sum: Float[Array, ""]
    updates: Int[Array, ""]


class TrainState(NamedTuple):
    """Everything that an update changes."""

    step: Int[Array, ""]
    parameters: Any
    optimizer: Any
    tally: Tally


def empty_tally() -> Tally:
    """Returns the sums of no update."""
    # One buffer each: the update donates them, and a buffer cannot be donated twice.
    sums = [jnp.zeros((), jnp.float32) for _ in range(3)]
    return Tally(*sums, updates=jnp.zeros((), jnp.int32))


def program_key(spec: RunSpec) -> RunSpec:
    """Returns the run with every number blanked that does not change the program."""
    optimizer = dataclasses.replace(
        spec.optimizer,
        learning_rate=1.0,
        weight_decay=0.0,
        gradient_clip=None if spec.optimizer.gradient_clip is None else 1.0,
    )
    schedule = Constant() if isinstance(spec.schedule, Constant) else WarmupCosine(warmup_steps=0)
    training = dataclasses.replace(
        spec.training, steps=1, log_every=1, evaluate_every=1, checkpoint_every=1
    )
    return dataclasses.replace(
        spec, optimizer=optimizer, schedule=schedule, training=training, seed=0
    )


class Program:
    """Compiled functions shared by all runs of one key."""

    def __init__(self, spec: RunSpec):
        self._spec = program_key(spec)
        self._model = build(spec.model)
        self.start = jax.jit(self._start)
        self.update = jax.jit(self._update, donate_argnums=0)
        self.evaluate = jax.jit(self._evaluate)

    def _start(self, key: jax.Array) -> TrainState:
        """Returns the state before the first update."""
        tokens = jnp.zeros((1, self._spec.data.length), jnp.int32)
        parameters = self._model.init(key, tokens)["params"]
        blank = hyperparameters(self._spec)
        optimizer = adamw(self._spec.optimizer, blank, blank.learning_rate).init(parameters)
        return TrainState(jnp.zeros((), jnp.int32), parameters, optimizer, empty_tally())

    def _update(self, state: TrainState, batch: Batch, hyper: Hyperparameters) -> TrainState:
        """Makes one optimizer update on the mean loss of a batch."""
        (_, sums), gradients = jax.value_and_grad(self._loss, has_aux=True)(state.parameters, batch)
        cosine = isinstance(self._spec.schedule, WarmupCosine)
        rate = learning_rate(state.step + 1, hyper, cosine=cosine)
        transformation = adamw(self._spec.optimizer, hyper, rate)
        updates, optimizer = transformation.update(gradients, state.optimizer, state.parameters)
        tally = Tally(
            nll_sum=state.tally.nll_sum + sums.nll_sum,
            weight_sum=state.tally.weight_sum + sums.weight_sum,
            gradient_norm_sum=state.tally.gradient_norm_sum + optax.tree.norm(gradients),
            updates=state.tally.updates + 1,
        )
        parameters = optax.apply_updates(state.parameters, updates)
        return TrainState(state.step + 1, parameters, optimizer, tally)

    def _loss(self, parameters: Any, batch: Batch) -> tuple[Array, F.CrossEntropy]:
        tokens, labels, weights = map(jnp.asarray, batch)
        logits = self._logits(parameters, tokens)
        sums = F.cross_entropy(logits, labels, weights)
        return sums.loss_sum / jnp.maximum(sums.weight_sum, 1.0), sums

    def _logits(self, parameters: Any, tokens: Int[Array, "B T"]) -> Float[Array, "B T V"]:
        output: Any = self._model.apply({"params": parameters}, tokens)
        return output.logits

    def _evaluate(self, parameters: Any, batch: Batch) -> tuple[Array, Array]:
        """Returns the summed loss of a batch and the number of scored tokens."""
        sums = self._loss(parameters, batch)[1]
        return sums.nll_sum, sums.weight_sum


def mean_nll(program: Program, parameters: Any, batches: Any) -> float:
    """Returns the mean negative log-likelihood over batches, in nats per scored token."""
    evaluate = functools.partial(program.evaluate, parameters)
    sums = [evaluate(batch) for batch in batches]
    nll, weight = np.asarray(jax.device_get(sums), np.float64).sum(axis=0)
    return float(nll / weight)
