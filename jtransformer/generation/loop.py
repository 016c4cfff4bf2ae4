"""Sampling as a compiled loop, whose state is a value.

A row is frozen when it has ended: its tokens, its length and its log-probabilities stand still,
whatever the others of its batch still do. A draw belongs to (key, number of the row, step), so
it depends neither on the size of the batch nor on what else is in it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jtransformer import functional as F
from jtransformer.functional.sampling import NO_TOKEN
from jtransformer.generation.decoding import following, prefill
from jtransformer.generation.inputs import Prompt
from jtransformer.generation.settings import Sampling
from jtransformer.modules import ONE_DEVICE, Placement
from jtransformer.modules.layers import at_least_float32
from jtransformer.spec import ModelSpec


class Plan(NamedTuple):
    """What is fixed before a program is compiled; hashable.

    Attributes:
        model: The model.
        limit: Most tokens that are added to a row.
        sampling: How each is chosen.
        eos: The tokens that end a row.
        never: Tokens that are not chosen.
        pad: What a row is filled with behind its end.
        logits: Whether the logits of every step are kept.
        placement: Where activations lie.
    """

    model: ModelSpec
    limit: int
    sampling: Sampling
    eos: tuple[int, ...]
    never: tuple[int, ...]
    pad: int
    logits: bool
    placement: Placement = ONE_DEVICE


class State(NamedTuple):
    """All that a step changes.

    Attributes:
        step: Tokens chosen so far, by every row that had not ended.
        cache: Keys and values of all tokens but the newest.
        newest: The token that was chosen last.
        finished: Which rows have ended.
        lengths: Tokens of each row, its end token included.
        tokens: The tokens, `pad` where there are none.
        log_probabilities: Of the tokens, by the model itself: no option of sampling acts on
            them; 0 where there are none.
        logits: Scores that each token was chosen from, if kept; 0 where there are none.
    """

    step: Int[Array, ""]
    cache: Any
    newest: Int[Array, " B"]
    finished: Bool[Array, " B"]
    lengths: Int[Array, " B"]
    tokens: Int[Array, "B limit"]
    log_probabilities: Float[Array, "B limit"]
    logits: Float[Array, "B limit V"] | None


def begin(plan: Plan, variables: Any, prompt: Prompt, keys: PRNGKeyArray | None) -> State:
    """Reads the prompts and chooses the first token of every row.

    Args:
        plan: What is fixed.
        variables: Parameters of the model.
        prompt: The prompts.
        keys: A key for every row; None at temperature 0.
    """
    logits_BV, cache = prefill(
        plan.model, variables, prompt, limit=plan.limit, placement=plan.placement
    )
    B, V = logits_BV.shape
    raised = at_least_float32(logits_BV.dtype)
    state = State(
        step=jnp.zeros((), jnp.int32),
        cache=cache,
        newest=jnp.zeros(B, jnp.int32),
        finished=jnp.zeros(B, bool),
        lengths=jnp.zeros(B, jnp.int32),
        tokens=jnp.full((B, plan.limit), plan.pad, jnp.int32),
        log_probabilities=jnp.zeros((B, plan.limit), raised),
        logits=jnp.zeros((B, plan.limit, V), logits_BV.dtype) if plan.logits else None,
    )
    return _chosen(plan, state, logits_BV, keys)


def advance(
    plan: Plan, variables: Any, state: State, keys: PRNGKeyArray | None, until: Int[Array, ""] | int
) -> State:
    """Chooses tokens until so many are chosen, or every row has ended."""

    def goes_on(state: State) -> Array:
        return (state.step < until) & ~jnp.all(state.finished)

    def step(state: State) -> State:
        # No row with an end is read again, so that what this stores for it does not matter.
        logits_BV, cache = following(
            plan.model, variables, state.newest, state.cache, placement=plan.placement
        )
        return _chosen(plan, state._replace(cache=cache), logits_BV, keys)

    return jax.lax.while_loop(goes_on, step, state)


def _chosen(
    plan: Plan, state: State, logits_BV: Float[Array, "B V"], keys: PRNGKeyArray | None
) -> State:
    """Chooses one token per row and writes it down."""
    all_BV = F.sampling_log_probabilities(logits_BV)
    logits_BV = logits_BV.at[:, jnp.asarray(plan.never, jnp.int32)].set(-jnp.inf)
    drawn = _drawn(plan.sampling, logits_BV, keys, state.step)
    tokens, finished, counted = F.emit(drawn, state.finished, eos=plan.eos, pad=plan.pad)
    own = jnp.maximum(drawn, 0)
    log_probability = jnp.take_along_axis(all_BV, own[:, None], axis=1)[:, 0]

    def written(buffer: Array, values: Array) -> Array:
        values = values.astype(buffer.dtype)[:, None]
        return jax.lax.dynamic_update_slice_in_dim(buffer, values, state.step, axis=1)

    logits = state.logits
    if logits is not None:
        logits = written(logits, jnp.where(counted[:, None], logits_BV, 0))
    return State(
        step=state.step + 1,
        cache=state.cache,
        newest=own,
        # A row whose logits are no numbers ends too; the caller is told.
        finished=finished | (drawn == NO_TOKEN),
        lengths=state.lengths + counted.astype(jnp.int32),
        tokens=written(state.tokens, tokens),
        log_probabilities=written(state.log_probabilities, jnp.where(counted, log_probability, 0)),
        logits=logits,
    )


def _drawn(
    sampling: Sampling,
    logits_BV: Float[Array, "B V"],
    keys: PRNGKeyArray | None,
    step: Int[Array, ""],
) -> Int[Array, " B"]:
    if keys is None:
        return F.sample(None, logits_BV, temperature=sampling.temperature)

    def draw(key: PRNGKeyArray, logits_V: Float[Array, " V"]) -> Int[Array, ""]:
        return F.sample(
            jax.random.fold_in(key, step),
            logits_V,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
        )

    return jax.vmap(draw)(keys, logits_BV)
