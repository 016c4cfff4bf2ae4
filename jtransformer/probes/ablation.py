"""What the loss becomes when one attention head is switched off.

Source: Michel et al. 2019, sec. 3, https://arxiv.org/abs/1905.10650.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jtransformer.modules.initial import ATTENTIONS, LAYER, STACKED
from jtransformer.probes.sites import attentions_of, stacks_of
from jtransformer.probes.sizes import Loss
from jtransformer.spec import ModelSpec

Numbers = dict[tuple[str, str], np.ndarray]
"""A number for each head, `L N`, by stack and sublayer."""


def head_ablation(
    model: ModelSpec, parameters: Any, loss: Loss
) -> dict[str, dict[str, Float[Array, "L N"]]]:
    """Computes by how much the loss grows when a head's rows of the output matrix are zero.

    One head at a time; of grouped heads, query heads. A bias of the output stays.

    Cost: one loss for each head of each attention sublayer, one after the other in one compiled
    loop, with the memory of one.

    Args:
        model: The model.
        parameters: Its parameters.
        loss: What is compared.

    Returns:
        Differences by stack and attention sublayer, in the unit and the dtype of the loss;
        exactly 0 for a head whose rows are zero as it is.
    """
    numbers = _numbers(model)

    def loss_without(number: Array) -> Array:
        def silenced(path: Any, leaf: Array) -> Array:
            own = _own_numbers(numbers, tuple(entry.key for entry in path))
            if own is None:
                return leaf
            return jnp.where((jnp.asarray(own) == number)[..., None, None], 0, leaf)

        return loss(jax.tree_util.tree_map_with_path(silenced, parameters))

    heads = sum(own.size for own in numbers.values())
    # No head has the number -1: the loss itself comes out of the same program, to the bit.
    losses = jax.lax.map(loss_without, jnp.arange(-1, heads))
    grown = losses[1:] - losses[0]
    found: dict[str, dict[str, Array]] = {stack: {} for stack, _ in numbers}
    for (stack, sublayer), own in numbers.items():
        found[stack][sublayer] = grown[jnp.asarray(own)]
    return found


def _numbers(model: ModelSpec) -> Numbers:
    numbers: Numbers = {}
    first, N = 0, model.heads
    for stack, part in stacks_of(model).items():
        for sublayer in attentions_of(part):
            size = part.layers * N
            numbers[stack, sublayer] = np.arange(first, first + size).reshape(part.layers, N)
            first += size
    return numbers


def _own_numbers(numbers: Numbers, path: tuple[str, ...]) -> np.ndarray | None:
    """Returns the numbers of the heads that an output matrix has rows of; None is another leaf."""
    if len(path) < 4 or path[-3] not in ATTENTIONS or path[-2:] != ("out", "kernel"):
        return None
    *scopes, layer, sublayer, _, _ = path
    stack = scopes[0] if scopes else next(stack for stack, _ in numbers)
    own = numbers[stack, sublayer]
    return own if layer == STACKED else own[int(layer.removeprefix(LAYER))]
