"""Cross-entropy as sums and counts, never means.

A mean over the supervised positions is the ratio of two sums, each taken over all devices and
accumulation steps first; a function that divides by itself cannot be combined rightly.

No function here shifts labels: whoever makes the tokens into inputs and targets does, once.

Sources: label smoothing, Szegedy et al. 2015, sec. 7, https://arxiv.org/abs/1512.00567, with
u uniform over the whole vocabulary, the true label among it, unless a reference distribution
is given; z-loss, Chowdhery et al. 2022 (PaLM), sec. 5, https://arxiv.org/abs/2204.02311. The
chunked form recomputes logits where others keep or derive them by hand; the idea of never
holding all of them is that of Wijmans et al. 2024, sec. 4, https://arxiv.org/abs/2411.09009.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jaxtyping import Array, Bool, Float, Int, Real

from jtransformer.functional._arrays import raised_dtype, statistics_dtype, with_rank


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
    label_smoothing: float | Float[Array, ""] = 0.0,
    z_loss: float | Float[Array, ""] = 0.0,
    reference: Float[Array, " V"] | None = None,
) -> CrossEntropy:
    """Sums the cross-entropy of the labels, and what is needed to report it.

    With `q = (1 - label_smoothing) onehot + label_smoothing reference` and
    `log Z = logsumexp(logits)`, a position costs `-Σ q log softmax(logits) + z_loss (log Z)²`.
    The label at a position is what the logits at that position predict: nothing is shifted.

    Args:
        logits: Unnormalised scores of the V tokens. A logit of -inf is a token that is ruled
            out: it costs nothing where its share of q is 0, and infinity elsewhere.
        labels: Tokens to predict. Where the weight is 0 any integer will do; elsewhere a label
            outside 0 … V - 1 makes the loss NaN, never that of another token.
        weights: Weight of each position; None is 1 everywhere. A weight of 0 silences its
            position, even one with NaN logits, in the value and in the gradient.
        label_smoothing: Share of the target that is spread over the vocabulary, in [0, 1). One
            given as an array is not checked, and one program serves all its values.
        z_loss: Factor of the squared log Z, at least 0; likewise.
        reference: Probability of each token under which the smoothed share is spread; None is
            uniform. It is used as it is and should sum to 1. A label keeps its own entry on
            top: its target is `1 - label_smoothing + label_smoothing reference[label]`.

    Returns:
        The sums; see `CrossEntropy`. Without a supervised position they are all 0.

    Raises:
        ValueError: If the shapes do not fit or an option is out of range.
    """
    _check(logits, labels, weights, label_smoothing, z_loss)
    if reference is not None and reference.shape != logits.shape[-1:]:
        raise ValueError(
            f"reference must have one probability per token, got reference.shape="
            f"{reference.shape} for logits.shape={logits.shape}."
        )
    dtype = statistics_dtype(logits)
    raised = logits.astype(dtype)
    smoothing, z_factor = _factor(label_smoothing, dtype), _factor(z_loss, dtype)
    is_token, labels = _within(labels, logits.shape[-1])
    if weights is None:
        weights = jnp.ones(labels.shape, dtype)
    else:
        weights = weights.astype(dtype)
        counted = weights != 0
        raised = jnp.where(counted[..., None], raised, 0)
        is_token = is_token | ~counted
    # A look-up of one logit: comparing every id with the label is 1.8 times as slow on CPU.
    label_logit = jnp.take_along_axis(raised, labels[..., None], axis=-1, mode="clip")[..., 0]
    label_logit = jnp.where(is_token, label_logit, jnp.nan)
    log_z = jax.nn.logsumexp(raised, axis=-1)
    nll = log_z - label_logit
    loss = nll
    if smoothing is not None:
        spread = _spread(raised, log_z, reference)
        loss = (1 - smoothing) * nll + smoothing * spread
    z = jnp.square(log_z)
    if z_factor is not None:
        loss = loss + z_factor * z

    # A silenced position has been given finite logits and a label, so 0 times it is 0.
    return CrossEntropy(
        loss_sum=jnp.sum(loss * weights),
        nll_sum=jnp.sum(nll * weights),
        weight_sum=jnp.sum(weights),
        z_sum=jnp.sum(z * weights),
    )


def chunked_cross_entropy(
    hidden: Float[Array, "*batch D"],
    labels: Int[Array, "*batch"],
    weights: Real[Array, "*batch"] | Bool[Array, "*batch"] | None = None,
    *,
    head: Callable[[Float[Array, "R D"]], Float[Array, "R V"]],
    chunk_size: int = 1024,
    label_smoothing: float | Float[Array, ""] = 0.0,
    z_loss: float | Float[Array, ""] = 0.0,
    reference: Float[Array, " V"] | None = None,
) -> CrossEntropy:
    """Computes `cross_entropy(head(hidden), ...)` without ever holding all of the logits.

    The positions are visited `chunk_size` at a time, and the backward pass computes the logits
    of a chunk once more: memory for the logits of one chunk and their gradient, time for one
    more product. Sums are taken in another order than by `cross_entropy`, so the two agree up
    to rounding.

    Args:
        hidden: Final states, from which `head` makes logits.
        labels: As for `cross_entropy`.
        weights: As for `cross_entropy`. Where the weight is 0 `head` is given ±1 in place of
            the state, so that one of NaN reaches neither the value nor any gradient.
        head: Makes logits `R V` from states `R D`, each row by itself, for any number of rows.
            It may close over parameters: they get their gradients, summed over the chunks in
            at least float32. It is traced, and once more if a shorter chunk is left over.
        chunk_size: Positions whose logits exist at a time. Chunk i of n takes the positions
            i, i + n, i + 2n, …, so that a batch spread over devices keeps all of them busy.
        label_smoothing: As for `cross_entropy`.
        z_loss: As for `cross_entropy`.
        reference: As for `cross_entropy`.

    Returns:
        The sums; see `CrossEntropy`.

    Raises:
        ValueError: As `cross_entropy`, or if `chunk_size` is below 1.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got chunk_size={chunk_size}.")
    _check_positions(hidden, labels, weights, of="hidden")
    options = dict(label_smoothing=label_smoothing, z_loss=z_loss, reference=reference)
    positions = (hidden, labels) if weights is None else (hidden, labels, weights)
    rows = tuple(x.reshape(labels.size, *x.shape[labels.ndim :]) for x in positions)
    chunks, left_over = divmod(labels.size, chunk_size)
    rest = tuple(x[chunks * chunk_size :] for x in rows)
    if chunks == 0:
        return jax.checkpoint(_of_rows(head, rest[0], options))(rest)
    whole = tuple(_interleaved(x[: chunks * chunk_size], chunks) for x in rows)
    states = jax.ShapeDtypeStruct((chunk_size, *hidden.shape[-1:]), hidden.dtype)
    # Inside a loop the compiler cannot merge the second computation with the first anyway.
    of_chunk = jax.checkpoint(_of_rows(head, states, options), prevent_cse=False)
    total = jax.tree.map(lambda sums: jnp.sum(sums, axis=0), jax.lax.map(of_chunk, whole))
    if left_over:
        last = jax.checkpoint(_of_rows(head, rest[0], options))(rest)
        total = jax.tree.map(jnp.add, total, last)
    return total


def _within(labels: Array, V: int) -> tuple[Array, Array]:
    """Says which labels are tokens; and the labels as int32, with 0 in the place of the others.

    Compared before they are converted: 64 bits would wrap around into the vocabulary. Bytes are
    widened, since they cannot be compared with a larger number.
    """
    wide = labels.astype(jnp.int32) if labels.dtype.itemsize < 4 else labels
    is_token = (wide >= 0) & (wide < V)
    return is_token, jnp.where(is_token, wide, 0).astype(jnp.int32)


def _spread(logits: Array, log_z: Array, reference: Array | None) -> Array:
    """Computes the cross-entropy of the reference distribution at each position."""
    if reference is None:
        return log_z - jnp.mean(logits, axis=-1)
    share = with_rank(reference.astype(logits.dtype), logits.ndim)
    # 0 times infinity: a token that is ruled out on both sides costs nothing.
    ruled_out = (share == 0) & jnp.isneginf(logits)
    return jnp.sum(share * jnp.where(ruled_out, 0, log_z[..., None] - logits), axis=-1)


def _interleaved(x: Array, chunks: int) -> Array:
    """Deals the rows out to the chunks, one after the other."""
    return jnp.swapaxes(x.reshape(-1, chunks, *x.shape[1:]), 0, 1)


def _of_rows(
    head: Callable[[Array], Array],
    states: Array | jax.ShapeDtypeStruct,
    options: Mapping[str, Any],
) -> Callable[[Sequence[Array]], CrossEntropy]:
    """Makes the function from states, labels and perhaps weights to the sums.

    What `head` closes over enters the loop in at least float32 and is lowered again at its
    use, because the gradients of a loop's constants are summed in the dtype of the constant.
    """
    # The lambda is new at each call: a callable with a state is never taken for its older self.
    traced = jax.make_jaxpr(lambda states: head(states))(states)
    shapes = [made.shape for made in traced.out_avals]
    if len(shapes) != 1 or shapes[0][:-1] != states.shape[:1]:
        raise ValueError(
            f"head must make one array of logits R V from states R D, got the shapes {shapes} for "
            f"states.shape={states.shape}."
        )
    low = [_is_low(const) for const in traced.consts]
    pairs = list(zip(traced.consts, low, strict=True))
    raised = [const.astype(jnp.float32) if is_low else const for const, is_low in pairs]

    def of_rows(rows: Sequence[Array]) -> CrossEntropy:
        states, labels, *weights = rows
        if weights:
            # Zeros would do for a product, but some heads normalise, and zeros have no norm.
            harmless = 1 - 2 * (jnp.arange(states.shape[1]) % 2).astype(states.dtype)
            states = jnp.where((weights[0] != 0)[:, None], states, harmless[None])
        consts = [
            used.astype(const.dtype) if is_low else used
            for used, (const, is_low) in zip(raised, pairs, strict=True)
        ]
        (logits,) = eval_jaxpr(traced.jaxpr, consts, states)
        return cross_entropy(logits, labels, *weights, **options)

    return of_rows


def _factor(value: float | Array, dtype: Any) -> float | Array | None:
    """Returns a factor that can be multiplied with numbers of a dtype; None where it is 0."""
    if isinstance(value, Array):
        return value.astype(dtype)
    return float(value) or None


def _is_low(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating) and raised_dtype(x.dtype) != x.dtype


def _check_positions(x: Array, labels: Array, weights: Array | None, *, of: str) -> None:
    for name, value in {"labels": labels, "weights": weights}.items():
        if value is not None and value.shape != x.shape[:-1]:
            raise ValueError(
                f"{name} must have the leading axes of {of}, got {name}.shape={value.shape} for "
                f"{of}.shape={x.shape}."
            )


def _check(
    logits: Array,
    labels: Array,
    weights: Array | None,
    label_smoothing: float | Array,
    z_loss: float | Array,
) -> None:
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f"labels must be integers, got dtype={labels.dtype}; give token ids.")
    _check_positions(logits, labels, weights, of="logits")
    if not isinstance(label_smoothing, Array) and not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}.")
    if not isinstance(z_loss, Array) and not z_loss >= 0:
        raise ValueError(f"z_loss must be at least 0, got {z_loss}.")
