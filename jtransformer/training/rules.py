"""What becomes of the gradient before it is scaled by the learning rate: every rule, by optax.

A rule is the part of an optimizer that knows nothing of rates and of decay, so that both mean
the same under each of them: an update is -rate · (direction + weight decay · parameter).

Muon's directions are scaled by 0.2 max(rows, columns)^0.5 (Liu et al. 2025) instead of Jordan's
max(1, columns / rows)^0.5. Their entries are then as large as those of AdamW, which has the other
parameters, so that one learning rate serves both.

Sources: Kingma and Ba 2014 (Adam), sec. 2, https://arxiv.org/abs/1412.6980; Loshchilov and
Hutter 2017 (decoupled decay), sec. 2, https://arxiv.org/abs/1711.05101; Shazeer and Stern 2018
(Adafactor), sec. 3 to 8, https://arxiv.org/abs/1804.04235, without its relative step; Chen et al.
2023 (Lion), alg. 2, https://arxiv.org/abs/2302.06675; Sutskever et al. 2013 (momentum, Nesterov's
form), sec. 2, https://proceedings.mlr.press/v28/sutskever13.html; Jordan 2024 (Muon),
https://kellerjordan.github.io/posts/muon/; Liu et al. 2025, sec. 2.2,
https://arxiv.org/abs/2502.16982.
"""

import math
from typing import Any

import jax
import optax
import optax.contrib

from jtransformer.spec import Adafactor, Adam, AdamW, Lion, Muon, Sgd
from jtransformer.spec.optimizer import Rule
from jtransformer.training.matrices import layer_matrix, leaf_by_leaf

MUON_SCALE = 0.2
"""Root mean square of an update of Muon, near that of AdamW's."""


def direction(rule: Rule) -> optax.GradientTransformation:
    """Returns the transformation of a gradient into the direction of ascent."""
    match rule:
        case AdamW() | Adam():
            return optax.scale_by_adam(rule.beta1, rule.beta2, rule.epsilon)
        case Adafactor():
            return leaf_by_leaf(_adafactor(rule))
        case Lion():
            return optax.scale_by_lion(rule.beta1, rule.beta2)
        case Sgd(momentum=None):
            return optax.identity()
        case Sgd(momentum=float() as momentum):
            return optax.trace(momentum, rule.nesterov)
        case Muon():
            return _muon(rule)
    raise AssertionError(f"{rule} is no rule")


def _adafactor(rule: Adafactor) -> optax.GradientTransformation:
    parts = [
        optax.scale_by_factored_rms(
            decay_rate=rule.decay_rate, min_dim_size_to_factor=rule.factored_from
        )
    ]
    if rule.clipping_threshold is not None:
        parts.append(optax.clip_by_block_rms(rule.clipping_threshold))
    if rule.scale_by_parameter:
        parts.append(optax.scale_by_param_block_rms())
    return optax.chain(*parts)


def _muon(rule: Muon) -> optax.GradientTransformation:
    orthogonal = optax.contrib.scale_by_muon(
        ns_steps=rule.iterations, beta=rule.momentum, weight_dimension_numbers=_dimensions
    )
    return optax.partition(
        {
            "muon": optax.chain(orthogonal, optax.stateless(_scaled_by_size)),
            "adam": optax.scale_by_adam(rule.beta1, rule.beta2, rule.epsilon),
        },
        _labels,
    )


def _labels(parameters: Any) -> Any:
    def label(path: Any, leaf: Any) -> str:
        return "adam" if layer_matrix(path, leaf.ndim) is None else "muon"

    return jax.tree_util.tree_map_with_path(label, parameters)


def _dimensions(matrices: Any) -> Any:
    def numbers(path: Any, leaf: Any) -> optax.contrib.MuonDimensionNumbers:
        axes = layer_matrix(path, leaf.ndim)
        assert axes is not None, path
        return optax.contrib.MuonDimensionNumbers(axes.rows, axes.columns)

    return jax.tree_util.tree_map_with_path(numbers, matrices)


def _scaled_by_size(updates: Any, _: Any) -> Any:
    def scaled(path: Any, leaf: Any) -> Any:
        axes = layer_matrix(path, leaf.ndim)
        assert axes is not None, path
        rows, columns = (math.prod(leaf.shape[axis] for axis in side) for side in axes)
        return MUON_SCALE * max(rows, columns) ** 0.5 * leaf

    return jax.tree_util.tree_map_with_path(scaled, updates)
