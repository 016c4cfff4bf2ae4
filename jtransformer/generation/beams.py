"""Beam search as one compiled loop.

In every step the continuations of all beams compete by their summed log-probabilities. Of the W
best, those that end are hypotheses; the W best that do not end are the next beams. Hypotheses
compete by their length-normalised score, the best are kept, and a row stops when none of its
beams can still do better: its score is at best its present sum over the greatest length (over
the next length, for a negative alpha). So width 1 with alpha 0 is greedy, and a width beyond the
number of all continuations is exhaustive. What is cut off by the limit is returned where a row
has fewer hypotheses than are asked for, behind them.

Sources: length normalisation, Wu et al. 2016, sec. 7, https://arxiv.org/abs/1609.08144; when to
stop, Huang et al. 2017, sec. 3, https://aclanthology.org/D17-1227.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from jtransformer import functional as F
from jtransformer.generation.decoding import following, prefill
from jtransformer.generation.inputs import Given, Prompt, check_limit, checked_eos, checked_prompt
from jtransformer.generation.settings import BeamSearch
from jtransformer.modules.layers import at_least_float32
from jtransformer.spec import ModelSpec

MOST_LOG_PENALTY = 64.0
"""Natural logarithm of the greatest penalty: float32 ends at 88, and sums are multiplied by it."""


class Beams(NamedTuple):
    """The best continuations of every prompt, best first.

    Attributes:
        tokens: What was added; the end token, then padding.
        lengths: Tokens added, the end token included; 0 where there are no more continuations.
        sums: Their summed log-probabilities.
        scores: The sums, normalised by length.
        finished: Which end with the end token; the others were cut off by the limit.
        steps: Calls of the model.
    """

    tokens: Int[Array, "B best limit"]
    lengths: Int[Array, "B best"]
    sums: Float[Array, "B best"]
    scores: Float[Array, "B best"]
    finished: Bool[Array, "B best"]
    steps: Int[Array, ""]


class Plan(NamedTuple):
    """What is fixed before a program is compiled; hashable."""

    model: ModelSpec
    limit: int
    search: BeamSearch
    eos: tuple[int, ...]
    never: tuple[int, ...]
    pad: int

    def score(self, sums: Array, lengths: Array) -> Array:
        """Normalises sums of log-probabilities by length."""
        return F.length_normalised(sums, lengths, alpha=self.search.alpha, form=self.search.form)


class Hypotheses(NamedTuple):
    """Continuations, whether they have ended or not; a score of -inf is none."""

    tokens: Int[Array, "B n limit"]
    lengths: Int[Array, "B n"]
    sums: Float[Array, "B n"]
    scores: Float[Array, "B n"]
    finished: Bool[Array, "B n"]


class State(NamedTuple):
    """All that a step changes.

    Attributes:
        step: Tokens of each beam.
        cache: Keys and values of B W rows, of the beams before the last choice.
        parents: Which of those beams each beam continues.
        newest: Last token of each beam.
        tokens: All its tokens.
        sums: Its summed log-probabilities; -inf is no beam.
        ended: The best hypotheses so far.
        done: Which rows of the batch have stopped.
    """

    step: Int[Array, ""]
    cache: Any
    parents: Int[Array, "B W"]
    newest: Int[Array, "B W"]
    tokens: Int[Array, "B W limit"]
    sums: Float[Array, "B W"]
    ended: Hypotheses
    done: Bool[Array, " B"]


def beam_search(
    model: ModelSpec,
    variables: Any,
    prompt: ArrayLike,
    *,
    limit: int,
    eos: int | tuple[int, ...] | None,
    search: BeamSearch,
    never: tuple[int, ...] = (),
    pad: int = 0,
    valid: ArrayLike | None = None,
    source: ArrayLike | None = None,
    source_valid: ArrayLike | None = None,
) -> Beams:
    """Finds the most probable continuations of every prompt.

    Args:
        model: The model.
        variables: Its parameters.
        prompt: Token ids [B, T], at least one per row; all of them are the prefix of a prefix
            decoder. With an encoder, the beginning of the target.
        limit: Most tokens that are added.
        eos: The token that ends a continuation, or several of which each does; None is none:
            all have `limit` tokens.
        search: Width, number and scores of the continuations.
        never: Tokens that are not chosen.
        pad: What a continuation is filled with behind its end.
        valid: False at padding, on whichever side; None is no padding.
        source: Token ids [B, S] for the encoder.
        source_valid: False at the padding of the source; None is no padding.

    Raises:
        ValueError: If the model cannot continue the prompt, its logits are no numbers, or the
            length penalty of `limit` tokens is none.
    """
    check_limit(limit)
    ends = checked_eos(eos, never, model)
    _check_penalty(search, limit)
    given = checked_prompt(model, Given(prompt, valid, source, source_valid), limit=limit)
    found, wrong_B = _searched(Plan(model, limit, search, ends, never, pad), variables, given)
    wrong = np.flatnonzero(np.array(wrong_B))
    if wrong.size:
        raise ValueError(
            f"The model gives no token in rows {wrong.tolist()}: its logits are NaN or infinite; "
            "use parameters from before the run diverged."
        )
    return found


def _check_penalty(search: BeamSearch, limit: int) -> None:
    """Refuses a penalty by which all scores would be 0, or infinite."""
    longest = limit if search.form == "power" else (5 + limit) / 6
    if abs(search.alpha) * math.log(longest) > MOST_LOG_PENALTY:
        raise ValueError(
            f"The length penalty must be a number of float32, got alpha={search.alpha}, "
            f"form={search.form!r}, limit={limit}; use an alpha nearer to 0."
        )


@functools.partial(jax.jit, static_argnums=0)
def _searched(plan: Plan, variables: Any, prompt: Prompt) -> tuple[Beams, Bool[Array, " B"]]:
    """Searches; says for every row too whether it met logits that are no numbers."""
    W = plan.search.width

    def goes_on(state: State) -> Array:
        return (state.step < plan.limit) & ~jnp.all(state.done)

    def step(state: State) -> State:
        B = state.done.shape[0]
        first_of_row = jnp.arange(B, dtype=jnp.int32)[:, None] * W
        cache = state.cache.rows((first_of_row + state.parents).reshape(-1))
        logits, cache = following(plan.model, variables, state.newest.reshape(-1), cache)
        return _chosen(plan, state._replace(cache=cache), logits.reshape(B, W, -1))

    state = jax.lax.while_loop(goes_on, step, _begun(plan, variables, prompt))
    lengths = jnp.full(state.sums.shape, state.step)
    cut = Hypotheses(
        tokens=state.tokens,
        lengths=lengths,
        sums=state.sums,
        scores=plan.score(state.sums, lengths),
        finished=jnp.zeros(state.sums.shape, bool),
    )
    # A row that stopped early has all it is asked for: what it follows is no hypothesis.
    both = _joined(state.ended, cut)
    order = jnp.lexsort((-both.scores, ~both.finished), axis=-1)[:, : plan.search.best]
    best = _picked(both, order)
    exists = best.scores > -jnp.inf
    beams = Beams(
        tokens=jnp.where(exists[..., None], best.tokens, plan.pad),
        lengths=jnp.where(exists, best.lengths, 0),
        sums=best.sums,
        scores=best.scores,
        finished=best.finished,
        steps=state.step,
    )
    return beams, jnp.isnan(state.sums).any(axis=1)


def _begun(plan: Plan, variables: Any, prompt: Prompt) -> State:
    """Reads every prompt once and chooses the first tokens of its beams."""
    logits_BV, cache = prefill(plan.model, variables, prompt, limit=plan.limit)
    B, W = logits_BV.shape[0], plan.search.width
    sums = jnp.full((B, W), -jnp.inf, at_least_float32(logits_BV.dtype))
    none = jnp.full((B, plan.search.best), -jnp.inf, sums.dtype)
    state = State(
        step=jnp.zeros((), jnp.int32),
        cache=cache.rows(jnp.repeat(jnp.arange(B, dtype=jnp.int32), W)),
        parents=jnp.zeros((B, W), jnp.int32),
        newest=jnp.zeros((B, W), jnp.int32),
        tokens=jnp.full((B, W, plan.limit), plan.pad, jnp.int32),
        # All beams are the prompt as yet: one of them is enough.
        sums=sums.at[:, 0].set(0),
        ended=Hypotheses(
            tokens=jnp.full((*none.shape, plan.limit), plan.pad, jnp.int32),
            lengths=jnp.zeros(none.shape, jnp.int32),
            sums=none,
            scores=none,
            finished=jnp.zeros(none.shape, bool),
        ),
        done=jnp.zeros(B, bool),
    )
    return _chosen(plan, state, jnp.broadcast_to(logits_BV[:, None], (B, W, logits_BV.shape[1])))


def _chosen(plan: Plan, state: State, logits_BWV: Float[Array, "B W V"]) -> State:
    """Continues every beam by one token, and keeps the best."""
    W, V = logits_BWV.shape[1:]
    step = state.step + 1
    sums_BWV = state.sums[..., None] + F.sampling_log_probabilities(logits_BWV)
    sums_BWV = sums_BWV.at[..., jnp.asarray(plan.never, jnp.int32)].set(-jnp.inf)
    # Each beam ends in so many ways at most, so that of these enough go on.
    candidates = W * min(1 + len(plan.eos), V)
    sums, which = jax.lax.top_k(sums_BWV.reshape(*sums_BWV.shape[:1], W * V), candidates)
    parents, newest = which // V, which % V
    tokens = jnp.take_along_axis(state.tokens, parents[..., None], axis=1)
    tokens = jax.lax.dynamic_update_slice_in_dim(tokens, newest[..., None], state.step, axis=2)
    ends = jnp.isin(newest, jnp.asarray(plan.eos, newest.dtype))
    lengths = jnp.full(sums.shape, step)
    among_best = (jnp.arange(candidates) < W)[None]
    offered = Hypotheses(
        tokens=tokens,
        lengths=lengths,
        sums=sums,
        scores=jnp.where(ends & among_best, plan.score(sums, lengths), -jnp.inf),
        finished=ends & among_best & (sums > -jnp.inf),
    )
    both = _joined(state.ended, offered)
    better = _picked(both, jax.lax.top_k(both.scores, plan.search.best)[1])
    ended = jax.tree.map(
        lambda old, new: jnp.where(state.done.reshape(-1, *[1] * (old.ndim - 1)), old, new),
        state.ended,
        better,
    )
    sums, on = jax.lax.top_k(jnp.where(ends, -jnp.inf, sums), W)
    best_length = plan.limit if plan.search.alpha >= 0 else jnp.minimum(step + 1, plan.limit)
    bound_B = plan.score(sums[:, 0], jnp.full(sums.shape[:1], best_length, jnp.int32))
    return State(
        step=step,
        cache=state.cache,
        parents=jnp.take_along_axis(parents, on, axis=1),
        newest=jnp.take_along_axis(newest, on, axis=1),
        tokens=jnp.take_along_axis(tokens, on[..., None], axis=1),
        sums=sums,
        ended=ended,
        done=state.done | (ended.scores[:, -1] >= bound_B),
    )


def _joined(a: Hypotheses, b: Hypotheses) -> Hypotheses:
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y], axis=1), a, b)


def _picked(hypotheses: Hypotheses, which: Int[Array, "B n"]) -> Hypotheses:
    return jax.tree.map(
        lambda x: jnp.take_along_axis(x, which.reshape(*which.shape, *[1] * (x.ndim - 2)), axis=1),
        hypotheses,
    )
