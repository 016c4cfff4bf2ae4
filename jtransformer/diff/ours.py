"""A model of ours as one side of a comparison: whatever it is made of can be changed.

Spec, parameters and the call are values, so that a hypothesis is the same model with another one
of them. What no spec says, such as a mask read the wrong way round, is done by hooks that flax
lays around the methods of modules while the model runs.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer import functional as F
from jtransformer import modules
from jtransformer.diff.inputs import Inputs
from jtransformer.diff.places import matches
from jtransformer.diff.traces import Trace, coarsest, stored_type, to_numpy
from jtransformer.spec import ModelSpec, PrefixDecoder, SpecError, TokenHead

Hook = Callable[[Callable[..., Any], tuple, dict, Any], Any]
"""An interceptor of `flax.linen.intercept_methods`."""


@dataclasses.dataclass(frozen=True)
class Ours:
    """A model, its parameters, and how it is called.

    Attributes:
        name: What the user called it.
        spec: The model; its layers are looped.
        variables: Its parameters.
        position_shift: Added to every position.
        label_shift: By how many places the labels of the loss are ahead of the tokens; None is
            what the model is trained with.
        hooks: Changes to what its modules do.
        views: Patterns of places inside a layer, and how a value there is brought to the form
            that the model without changes gives it.
    """

    name: str
    spec: ModelSpec
    variables: Any
    position_shift: int = 0
    label_shift: int | None = None
    hooks: tuple[Hook, ...] = ()
    views: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = ()

    def but(self, **changes: Any) -> "Ours":
        """Returns the same with other fields."""
        return dataclasses.replace(self, **changes)

    def respecified(self, **changes: Any) -> "Ours | None":
        """Returns the same with other fields of the spec; None where they contradict the rest."""
        try:
            return self.but(spec=dataclasses.replace(self.spec, **changes))
        except SpecError:
            return None

    def trace(self, inputs: Inputs, *, gradients: bool = False) -> Trace:
        """Runs the model.

        Args:
            inputs: What it is given.
            gradients: Whether gradients of the loss are computed too.

        Raises:
            ValueError: If the model cannot answer such a call.
        """
        with self.hooked():
            values = to_numpy(self.values(self.variables, inputs))
        for pattern, view in self.views:
            values = {n: view(x) if matches(n, pattern) else x for n, x in values.items()}
        trace = Trace(values, self.stored, self.computed)
        if not gradients:
            return trace
        from jtransformer.diff.gradients import gradients_of

        return gradients_of(self, inputs, trace)

    def hooked(self) -> contextlib.ExitStack:
        """Returns a context in which the hooks are laid around the modules."""
        import flax.linen as nn

        stack = contextlib.ExitStack()
        for hook in self.hooks:
            stack.enter_context(nn.intercept_methods(hook))
        return stack

    def values(self, variables: Any, inputs: Inputs) -> dict[str, jax.Array]:
        """Computes what the model does by place; hooks are up to the caller."""
        out: Any = modules.build(self.spec).apply(
            variables, jnp.asarray(inputs.tokens), intermediates=("*",), **self.call(inputs)
        )
        found = dict(out.intermediates)
        if out.logits is not None:
            found["logits"] = out.logits
        if out.logits is not None and isinstance(self.spec.head, TokenHead):
            found["loss"] = self.loss(out.logits, inputs)
        return found

    def loss(self, logits: jax.Array, inputs: Inputs) -> jax.Array:
        """Computes the mean cross-entropy of the labels, which are the tokens themselves."""
        usual = 1 if self.spec.causal else 0
        shift = usual if self.label_shift is None else self.label_shift
        return mean_loss(logits, inputs, shift)

    def call(self, inputs: Inputs) -> dict[str, Any]:
        """Returns the arguments of a call, besides the tokens."""
        given: dict[str, Any] = {}
        T = inputs.tokens.shape[1]
        positions = jnp.arange(T, dtype=jnp.int32)[None]
        if inputs.valid is not None:
            given["valid"] = jnp.asarray(inputs.valid)
            positions = F.token_positions(given["valid"])
        if self.position_shift:
            # What a token sees is told by its place, whatever its position is called.
            given |= {"positions": positions + self.position_shift, "ordered": True}
        if inputs.source is not None:
            given["source"] = jnp.asarray(inputs.source)
        if inputs.source_valid is not None:
            given["source_valid"] = jnp.asarray(inputs.source_valid)
        if isinstance(self.spec.stack, PrefixDecoder):
            given["prefix_length"] = 0
        return given

    @property
    def stored(self) -> str:
        """The coarsest type that holds all parameters exactly."""
        return stored_type(jax.tree.leaves(self.variables))

    @property
    def computed(self) -> str:
        """The coarsest type that a part of the model is computed in."""
        precision = dataclasses.astuple(self.spec.precision)
        own = {str(leaf.dtype) for leaf in jax.tree.leaves(self.variables)}
        return coarsest([*precision, *own])


def ours(name: str, spec: ModelSpec, variables: Any) -> Ours:
    """Returns a model of ours as one side of a comparison.

    Args:
        name: What the user called it.
        spec: The model.
        variables: Its parameters; layers stacked for a scan are taken apart.
    """
    if spec.scan_layers:
        variables = modules.unstack_layers(spec, variables)
    spec = dataclasses.replace(spec, scan_layers=False, rematerialize="nothing")
    # What was restored from a checkpoint may lie in NumPy's arrays.
    return Ours(name, spec, {"params": jax.tree.map(jnp.asarray, variables["params"])})


def mean_loss(logits: jax.Array, inputs: Inputs, shift: int) -> jax.Array:
    """Computes the mean cross-entropy of tokens that serve as labels.

    Args:
        logits: Scores `B T V`.
        inputs: Their tokens, and which are real.
        shift: By how many places the label is ahead of the logits that are to predict it.
    """
    T = inputs.tokens.shape[1]
    labels = jnp.asarray(inputs.tokens[:, shift:])
    weights = jnp.ones(labels.shape, jnp.float32)
    if inputs.valid is not None:
        # What is predicted from padding is not counted.
        both = inputs.valid[:, shift:] & inputs.valid[:, : T - shift]
        weights = jnp.asarray(both, jnp.float32)
    sums = F.cross_entropy(logits[:, : T - shift], labels, weights)
    return sums.loss_sum / sums.weight_sum
