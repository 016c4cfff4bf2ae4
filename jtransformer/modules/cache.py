"""What decoding keeps of the tokens so far, for all layers of a model.

Each row of the batch counts its own tokens, so that prompts of different lengths need no common
counter and padding is never stored. Nothing is overwritten or cut off silently. What does not
fit is refused by a ValueError where the lengths are known (outside a traced function); inside
one, the row is left as it is, marked, and takes nothing more. `DecodingCache.check` turns a mark
into an error.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int

from jtransformer import functional as F
from jtransformer.modules.context import LayerCache

OVERFLOW = (
    "A row takes no tokens beyond the capacity of its cache, and none after some were refused; "
    "make a larger cache"
)
MISUSE = (
    "The first call with a cache is given what the model starts from (a source, or the length of "
    "a prefix that the call holds whole), and later ones are not; start from an empty cache"
)


class Step(NamedTuple):
    """The tokens of one call.

    Attributes:
        positions: Where they stand; padding has the position of the token before it.
        stored: Which are stored: real ones, of rows that can take all of theirs.
        cache: The cache whose counters are those after the call, and whose layers are not.
    """

    positions: Int[Array, "B T"]
    stored: Bool[Array, "B T"]
    cache: "DecodingCache"


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "layers",
        "length",
        "overflowed",
        "misused",
        "prefix_length",
        "source_valid",
        "has_source",
    ],
    meta_fields=["capacity", "stacked"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class DecodingCache:
    """Keys and values of every layer, and how many tokens each row has; see `empty_cache`.

    Attributes:
        layers: One cache per layer, or one of all layers stacked.
        length: Tokens of each row, which is the position of its next one.
        overflowed: Rows that were given more tokens than they can hold.
        misused: Rows whose first call lacked what the model starts from, or whose later calls
            had it.
        prefix_length: Length of each row's prefix, -1 before it is known; None in other models.
        source_valid: Which tokens of the source are real; None without an encoder.
        has_source: Rows whose source has been read; None likewise.
        capacity: Tokens that a row can hold.
        stacked: Whether layers are stacked, which puts the batch on their second axis.
    """

    layers: Any
    length: Int[Array, " B"]
    overflowed: Bool[Array, " B"]
    misused: Bool[Array, " B"]
    prefix_length: Int[Array, " B"] | None
    source_valid: Bool[Array, "B S"] | None
    has_source: Bool[Array, " B"] | None
    capacity: int
    stacked: bool

    @property
    def nbytes(self) -> int:
        """Bytes of what the layers keep of the tokens and of the memory."""
        layers = [self.layers] if self.stacked else self.layers
        return sum(_nbytes(layer) for layer in layers)

    def rows(self, indices: Int[Array, " rows"]) -> "DecodingCache":
        """Picks rows of the batch, in any order and any number of times, as a beam search does.

        Args:
            indices: Which row each row of the result is.
        """

        def picked(tree: Any, axis: int) -> Any:
            return jax.tree.map(lambda x: jnp.take(x, indices, axis=axis), tree)

        rest = picked(dataclasses.replace(self, layers=None), 0)
        return dataclasses.replace(rest, layers=picked(self.layers, 1 if self.stacked else 0))

    def check(self) -> None:
        """Raises where a row was refused; not for traced functions.

        Raises:
            ValueError: If a row is marked; the message names the rows.
        """
        _refuse(self.overflowed, OVERFLOW, length=self.length, capacity=self.capacity)
        _refuse(self.misused, MISUSE, length=self.length)

    def advance(
        self,
        T: int,
        *,
        valid: Bool[Array, "B T"] | None,
        source_valid: Bool[Array, "B S"] | None,
        prefix_length: Any,
    ) -> Step:
        """Counts the tokens of a call before the layers see them.

        Args:
            T: Tokens of each row, padding included.
            valid: Which are real; None is all.
            source_valid: Which tokens of the source are, if the call has one.
            prefix_length: Length of the prefix, if the call has one.

        Raises:
            ValueError: If it is known that a row overflows or that a call is out of order.
        """
        real = jnp.ones((*self.length.shape, T), bool) if valid is None else valid
        count = jnp.sum(real, axis=1, dtype=jnp.int32)
        misused = jnp.zeros_like(self.overflowed)
        prefix, kept_valid, has_source = self.prefix_length, self.source_valid, self.has_source
        if prefix is not None:
            has_prefix = prefix >= 0
            if prefix_length is None:
                misused = ~has_prefix & (count > 0)
            else:
                prefix = jnp.broadcast_to(jnp.asarray(prefix_length, jnp.int32), count.shape)
                misused = has_prefix | (prefix > count) | (prefix < 0)
        if has_source is not None:
            if source_valid is None:
                misused = ~has_source
            else:
                misused, kept_valid = has_source, source_valid
                has_source = jnp.ones_like(has_source)
        after = self.length + count
        overflows = after > self.capacity
        _refuse_known(misused, MISUSE, length=self.length, tokens=count)
        _refuse_known(overflows, OVERFLOW, length=self.length, tokens=count, capacity=self.capacity)
        misused, overflowed = self.misused | misused, self.overflowed | overflows
        takes = ~(misused | overflowed)
        numbers = jnp.maximum(jnp.cumsum(real, axis=1, dtype=jnp.int32) - 1, 0)
        counted = dataclasses.replace(
            self,
            length=jnp.where(takes, after, self.length),
            overflowed=overflowed,
            misused=misused,
            prefix_length=prefix,
            source_valid=kept_valid,
            has_source=has_source,
        )
        return Step(self.length[:, None] + numbers, real & takes[:, None], counted)


def _nbytes(layer: LayerCache) -> int:
    state = layer.state
    kept = (state.k, state.v) if isinstance(state, F.KVCache) else state
    arrays = [*kept, *(x for x in (layer.memory_k, layer.memory_v) if x is not None)]
    return sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in arrays)


def _refuse_known(refused: Array, rule: str, **values: Any) -> None:
    """Raises if a row is refused, where that is known already."""
    if not isinstance(refused, Tracer):
        _refuse(refused, rule, **values)


def _refuse(refused: Array, rule: str, **values: Any) -> None:
    which = np.flatnonzero(np.asarray(refused))
    if which.size:
        got = [
            f"{name}={value if isinstance(value, int) else np.asarray(value)[which].tolist()}"
            for name, value in values.items()
        ]
        raise ValueError(f"{rule}; got {', '.join(got)} in rows {which.tolist()}.")
