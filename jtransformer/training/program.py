"""The compiled functions of a run: start, one update, one evaluation step.

A program depends on shapes and static choices alone. Runs that differ in seed, learning rate,
decay or schedule numbers share it; see `program_key`.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jtransformer import functional as F
from jtransformer import probes
from jtransformer.data import Batch
from jtransformer.modules import ONE_DEVICE, DropoutRates, Scores, build
from jtransformer.spec import Dropout, LossSpec, NoEarlyStopping, RunSpec
from jtransformer.training.averages import average
from jtransformer.training.fitting import check_layout
from jtransformer.training.gradients import mean_gradient, mean_loss, row_keys
from jtransformer.training.hosts import in_turn
from jtransformer.training.mesh import Arrangement, with_places
from jtransformer.training.optimizer import transformation
from jtransformer.training.schedules import Hyperparameters, blank, hyperparameters, learning_rate
from jtransformer.training.state import Tally, TrainState, empty_tally

Rates = TypeVar("Rates", Dropout, LossSpec)
INITIAL_VALUES, DROPOUT = 0, 1
"""Which random numbers of a seed: what is folded into its key."""
DIRECTIONS = 0
"""Seed of the first directions in which a probe looks for the largest stretch; one for all runs."""


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
        model=dataclasses.replace(
            spec.model, dropout=_presence(spec.model.dropout, *DropoutRates._fields)
        ),
        loss=_presence(spec.loss, "label_smoothing", "z_loss"),
        optimizer=optimizer,
        schedule=blank(spec.schedule),
        training=training,
        start_from=None,
        seed=0,
    )


def _presence(rates: Rates, *names: str) -> Rates:
    """Blanks rates of which no program depends on more than whether they are 0."""
    found = {name: 0.5 if getattr(rates, name) else 0.0 for name in names}
    return dataclasses.replace(rates, **found)


class Program:
    """Compiled functions shared by all runs of one key."""

    def __init__(
        self,
        spec: RunSpec,
        jit: Callable[..., Any] = jax.jit,
        arrangement: Arrangement | None = None,
    ):
        """Compiles nothing yet.

        Args:
            spec: Any run of the key.
            jit: What compiles functions, with the arguments of `jax.jit`.
            arrangement: The mesh over which the run is spread; None is one device.

        Raises:
            SpecError: If an axis of the mesh would do nothing.
        """
        self._spec = program_key(spec)
        self.model = self._spec.model
        self.microbatches = self._spec.training.microbatches
        self.arrangement = arrangement
        placement = ONE_DEVICE if arrangement is None else arrangement.placement
        self._model = build(spec.model, placement)
        self._scores = Scores(spec.model, placement)
        self.jit = jit
        whole = self._places = None
        if arrangement is not None:
            shapes = self._shapes()
            check_layout(self._spec, shapes, arrangement.layout)
            # Fixed, or a state would drift from the place that the next update is compiled for.
            whole, self._places = arrangement.whole, arrangement.state(shapes)
        self.start = jit(self._start, out_shardings=self._places)
        self.update = jit(self.step, donate_argnums=0, out_shardings=self._places)
        self.evaluate = jit(self._evaluate, out_shardings=whole)
        self.probe = jit(self._probe, static_argnames="choice", out_shardings=whole)

    def place(self, state: TrainState) -> TrainState:
        """Puts a state where updates have it; from one device, another mesh or host memory."""
        return jax.device_put(state, self._places)

    def place_batch(self, batch: Batch) -> Batch:
        """Puts a batch where `update` reads it; see `Arrangement.place`."""
        if self.arrangement is None:
            return batch
        return self.arrangement.place(batch, microbatches=self.microbatches)

    def place_evaluated(self, batch: Batch) -> Batch:
        """Puts a batch where `evaluate` reads it, all rows of a device at once."""
        return batch if self.arrangement is None else self.arrangement.place(batch)

    def place_whole(self, tree: Any) -> Any:
        """Puts what every device has whole where it belongs: the numbers of a run, a tally."""
        return tree if self.arrangement is None else self.arrangement.everywhere(tree)

    def abstract(self, batch: Batch) -> tuple[TrainState, Batch, Hyperparameters, Any]:
        """Returns the arguments of `update` as shapes with places, to lower it without arrays.

        Args:
            batch: All rows of a batch, as arrays or shapes.
        """
        spec, arrangement = self._spec, self.arrangement
        numbers = jax.eval_shape(lambda: (hyperparameters(spec), dropout_key(spec)))
        if arrangement is None:
            rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), batch)
            return self._shapes(), rows, *numbers
        rows = arrangement.shapes(batch, microbatches=self.microbatches)
        whole = jax.tree.map(lambda _: arrangement.whole, numbers)
        return with_places(self._shapes(), self._places), rows, *with_places(numbers, whole)

    def _shapes(self) -> TrainState:
        return jax.eval_shape(self._start, jax.random.key(0))

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
        *,
        axis: str | None = None,
    ) -> TrainState:
        """Makes one optimizer update on the mean loss of a batch; `update` is this, compiled.

        Args:
            state: The state before; its buffers are used again.
            batch: What is read and asked.
            hyper: The numbers of the run.
            key: Key of the run's dropout; None where its model has none. What a row drops follows
                from its number in the update's whole batch: 0, 1, 2 …, on from device to device.
            axis: The axis of `jax.pmap` over which other devices have the other rows of the
                batch; None is none.
        """
        keys = None
        if key is not None:
            B, place = len(batch.tokens), 0 if axis is None else jax.lax.axis_index(axis)
            keys = row_keys(jax.random.fold_in(key, state.step), place * B + jnp.arange(B))
        sums, gradients = mean_gradient(
            functools.partial(self._sums, hyper=hyper),
            state.parameters,
            batch,
            keys,
            parts=self.microbatches,
            axis=axis,
        )
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

    def _sums(
        self,
        parameters: Any,
        batch: Batch,
        keys: jax.Array | None = None,
        *,
        hyper: Hyperparameters | None = None,
    ) -> F.CrossEntropy:
        """Returns the sums of a batch; without `hyper` those of the plain loss."""
        present = self._spec.loss
        output: Any = self._model.apply(
            {"params": parameters},
            jnp.asarray(batch.tokens),
            **batch.inputs(),
            ordered=True,
            key=keys,
            dropout_rates=None if hyper is None else hyper.dropout,
        )
        asked = jnp.asarray(batch.labels), jnp.asarray(batch.weights)
        options: Any = {
            "label_smoothing": hyper.label_smoothing if hyper and present.label_smoothing else 0.0,
            "z_loss": hyper.z_loss if hyper and present.z_loss else 0.0,
        }
        if present.chunk is None:
            return F.cross_entropy(output.logits, *asked, **options)
        # The scores of all positions, which nothing reads, are in no compiled program.
        scores: Any = functools.partial(self._scores.apply, {"params": parameters})
        return F.chunked_cross_entropy(
            output.hidden, *asked, head=scores, chunk_size=present.chunk, **options
        )

    def _evaluate(self, parameters: Any, batch: Batch) -> tuple[Array, Array]:
        """Returns the summed plain loss of a batch and the number of scored tokens."""
        sums = self._sums(parameters, batch)
        return sums.nll_sum, sums.weight_sum

    def _probe(
        self, state: TrainState, batch: Batch, hyper: Hyperparameters, *, choice: probes.Choice
    ) -> probes.Measured:
        """Measures the inside of the model on a batch, from which nothing is learned."""

        def loss(parameters: Any) -> Array:
            return mean_loss(self._sums(parameters, batch, hyper=hyper))

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
    found = []
    for batch in map(program.place_evaluated, batches):
        found.append(in_turn(program.evaluate(parameters, batch)))
    sums = np.asarray(jax.device_get(found), np.float64)
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
