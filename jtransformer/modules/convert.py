"""Parameters of layers in a loop, stacked for a scan, and back."""

from typing import Any

import jax
import jax.numpy as jnp

from jtransformer.modules.initial import LAYER, STACKED
from jtransformer.modules.parts import Part, parts_of
from jtransformer.spec import ModelSpec


def stack_layers(spec: ModelSpec, variables: Any) -> Any:
    """Stacks the parameters of a model with looped layers, for its twin with `scan_layers`.

    Args:
        spec: The model, either of the two.
        variables: Its variables, with a tree for each layer.

    Raises:
        ValueError: If a stack does not have the layers of the spec, or its first layer has other
            parameters than the rest.
    """
    if not spec.first_norm:
        raise ValueError(
            "Layers cannot be stacked with first_norm=False, which leaves a norm out of the first; "
            "use scan_layers=False."
        )
    return _converted(spec, variables, _stacked)


def unstack_layers(spec: ModelSpec, variables: Any) -> Any:
    """Takes the stacked parameters of a scan apart, for the twin with looped layers.

    Args:
        spec: The model, either of the two.
        variables: Its variables, with the layers stacked.

    Raises:
        ValueError: If a stack does not have the layers of the spec.
    """
    return _converted(spec, variables, _unstacked)


def _converted(spec: ModelSpec, variables: Any, convert: Any) -> Any:
    encoder, main = parts_of(spec)
    parameters = dict(variables["params"])
    if encoder is None:
        return {**variables, "params": convert(main, parameters)}
    for part in (encoder, main):
        parameters[part.scope] = convert(part, dict(parameters[part.scope]))
    return {**variables, "params": parameters}


def _stacked(part: Part, parameters: dict[str, Any]) -> dict[str, Any]:
    needed = [f"{LAYER}{layer}" for layer in range(part.layers)]
    found = [name for name in parameters if name.startswith(LAYER)]
    if sorted(found) != sorted(needed):
        raise ValueError(
            f"The parameters must hold {part.layers} looped layers, got "
            f"{', '.join(found) or 'none'}."
        )
    layers = [parameters.pop(name) for name in needed]
    return parameters | {STACKED: jax.tree.map(lambda *x: jnp.stack(x), *layers)}


def _unstacked(part: Part, parameters: dict[str, Any]) -> dict[str, Any]:
    stacked = parameters.pop(STACKED, None)
    depths = {leaf.shape[0] for leaf in jax.tree.leaves(stacked)}
    if depths != {part.layers}:
        raise ValueError(
            f"The parameters must hold {part.layers} stacked layers, got "
            f"{sorted(depths) or 'none'}."
        )
    layers = {
        f"{LAYER}{layer}": jax.tree.map(lambda x, layer=layer: x[layer], stacked)
        for layer in range(part.layers)
    }
    return parameters | layers
