"""Drawing the next token, and the bookkeeping of a batch that is being generated.

The options of `sample` cut the distribution down one after the other: temperature, then top-k,
then top-p, then min-p, each on what the one before has left. Every filter keeps the most
probable tokens and, of equally probable ones, those with the lower id: exactly k, the smallest
set that reaches p. Code that cuts at the k-th *value* keeps all that tie with it instead.

Sources: top-k, Fan et al. 2018, sec. 5.4, https://arxiv.org/abs/1805.04833; top-p (nucleus),
Holtzman et al. 2019, sec. 3.1, https://arxiv.org/abs/1904.09751; min-p, Nguyen et al. 2024,
sec. 3, https://arxiv.org/abs/2407.01082; both length penalties, Wu et al. 2016, sec. 7,
https://arxiv.org/abs/1609.08144.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jtransformer.functional._arrays import statistics_dtype

ROUNDINGS = 8
"""Roundings by which a probability may miss top-p or min-p and still counts as reaching it."""

NO_TOKEN = -1
"""Drawn where the logits of a row leave nothing to draw."""


class Emitted(NamedTuple):
    """What one step of generation adds to each row.

    Attributes:
        tokens: The drawn token, or the padding where the row had finished before.
        finished: Whether the row is finished now.
        counted: Whether the token belongs to the row: where not, its length and its score
            stand still.
    """

    tokens: Int[Array, "*batch"]
    finished: Bool[Array, "*batch"]
    counted: Bool[Array, "*batch"]


def sample(
    key: PRNGKeyArray | None,
    logits: Float[Array, "*batch V"],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Int[Array, "*batch"]:
    """Draws one token per row from the distribution of `sampling_log_probabilities`.

    Args:
        key: Random key, consumed once for the whole batch, so that a draw depends on the shape
            of the batch; map over rows and keys for draws that do not. Unused, and may be
            None, if the temperature is 0.
        logits: Unnormalised scores of the next token.
        temperature: As for `sampling_log_probabilities`; 0 takes the most probable token, the
            first of equals.
        top_k: As for `sampling_log_probabilities`.
        top_p: As for `sampling_log_probabilities`.
        min_p: As for `sampling_log_probabilities`.

    Returns:
        Token ids in int32. A token with a logit of -inf is never drawn; a row that has nothing
        else, or holds NaN or +inf, has no distribution and gives -1, which is no token.

    Raises:
        ValueError: If an option is out of range, or the key is missing.
    """
    _check(temperature, top_k, top_p, min_p)
    if temperature == 0:
        drawn = jnp.argmax(logits, axis=-1)
    elif key is None:
        raise ValueError(f"sample needs a key, got key=None, temperature={temperature}; or use 0.")
    else:
        log_probabilities = sampling_log_probabilities(
            logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
        )
        drawn = jax.random.categorical(key, log_probabilities)
    can_draw = jnp.isfinite(jnp.max(logits, axis=-1))
    return jnp.where(can_draw, drawn.astype(jnp.int32), NO_TOKEN)


def sampling_log_probabilities(
    logits: Float[Array, "*batch V"],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Float[Array, "*batch V"]:
    """Computes the logarithm of the distribution that `sample` draws from.

    `log softmax(logits / temperature)` over the tokens that are kept, -inf for the others. The
    kept set is constant for derivatives.

    Args:
        logits: Unnormalised scores; -inf rules a token out.
        temperature: Divides the logits; 0 puts all of it on the greatest logit, the
            first of equals.
        top_k: Keeps this many of the most probable tokens; one beyond V keeps all.
        top_p: Keeps the smallest set of most probable tokens whose probabilities sum to this
            or more, at least one token. A sum that misses it by rounding (8 of them, 1e-6 in
            float32) counts as reaching it.
        min_p: Keeps tokens at least this many times as probable as the most probable one, with
            the same allowance for rounding.

    Returns:
        Log-probabilities in at least float32. A row without any possible token is -inf
        throughout; one with a logit of NaN or +inf is NaN throughout.

    Raises:
        ValueError: If an option is out of range.
    """
    _check(temperature, top_k, top_p, min_p)
    dtype = statistics_dtype(logits)
    temperature = float(temperature)  # a NumPy float64 is a float, but one whose dtype would count
    top_p = None if top_p is None else float(top_p)
    if temperature == 0:
        temperature, top_k = 1.0, 1
    raised = logits.astype(dtype)
    highest = jnp.max(raised, axis=-1, keepdims=True)
    # Differences first: logits over a small temperature would overflow. Nothing is below the
    # smallest temperature that the dtype can divide by.
    scaled = raised - jax.lax.stop_gradient(jnp.where(jnp.isfinite(highest), highest, 0))
    scaled = scaled / max(temperature, float(jnp.finfo(dtype).tiny))
    kept = _kept(jax.lax.stop_gradient(scaled), top_k, top_p, min_p) & ~jnp.isneginf(scaled)
    exponentials = jnp.where(kept, jnp.exp(jnp.where(kept, scaled, 0)), 0)
    total = jnp.sum(exponentials, axis=-1, keepdims=True)
    log_total = jnp.log(jnp.where(total == 0, 1, total))
    no_number = jnp.isnan(highest) | jnp.isposinf(highest)
    return jnp.where(no_number, jnp.nan, jnp.where(kept, scaled - log_total, -jnp.inf))


def emit(
    sampled: Int[Array, "*batch"],
    finished: Bool[Array, "*batch"],
    *,
    eos: int | Sequence[int],
    pad: int,
) -> Emitted:
    """Takes the drawn tokens of one step, and freezes the rows that have ended.

    The end token itself is still emitted; everything after it is padding. Whether a row has
    ended is remembered, not read off its tokens, so that `pad` may equal `eos`.

    Args:
        sampled: Tokens drawn in this step, for all rows.
        finished: Which rows had ended before this step.
        eos: The token that ends a row, or several of which each does.
        pad: What a row that has ended is filled with.

    Returns:
        The tokens, which rows have ended now, and which rows this step counts for.

    Raises:
        ValueError: If `eos` or `pad` does not fit the dtype of `sampled`.
    """
    limits = jnp.iinfo(sampled.dtype)
    if not limits.min <= pad <= limits.max:
        raise ValueError(f"pad must fit the dtype of sampled, got pad={pad} for {sampled.dtype}.")
    ends = tuple(eos) if isinstance(eos, Sequence) else (eos,)
    if not all(limits.min <= end <= limits.max for end in ends):
        raise ValueError(f"eos must fit the dtype of sampled, got eos={eos} for {sampled.dtype}.")
    tokens = jnp.where(finished, jnp.asarray(pad, sampled.dtype), sampled)
    is_end = jnp.isin(sampled, jnp.asarray(ends, sampled.dtype))
    return Emitted(tokens, finished | is_end, ~finished)


def length_normalised(
    log_probability_sum: Float[Array, "*batch"],
    lengths: Int[Array, "*batch"],
    *,
    alpha: float,
    form: Literal["power", "gnmt"] = "power",
) -> Float[Array, "*batch"]:
    """Scores hypotheses of different lengths for comparison.

    "power" is `sum / length^alpha`, for alpha = 1 the mean; "gnmt" is
    `sum / ((5 + length) / 6)^alpha`. The score is for comparing alone: what is carried on
    from step to step is the sum.

    Args:
        log_probability_sum: Sum of the log-probabilities of a hypothesis.
        lengths: Its generated tokens, at least 1: the end token counts, the prompt does not.
        alpha: Strength; 0 compares the sums.
        form: Which of the two.

    Raises:
        ValueError: If `alpha` is not finite or `form` is unknown.
    """
    if not math.isfinite(alpha):
        raise ValueError(f"alpha must be finite, got alpha={alpha}.")
    dtype = statistics_dtype(log_probability_sum)
    tokens = lengths.astype(dtype)
    if form == "gnmt":
        tokens = (5 + tokens) / 6
    elif form != "power":
        raise ValueError(f"Unknown form {form!r}; use 'power' or 'gnmt'.")
    score = log_probability_sum.astype(dtype) / tokens**alpha
    return score.astype(log_probability_sum.dtype)


def _kept(
    scaled: Array, top_k: int | None, top_p: float | None, min_p: float | None
) -> Bool[Array, "*batch V"]:
    """Says which tokens pass all filters; `scaled` is at most 0, and 0 at its greatest.

    Each filter keeps a beginning of the sorted tokens, so together they keep the shortest.
    """
    V = scaled.shape[-1]
    k = V if top_k is None else min(top_k, V)
    top_p = None if top_p == 1 else top_p
    if k == V and top_p is None and not min_p:
        return jnp.full(scaled.shape, True)
    if k < V:
        ordered = jax.lax.top_k(scaled, k)[0]
    else:
        ordered = jnp.sort(scaled, axis=-1, descending=True)
    rounding = ROUNDINGS * float(jnp.finfo(scaled.dtype).eps)
    survivors = jnp.full((*scaled.shape[:-1], 1), k)
    if top_p is not None:
        sums = jnp.cumsum(jnp.exp(ordered), axis=-1)
        reached = top_p * (1 - rounding) * sums[..., -1:]
        needed = 1 + jnp.sum(sums[..., :-1] < reached, axis=-1, keepdims=True)
        survivors = jnp.minimum(survivors, needed)
    if min_p:
        near = jnp.sum(ordered >= math.log(min_p) - rounding, axis=-1, keepdims=True)
        survivors = jnp.minimum(survivors, jnp.maximum(near, 1))
    last = jnp.take_along_axis(ordered, survivors - 1, axis=-1)
    above = scaled > last
    ties = scaled == last
    places = survivors - jnp.sum(above, axis=-1, keepdims=True)
    return above | (ties & (jnp.cumsum(ties, axis=-1) <= places))


def _check(temperature: float, top_k: int | None, top_p: float | None, min_p: float | None) -> None:
    if not (temperature >= 0 and math.isfinite(temperature)):
        raise ValueError(
            f"temperature must be finite and at least 0, got temperature={temperature}; "
            "0 is greedy."
        )
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got top_k={top_k}; None keeps all tokens.")
    for name, value in {"top_p": top_p, "min_p": min_p}.items():
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{name} must lie in [0, 1], got {name}={value}; None means none.")
