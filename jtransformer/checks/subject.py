"""What is judged: a model as functions of arrays, and what is known about it."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.checks.compiling import quickly
from jtransformer.checks.mixtures import mixed
from jtransformer.checks.parts import Parts
from jtransformer.checks.tolerance import Rounding

Call = Callable[..., Any]


class Decoding(NamedTuple):
    """Decoding with a cache, for as many rows as it is started for.

    Attributes:
        start: `(rows, capacity) -> cache`.
        step: `(cache, tokens) -> (logits, cache)`, for any number of tokens; or, where it is
            ragged, `(cache, tokens, valid)`, which stores what is valid alone.
        first: The same for the first call; None is `step`.
        ragged: Whether the calls take `valid`.
        most: Tokens that a call takes at most; None is any number.
    """

    start: Call
    step: Call
    first: Call | None = None
    ragged: bool = False
    most: int | None = None


class Source(NamedTuple):
    """The source that another stack reads, for a fixed target.

    Attributes:
        apply: `source -> logits`.
        length: Tokens of the source.
        vocabulary: Number of its token ids.
        with_valid: `(source, valid) -> logits`.
        with_embeddings: `(parameters, rows) -> logits`, rows `B S D`.
    """

    apply: Call
    length: int
    vocabulary: int
    with_valid: Call | None = None
    with_embeddings: Call | None = None


class NormPart(NamedTuple):
    """A norm of the model, with what defines it.

    Attributes:
        apply: `x -> y`, over the last axis.
        kind: Its definition.
        width: Width of its input.
        epsilon: What is added under the root.
        scale: Its scale, by which the result is multiplied; None is 1.
        bias: What is added to it; None is 0.
    """

    apply: Call
    kind: Literal["layer_norm", "rms_norm"]
    width: int
    epsilon: float
    scale: Any = None
    bias: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """A model; see `jtransformer.checks.run_all` for its fields."""

    apply: Call
    vocabulary: int
    length: int
    causal: bool
    rows: int
    seed: int
    rounding: Rounding
    reach: np.ndarray
    prefix: int = 0
    # Further ways to call it.
    with_valid: Call | None = None
    with_segments: Call | None = None
    with_prefix: Call | None = None
    prefix_reach: Call | None = None
    with_positions: Call | None = None
    positions: Literal["none", "relative", "absolute"] | None = None
    source: Source | None = None
    decoding: Mapping[str, Decoding] | None = None
    again: Call | None = None
    # Its losses.
    initial: Call | None = None
    loss: Call | None = None
    loss_shift: int = 1
    scored: np.ndarray | None = None
    examples: tuple[Any, Any, Any] | None = None
    # Its parameters.
    parameters: Any = None
    model: Call | None = None
    without_gradient: Mapping[str, str] = dataclasses.field(default_factory=dict)
    expected_shapes: Mapping[str, tuple[int, ...]] | None = None
    counts_by_heads: Mapping[int, int] | None = None
    permute_heads: Call | None = None
    heads: int | None = None
    double: Call | None = None
    lookup: Call | None = None
    with_embeddings: Call | None = None
    tied_table: Call | None = None
    save_and_restore: Call | None = None
    init: Call | None = None
    # Its parts.
    width: int | None = None
    readout: Call | None = None
    norm: NormPart | None = None
    parts: Parts | None = None

    def generator(self, salt: int) -> np.random.Generator:
        """Returns the random numbers of one law."""
        return np.random.default_rng([self.seed, salt])

    def tokens(self, salt: int = 0, rows: int | None = None) -> np.ndarray:
        """Draws rows of tokens, `B T`."""
        shape = (self.rows if rows is None else rows, self.length)
        return self.generator(salt).integers(self.vocabulary, size=shape).astype(np.int32)

    def logits(self, tokens: np.ndarray) -> np.ndarray:
        """Returns the logits of tokens.

        Raises:
            ValueError: If `apply` returns something else.
        """
        found = self.apply(jnp.asarray(tokens))
        shape = getattr(found, "shape", None)
        if shape is None or len(shape) != 3 or shape[:2] != tokens.shape:
            got = type(found).__name__ if shape is None else f"shape {tuple(shape)}"
            B, T = tokens.shape
            raise ValueError(
                f"apply must return logits of shape ({B}, {T}, vocabulary) for tokens of shape "
                f"({B}, {T}), got {got}; return the array alone, one row of scores per token."
            )
        return on_host(found)

    @functools.cached_property
    def slopes(self) -> Call:
        """`(weights, parameters, tokens) -> gradient` of what `model` returns; one program."""
        assert self.model is not None
        return quickly(jax.grad(mixed(self.model), argnums=1))


def on_host(x: Any) -> np.ndarray:
    """Returns an array in host memory; bfloat16 as float32, which has all its numbers."""
    array = np.asarray(jax.device_get(x))
    return array if array.dtype.kind == "f" else array.astype(np.float32)


def other_tokens(tokens: np.ndarray, where: Any, vocabulary: int, by: int = 1) -> np.ndarray:
    """Returns tokens, others in the place of some.

    Args:
        tokens: Tokens, `B T`.
        where: Which are replaced; what indexes an array.
        vocabulary: Number of ids.
        by: How far on the new ones are.
    """
    changed = np.array(tokens)
    step = 1 + (by - 1) % (vocabulary - 1)
    changed[where] = (changed[where] + step) % vocabulary
    return changed


def stacked(masks: Any) -> np.ndarray:
    """Returns what the last of several layers can know of: which inputs reach which outputs.

    A layer hands on what it has read and, by its residual path, what was there.

    Args:
        masks: What each layer lets a position see, bool `T T`, the first layer first.

    Returns:
        True at (i, j) where input j can reach output i.
    """
    reach = np.eye(len(masks[0]), dtype=bool)
    for mask in masks:
        step = np.asarray(mask, bool) | np.eye(len(reach), dtype=bool)
        reach = (step.astype(int) @ reach.astype(int)) > 0
    return reach
