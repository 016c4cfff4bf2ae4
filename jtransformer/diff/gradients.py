"""Gradients of the loss of a model of ours: by parameter, and by activation.

The gradient of an activation is that of zeros that are added to it. They are added where a module
returns or reads it, by hooks, so that the model itself need not know of them.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from jtransformer.diff.hooks import ATTENTION
from jtransformer.diff.inputs import Inputs
from jtransformer.diff.ours import Hook, Ours
from jtransformer.diff.places import matches
from jtransformer.diff.traces import Trace, to_numpy
from jtransformer.spec import TokenHead

PROJECTED = ("query", "key", "value")


def gradients_of(ours: Ours, inputs: Inputs, trace: Trace) -> Trace:
    """Adds the gradients of the loss to a trace.

    Args:
        ours: The model.
        inputs: What it is given.
        trace: What it did with them.

    Raises:
        ValueError: If its head scores no tokens, so that it has no loss.
    """
    if not isinstance(ours.spec.head, TokenHead):
        raise ValueError(
            f"Gradients need a loss, and {ours.name} has the head {ours.spec.head.kind!r}, which "
            "scores no tokens; leave gradients out."
        )

    def loss(variables: Any, zeros: dict[str, Array]) -> Array:
        with ours.hooked(), nn.intercept_methods(_adding(zeros)):
            values = ours.values(variables, inputs)
        return ours.loss(values["logits"] + zeros["logits"], inputs)

    zeros = _zeros(ours, inputs)
    of_variables, of_places = jax.grad(loss, argnums=(0, 1))(ours.variables, zeros)
    found = to_numpy(of_places)
    for pattern, view in ours.views:
        found = {name: view(x) if matches(name, pattern) else x for name, x in found.items()}
    return trace._replace(
        gradients=found, parameter_gradients=to_numpy(by_path(of_variables["params"]))
    )


def by_path(tree: Any) -> dict[str, Array]:
    """Returns the leaves of a tree of parameters by their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {"/".join(entry.key for entry in path): leaf for path, leaf in leaves}


def _zeros(ours: Ours, inputs: Inputs) -> dict[str, Array]:
    """Returns zeros for every activation that has a gradient."""
    zeros: dict[str, Array] = {}

    def note(name: str, value: Array) -> Array:
        zeros[name] = jnp.zeros(value.shape, value.dtype)
        return value

    def run() -> dict[str, Array]:
        with ours.hooked(), nn.intercept_methods(_at_activations(note)):
            return ours.values(ours.variables, inputs)

    values = run()
    note("logits", values["logits"])
    return zeros


def _adding(zeros: dict[str, Array]) -> Hook:
    return _at_activations(lambda name, value: value + zeros[name])


def _at_activations(meet: Callable[[str, Array], Array]) -> Hook:
    """Returns a hook that hands every activation to a function, and goes on with what it returns.

    Args:
        meet: Maps the name of the place and the value to the value.
    """

    def hook(call: Callable[..., Any], args: tuple, kwargs: dict, context: Any) -> Any:
        module, method = context.module, context.method_name
        kind, path = type(module).__name__, "/".join(module.path)
        if method == "project" and kind in ATTENTION and args[1] in PROJECTED:
            return meet(f"{path}/{args[1]}", call(*args, **kwargs))
        if method != "__call__":
            return call(*args, **kwargs)
        if kind in ATTENTION or kind == "FeedForward":
            out = call(meet(f"{path}/input", args[0]), *args[1:], **kwargs)
            if kind == "FeedForward":
                return (meet(f"{path}/output", out[0]), *out[1:])
            return out._replace(out=meet(f"{path}/output", out.out))
        if kind == "Block":
            stack, _, layer = path.rpartition("layer_")
            x = meet(f"{stack}embedded", args[0]) if layer == "0" else args[0]
            x, left = call(x, *args[1:], **kwargs)
            return meet(f"{path}/stream", x), left
        if kind == "Norm" and module.name == "final_norm":
            return meet(path, call(*args, **kwargs))
        return call(*args, **kwargs)

    return hook
