"""Cross-entropy as sums and counts, never means.

A mean over the supervised positions is the ratio of two sums, each taken over all devices and
accumulation steps first; a function that divides by itself cannot be combined rightly.

Sources: label smoothing, Szegedy et al. 2015, sec. 7, https://arxiv.org/abs/1512.00567, with
u uniform over the whole vocabulary, the true label among it; z-loss, Chowdhery et al. 2022
(PaLM), sec. 5, https://arxiv.org/abs/2204.02311.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Real

from jtransformer.functional._arrays import statistics_dtype


class CrossEntropy(NamedTuple):
    """Weighted sums over all positions, in at least float32.

    Attributes:
        loss_sum: What is minimised: the smoothed loss plus `z_loss * z_sum`.
        nll_sum: Plain negative log-likelihood of the labels, in nats.
        weight_sum: Sum of the weights; divide the other sums by it, after adding up batches.
        z_sum: Squared logarithm of the partition function, not multiplied by `z_loss`.
    """

    loss_sum: Float[Array, ""]
    nll_sum: Float[Array, ""]
    weight_sum: Float[Array, ""]
    z_sum: Float[Array, ""]


def cross_entropy(
    logits: Float[Array, "*batch V"],
    labels: Int[Array, "*batch"],
    weights: Real[Array, "*batch"] | Bool[Array, "*batch"] | None = None,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> CrossEntropy:
    """Sums the cross-entropy of the labels, and what is needed to report it.

    With `q = (1 - label_smoothing) onehot + label_smoothing / V` and
    `log Z = logsumexp(logits)`, a position costs `-Σ q log softmax(logits) + z_loss (log Z)²`.

    Args:
        logits: Unnormalised scores of the V tokens.
        labels: Tokens to predict. Where the weight is 0 any integer will do; elsewhere a label
            outside 0 … V - 1 makes the loss NaN, never that of another token.
        weights: Weight of each position; None is 1 everywhere. A weight of 0 silences its
            position, even one with NaN logits, in the value and in the gradient.
        label_smoothing: Share of the target that is spread over the vocabulary, in [0, 1).
        z_loss: Factor of the squared log Z, at least 0.

    Returns:
        The sums; see `CrossEntropy`. Without a supervised position they are all 0.

    Raises:
        ValueError: If the shapes do not fit or an option is out of range.
    """
    _check(logits, labels, weights, label_smoothing, z_loss)
    dtype = statistics_dtype(logits)
    raised = logits.astype(dtype)
    # A byte would wrap around when it is compared with the ids of a larger vocabulary.
    labels = labels.astype(jnp.int32)
    V = logits.shape[-1]
    if weights is None:
        weights = jnp.ones(labels.shape, dtype)
    else:
        weights = weights.astype(dtype)
        counted = weights != 0
        raised = jnp.where(counted[..., None], raised, 0)
        labels = jnp.where(counted, labels, 0)
    is_label = labels[..., None] == jax.lax.broadcasted_iota(
        labels.dtype, raised.shape, labels.ndim
    )
    label_logit = jnp.sum(jnp.where(is_label, raised, 0), axis=-1)
    label_logit = jnp.where((labels >= 0) & (labels < V), label_logit, jnp.nan)
    log_z = jax.nn.logsumexp(raised, axis=-1)
    nll = log_z - label_logit
    loss = nll
    if label_smoothing:
        spread = log_z - jnp.mean(raised, axis=-1)
        loss = (1 - label_smoothing) * nll + label_smoothing * spread
    z = jnp.square(log_z)
    if z_loss:
        loss = loss + z_loss * z

    # A silenced position has been given finite logits and a label, so 0 times it is 0.
    return CrossEntropy(
        loss_sum=jnp.sum(loss * weights),
        nll_sum=jnp.sum(nll * weights),
        weight_sum=jnp.sum(weights),
        z_sum=jnp.sum(z * weights),
    )


def _check(
    logits: Array,
    labels: Array,
    weights: Array | None,
    label_smoothing: float,
    z_loss: float,
) -> None:
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f"labels must be integers, got dtype={labels.dtype}; give token ids.")
    for name, value in {"labels": labels, "weights": weights}.items():
        if value is not None and value.shape != logits.shape[:-1]:
            raise ValueError(
                f"{name} must have the leading axes of logits, got {name}.shape={value.shape} for "
                f"logits.shape={logits.shape}."
            )
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}.")
    if z_loss < 0:
        raise ValueError(f"z_loss must be at least 0, got {z_loss}.")
