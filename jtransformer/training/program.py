"""The compiled functions of a run: start, one update, one evaluation step.

A program depends on shapes and static choices alone. Runs that differ in seed, learning rate,
decay or schedule numbers share it; see `program_key`.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jtransformer import functional as F
from jtransformer import probes
from jtransformer.data import Batch
from jtransformer.modules import build
from jtransformer.spec import Dropout, LossSpec, NoEarlyStopping, RunSpec
from jtransformer.training.averages import average
from jtransformer.training.optimizer import transformation
from jtransformer.training.schedules import Hyperparameters, blank, hyperparameters, learning_rate

Rates = TypeVar("Rates", Dropout, LossSpec)
INITIAL_VALUES, DROPOUT = 0, 1
"""Which random numbers of a seed: what is folded into its key."""
DIRECTIONS = 0
"""Seed of the first directions in which a probe looks for the largest stretch; one for all runs."""


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


def program_key(spec: RunSpec) -> RunSpec:
    """Returns the run with every number blanked that does not change the program."""
    optimizer = dataclasses.replace(
        spec.optimizer,
        learning_rate=1.0,
        weight_decay=0.0,
        gradient_clip=None if spec.optimizer.gradient_clip is None else 1.0,
    )
    training = dataclasses.replace(
        spec.training,
        steps=1,
        log_every=1,
        evaluate_every=1,
        checkpoint_every=1,
        average_decay=None if spec.training.average_decay is None else 0.5,
        early_stopping=NoEarlyStopping(),
        probe_steps=(),
    )
    return dataclasses.replace(
        spec,
        model=dataclasses.replace(spec.model, dropout=_presence(spec.model.dropout)),
        loss=_presence(spec.loss),
        optimizer=optimizer,
        schedule=blank(spec.schedule),
        training=training,
        seed=0,
    )


def _presence(rates: Rates) -> Rates:
    """Returns rates of which no program depends on more than whether they are 0."""
    found = dataclasses.asdict(rates).items()
    return dataclasses.replace(rates, **{name: 0.5 if rate else 0.0 for name, rate in found})


class Program:
    """Compiled functions shared by all runs of one key."""

    def __init__(self, spec: RunSpec, jit: Callable[..., Any] = jax.jit):
        """Compiles nothing yet.

        Args:
            spec: Any run of the key.
            jit: What compiles functions, with the arguments of `jax.jit`.
        """
        self._spec = program_key(spec)
        self.model = self._spec.model
        self._model = build(spec.model)
        self.jit = jit
        self.start = jit(self._start)
        self.update = jit(self.step, donate_argnums=0)
        self.evaluate = jit(self._evaluate)
        self.probe = jit(self._probe, static_argnames="choice")

    def rate(self, update: Int[Array, ""], hyper: Hyperparameters) -> Float[Array, ""]:
        """Returns the learning rate of an update, counted from 1."""
        spec = self._spec
        return learning_rate(spec.schedule, update, hyper, width=spec.model.width)

    def _start(self, key: jax.Array) -> TrainState:
        """Returns the state before the first update."""
        spec = self._spec
        tokens = jnp.zeros((1, spec.data.length), jnp.int32)
        source = None
        if spec.model.has_encoder:
            source = jnp.zeros((1, spec.data.source_length or spec.data.length), jnp.int32)
        parameters = self._model.init(key, tokens, source=source)["params"]
        mean = None if spec.training.average_decay is None else jax.tree.map(jnp.copy, parameters)
        hyper = hyperparameters(spec)
        optimizer = transformation(spec.optimizer, hyper, hyper.learning_rate).init(parameters)
        return TrainState(jnp.zeros((), jnp.int32), parameters, mean, optimizer, empty_tally())

    def step(
        self,
        state: TrainState,
        batch: Batch,
        hyper: Hyperparameters,
        key: jax.Array | None = None,
    ) -> TrainState:
        """Makes one optimizer update on the mean loss of a batch; `update` is this, compiled.

        Args:
            state: The state before; its buffers are used again.
            batch: What is read and asked.
            hyper: The numbers of the run.
            key: Key of the run's dropout; None where its model has none.
        """
        own = None if key is None else jax.random.fold_in(key, state.step)
        loss = functools.partial(self._loss, batch=batch, hyper=hyper, key=own)
        (_, sums), gradients = jax.value_and_grad(loss, has_aux=True)(state.parameters)
        step = state.step + 1
        optimizer = transformation(self._spec.optimizer, hyper, self.rate(step, hyper))
        updates, moments = optimizer.update(gradients, state.optimizer, state.parameters)
        tally = Tally(
            loss_sum=state.tally.loss_sum + sums.loss_sum,
            nll_sum=state.tally.nll_sum + sums.nll_sum,
            weight_sum=state.tally.weight_sum + sums.weight_sum,
            gradient_norm_sum=state.tally.gradient_norm_sum + optax.tree.norm(gradients),
            updates=state.tally.updates + 1,
        )
        parameters = optax.apply_updates(state.parameters, updates)
        mean = state.average
        if mean is not None:
            mean = average(mean, parameters, step, hyper.average_decay)
        return TrainState(step, parameters, mean, moments, tally)

    def _loss(
        self,
        parameters: Any,
        *,
        batch: Batch,
        hyper: Hyperparameters | None = None,
        key: jax.Array | None = None,
    ) -> tuple[Array, F.CrossEntropy]:
        """Returns the mean loss of a batch, and its sums; without `hyper` the plain loss."""
        present = self._spec.loss
        output: Any = self._model.apply(
            {"params": parameters},
            jnp.asarray(batch.tokens),
            **batch.inputs(),
            key=key,
            dropout_rates=None if hyper is None else hyper.dropout,
        )
        sums = F.cross_entropy(
            output.logits,
            jnp.asarray(batch.labels),
            jnp.asarray(batch.weights),
            label_smoothing=hyper.label_smoothing if hyper and present.label_smoothing else 0.0,
            z_loss=hyper.z_loss if hyper and present.z_loss else 0.0,
        )
        # Weights are 0 or 1: a batch that scores nothing has loss 0, and never 0 / 0.
        return sums.loss_sum / jnp.maximum(sums.weight_sum, 1.0), sums

    def _evaluate(self, parameters: Any, batch: Batch) -> tuple[Array, Array]:
        """Returns the summed plain loss of a batch and the number of scored tokens."""
        sums = self._loss(parameters, batch=batch)[1]
        return sums.nll_sum, sums.weight_sum

    def _probe(
        self, state: TrainState, batch: Batch, hyper: Hyperparameters, *, choice: probes.Choice
    ) -> probes.Measured:
        """Measures the inside of the model on a batch, from which nothing is learned."""

        def loss(parameters: Any) -> Array:
            return self._loss(parameters, batch=batch, hyper=hyper)[0]

        tokens, weights = jnp.asarray(batch.tokens), jnp.asarray(batch.weights)
        return probes.measure(
            self.model,
            state.parameters,
            probes.Sample(tokens, weights, batch.inputs()),
            loss,
            key=jax.random.key(DIRECTIONS),
            updated=self.step(state, batch, hyper).parameters,
            choice=choice,
        )


def mean_nll(program: Program, parameters: Any, batches: Iterable[Batch]) -> float:
    """Returns the mean negative log-likelihood over batches, in nats per scored token.

    Raises:
        ValueError: If no token is scored.
    """
    evaluate = functools.partial(program.evaluate, parameters)
    sums = np.asarray(jax.device_get([evaluate(batch) for batch in batches]), np.float64)
    nll, weight = sums.reshape(-1, 2).sum(axis=0)
    if weight == 0:
        raise ValueError(f"{len(sums)} batches score no token, so that they have no mean loss.")
    return float(nll / weight)


def parameter_key(seed: int) -> jax.Array:
    """Returns the key that initial values derive from."""
    return jax.random.fold_in(jax.random.key(seed), INITIAL_VALUES)


def dropout_key(spec: RunSpec) -> jax.Array | None:
    """Returns the key that the dropout of every update derives from; None where there is none."""
    if not any(dataclasses.astuple(spec.model.dropout)):
        return None
    return jax.random.fold_in(jax.random.key(spec.seed), DROPOUT)
