"""Continues prompts by sampling: all at once, or as the tokens come.

One compiled program reads the prompts and makes every further token; it is compiled once for a
`Generator`, the shapes of its prompts, and whether `valid` is given. Prompts of many lengths
share one if they are padded to one length, which changes nothing else.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import ArrayLike

from jtransformer.functional.sampling import NO_TOKEN
from jtransformer.generation.inputs import (
    Given,
    Prompt,
    check_limit,
    checked_eos,
    checked_prompt,
    checked_rows,
)
from jtransformer.generation.loop import Plan, State, advance, begin
from jtransformer.generation.settings import GREEDY, Sampling
from jtransformer.spec import ModelSpec

AT_ONCE = 16
"""Tokens that a stream makes in one call of its program."""


class Generated(NamedTuple):
    """Continuations of a batch of prompts.

    Attributes:
        tokens: What was added; the end token, then padding where a row ended.
        lengths: Tokens added to each row, its end token included.
        log_probabilities: Of the added tokens, by the model itself: no option of sampling acts
            on them; 0 at padding.
        logits: What each token was chosen from, if asked for; 0 at padding.
        finished: Which rows ended with the end token.
        steps: Calls of the model, which is the greatest of the lengths.
    """

    tokens: Int[Array, "B limit"]
    lengths: Int[Array, " B"]
    log_probabilities: Float[Array, "B limit"]
    logits: Float[Array, "B limit V"] | None
    finished: Bool[Array, " B"]
    steps: Int[Array, ""]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generator:
    """Continues prompts; what it compiles serves every further call and every equal generator.

    Attributes:
        model: The model.
        limit: Most tokens that are added to a row.
        sampling: How each is chosen.
        eos: The token that ends a row, or several of which each does; None is none: every row
            gets `limit` tokens.
        never: Tokens that are not chosen.
        pad: What a row is filled with behind its end; it may be any number.
        logits: Whether the logits of every step are returned.
    """

    model: ModelSpec
    limit: int
    sampling: Sampling = GREEDY
    eos: int | tuple[int, ...] | None = None
    never: tuple[int, ...] = ()
    pad: int = 0
    logits: bool = False

    def __post_init__(self):
        check_limit(self.limit)
        checked_eos(self.eos, self.never, self.model)

    def __call__(
        self,
        variables: Any,
        prompt: ArrayLike,
        *,
        valid: ArrayLike | None = None,
        source: ArrayLike | None = None,
        source_valid: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
        rows: ArrayLike | None = None,
    ) -> Generated:
        """Continues every row until it ends or has `limit` tokens more.

        Args:
            variables: Parameters of the model.
            prompt: Token ids [B, T], at least one per row; all of them are the prefix of a
                prefix decoder. With an encoder, the beginning of the target.
            valid: False at padding, on whichever side; None is no padding.
            source: Token ids [B, S] for the encoder.
            source_valid: False at the padding of the source; None is no padding.
            key: Random key; not needed at temperature 0.
            rows: A number for every row, 0, 1, 2 … where not given. A row with the same number
                and key draws the same, in whichever batch it is.

        Raises:
            ValueError: If the model cannot continue the prompt, the key is missing, or the
                model's logits are no numbers.
        """
        given = _Asked.read(self, Given(prompt, valid, source, source_valid), key, rows)
        state = _generated(self._plan, variables, given.prompt, given.keys)
        _check_numbers(state)
        return _result(state)

    def stream(
        self,
        variables: Any,
        prompt: ArrayLike,
        *,
        valid: ArrayLike | None = None,
        source: ArrayLike | None = None,
        source_valid: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
        rows: ArrayLike | None = None,
    ) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields the same tokens as a call, as they come: the first, then up to 16 at a time.

        Args:
            variables: As for a call; so are all the others.
            prompt: As for a call.
            valid: As for a call.
            source: As for a call.
            source_valid: As for a call.
            key: As for a call.
            rows: As for a call.

        Returns:
            For every row the tokens that are new, its end token included; none once it ended.

        Raises:
            ValueError: As for a call; what is wrong with the prompt, before the first token.
        """
        given = _Asked.read(self, Given(prompt, valid, source, source_valid), key, rows)
        return self._pieces(variables, given)

    @property
    def _plan(self) -> Plan:
        ends = checked_eos(self.eos, self.never, self.model)
        return Plan(self.model, self.limit, self.sampling, ends, self.never, self.pad, self.logits)

    def _pieces(self, variables: Any, given: "_Asked") -> Iterator[tuple[np.ndarray, ...]]:
        plan = self._plan._replace(logits=False)
        state = _begun(plan, variables, given.prompt, given.keys)
        told_B = np.zeros(given.prompt.tokens.shape[0], np.int32)
        while True:
            _check_numbers(state)
            # Copies, because the next call writes into the buffers of this state.
            tokens, lengths = np.array(state.tokens), np.array(state.lengths)
            step, ended = int(state.step), bool(np.all(np.array(state.finished)))
            yield tuple(
                row[told:length] for row, told, length in zip(tokens, told_B, lengths, strict=True)
            )
            if ended or step >= self.limit:
                return
            told_B = lengths
            until = np.int32(min(step + AT_ONCE, self.limit))
            state = _advanced(plan, variables, state, given.keys, until)


class _Asked(NamedTuple):
    """What a call was given, checked."""

    prompt: Prompt
    keys: PRNGKeyArray | None

    @classmethod
    def read(
        cls,
        generator: Generator,
        prompt: Given,
        key: PRNGKeyArray | None,
        rows: ArrayLike | None,
    ) -> "_Asked":
        checked = checked_prompt(generator.model, prompt, limit=generator.limit)
        numbers = checked_rows(rows, checked.tokens.shape[0])
        if generator.sampling.temperature == 0:
            return cls(checked, None)
        if key is None:
            raise ValueError(
                "Sampling needs a key, got key=None, temperature="
                f"{generator.sampling.temperature}; give jax.random.key(seed) or use GREEDY."
            )
        typed: Any = key
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            typed = jax.random.wrap_key_data(key)
        return cls(checked, jax.vmap(jax.random.fold_in, (None, 0))(typed, numbers))


@functools.partial(jax.jit, static_argnums=0)
def _generated(plan: Plan, variables: Any, prompt: Prompt, keys: PRNGKeyArray | None) -> State:
    state = begin(plan, variables, prompt, keys)
    return advance(plan, variables, state, keys, plan.limit)._replace(cache=None)


_begun = jax.jit(begin, static_argnums=0)
_advanced = jax.jit(advance, static_argnums=0, donate_argnums=2)


def _check_numbers(state: State) -> None:
    """Refuses to return what was chosen from logits that are no numbers."""
    tokens, lengths = np.array(state.tokens), np.array(state.lengths)
    last_B = tokens[np.arange(len(lengths)), lengths - 1]
    wrong = np.flatnonzero(last_B == NO_TOKEN)
    if wrong.size:
        raise ValueError(
            f"The model gives no token in rows {wrong.tolist()} at steps "
            f"{(lengths[wrong] - 1).tolist()}: its logits are NaN or infinite; use parameters "
            "from before the run diverged."
        )


def _result(state: State) -> Generated:
    return Generated(
        tokens=state.tokens,
        lengths=state.lengths,
        log_probabilities=state.log_probabilities,
        logits=state.logits,
        finished=state.finished,
        steps=state.step,
    )
