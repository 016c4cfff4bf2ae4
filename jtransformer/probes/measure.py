"""All probes of a model at once, and which of them."""

import dataclasses
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from jtransformer.probes.ablation import head_ablation
from jtransformer.probes.activity import Activity, activity, check_maps
from jtransformer.probes.jacobians import ITERATIONS, Jacobians, spectral_norms
from jtransformer.probes.sites import Sample
from jtransformer.probes.sizes import ByLayer, Loss, norms, update_ratios
from jtransformer.spec import ModelSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """Which of the probes that may be left out are made.

    Attributes:
        iterations: Steps of power iteration for each Jacobian; None leaves the Jacobians out.
        ablation: The loss without each head, one by one.
        maps: Heads whose attention weights are kept, out of `head_names`.
    """

    iterations: int | None = ITERATIONS
    ablation: bool = True
    maps: tuple[str, ...] = ()


EVERYTHING = Choice()


class Measured(NamedTuple):
    """What was measured; None is what was not asked for.

    Attributes:
        loss: The loss at the parameters.
        gradients: Norms of its gradient.
        updates: How far an update moved the parameters, relative to their size.
        activity: What the model does on the sample.
        jacobians: Spectral norms of its sublayers.
        ablation: Growth of the loss without each head, by stack and sublayer.
    """

    loss: Float[Array, ""]
    gradients: ByLayer
    updates: ByLayer | None
    activity: Activity
    jacobians: Jacobians | None
    ablation: dict[str, dict[str, Float[Array, "L N"]]] | None


def measure(
    model: ModelSpec,
    parameters: Any,
    sample: Sample,
    loss: Loss,
    *,
    key: PRNGKeyArray,
    updated: Any = None,
    choice: Choice = EVERYTHING,
) -> Measured:
    """Measures a model on a batch; nothing is changed.

    Cost: a gradient, a forward pass, and what `spectral_norms` and `head_ablation` say.

    Args:
        model: The model.
        parameters: Its parameters.
        sample: What it is given, and which positions count.
        loss: What the run minimises on this batch, without dropout.
        key: Key of the power iterations.
        updated: The parameters after one update; None leaves the update ratios out.
        choice: Which probes.

    Raises:
        ValueError: If a map is of no head of the model, or `iterations` is less than 1.
    """
    check_maps(model, choice.maps)
    jacobians = ablation = None
    if choice.iterations is not None:
        jacobians = spectral_norms(model, parameters, sample, key=key, iterations=choice.iterations)
    if choice.ablation:
        ablation = head_ablation(model, parameters, loss)
    value, gradients = jax.value_and_grad(loss)(parameters)
    return Measured(
        loss=value,
        gradients=norms(model, gradients),
        updates=None if updated is None else update_ratios(model, parameters, updated),
        activity=activity(model, parameters, sample, maps=choice.maps),
        jacobians=jacobians,
        ablation=ablation,
    )
