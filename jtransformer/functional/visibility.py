"""Visibility as a value: which key positions a query may look at, drawn only where needed.

A boolean mask of T queries and S keys holds T·S entries; what it is made of holds T + S. A
`Visibility` keeps the latter and passes through `jit`, `vmap` and `scan` like an array, so that
attention over blocks of queries draws one block of the mask at a time. `masks.visible` is its
drawing.

Sources: causal, Vaswani et al. 2017, sec. 3.2.3, https://arxiv.org/abs/1706.03762; prefix,
Raffel et al. 2019, sec. 3.2.1, https://arxiv.org/abs/1910.10683; sliding window, Beltagy et
al. 2020, sec. 3.1, https://arxiv.org/abs/2004.05150.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jtransformer.functional._arrays import require_integers
from jtransformer.functional._values import register_value

FARTHEST = 2**30
"""Positions lie below this, so that a sum of a position and a window stays in 32 bits."""


@dataclasses.dataclass(frozen=True, eq=False)
class Visibility:
    """Which keys each query may look at, from positions, segments and validity.

    All conditions that are given must hold at once.

    Attributes:
        query_positions: Token positions of the queries, counted from 0.
        key_positions: Token positions of the keys, on the same count.
        causal: Whether a query looks at its own and earlier positions only.
        window: Looks at positions nearer than this only (the query's own is at distance 0),
            before it and, where the future is visible, after it.
        prefix_length: Positions before this see each other and nothing after it; later ones
            see what causality lets them. One number, or one per batch row.
        query_segments: Document of each query; a query sees only keys of its own document.
        key_segments: Document of each key; given together with `query_segments`.
        key_valid: Which keys are real tokens and no padding.
        by_place: Whether queries and keys are the same tokens and their positions the places
            0, 1 … T - 1, so that a kernel knows before it runs who is earlier; `of_places` makes
            such a value.

    Raises:
        ValueError: If `window` is below 1, `prefix_length` is negative or is given without
            causality, only one of the segment arrays is given, `key_valid` is not boolean,
            positions or segments are not integers, or an array has no entry for each token.
    """

    query_positions: Int[Array, "#B T"]
    key_positions: Int[Array, "#B S"]
    _: dataclasses.KW_ONLY
    causal: bool = True
    window: int | None = None
    prefix_length: int | Int[Array, ""] | Int[Array, "#B"] | None = None
    query_segments: Int[Array, "#B T"] | None = None
    key_segments: Int[Array, "#B S"] | None = None
    key_valid: Bool[Array, "#B S"] | None = None
    by_place: bool = False

    @classmethod
    def of_places(
        cls,
        T: int,
        *,
        causal: bool = True,
        window: int | None = None,
        prefix_length: int | Int[Array, ""] | Int[Array, "#B"] | None = None,
        segments: Int[Array, "#B T"] | None = None,
        valid: Bool[Array, "#B T"] | None = None,
    ) -> "Visibility":
        """Returns what T tokens see of one another if their positions are their places.

        Who is earlier is then known when a program is compiled, which kernels need. Within a
        document the order of places is that of its positions, even if these begin at 0 in each.

        Args:
            T: Number of tokens.
            causal: As for the value, like the options that follow.
            window: See there.
            prefix_length: See there.
            segments: Document of each token.
            valid: Which tokens are real.
        """
        places = jnp.arange(T, dtype=jnp.int32)[None]
        return cls(
            places,
            places,
            causal=causal,
            window=window,
            prefix_length=prefix_length,
            query_segments=segments,
            key_segments=segments,
            key_valid=valid,
            by_place=True,
        )

    def __post_init__(self) -> None:
        length = self.prefix_length
        if length is not None and not self.causal:
            raise ValueError("prefix_length needs causal=True; without causality all is visible.")
        if isinstance(length, int | np.integer) and length < 0:
            raise ValueError(f"prefix_length must be at least 0, got {length}.")
        if self.window is not None and self.window < 1:
            raise ValueError(
                f"window must be at least 1, got window={self.window}; None means none."
            )
        if (self.query_segments is None) != (self.key_segments is None):
            raise ValueError("query_segments and key_segments must be given together.")
        if self.key_valid is not None:
            require_boolean(self.key_valid, "key_valid")
        self._check_axes("query_positions", "query_segments")
        self._check_axes("key_positions", "key_segments", "key_valid")

    def _check_axes(self, *names: str) -> None:
        """Refuses arrays without one entry for each token that the first has."""
        positions = getattr(self, names[0])
        for name in names:
            array = getattr(self, name)
            if array is None:
                continue
            if name != "key_valid":
                require_integers(array, name)
            if array.ndim != 2 or array.shape[1:] != positions.shape[1:]:
                raise ValueError(
                    f"{name} must have two axes, the batch (full or 1) and one entry per token, "
                    f"got {name}.shape={array.shape} for {names[0]}.shape={positions.shape}."
                )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape `B 1 T S` of the drawn mask."""
        arrays = [getattr(self, name) for name in ARRAYS]
        rows = [jnp.shape(array)[:1] for array in arrays if array is not None]
        (B,) = np.broadcast_shapes((1,), *(row for row in rows if row))
        return B, 1, self.query_positions.shape[1], self.key_positions.shape[1]

    def draw(self) -> Bool[Array, "B 1 T S"]:
        """Draws the mask: True where the query may look."""
        # Bytes would wrap around where a window is added to them.
        query_BTx = self.query_positions.astype(jnp.int32)[:, :, None]
        key_BxS = self.key_positions.astype(jnp.int32)[:, None, :]
        if self.causal:
            may_look = key_BxS <= query_BTx
        else:
            may_look = jnp.full(np.broadcast_shapes(query_BTx.shape, key_BxS.shape), True)
        if self.prefix_length is not None:
            length = jnp.asarray(self.prefix_length, jnp.int32)
            may_look = may_look | (key_BxS < length.reshape(-1, 1, 1))
        if self.window is not None:
            # Sums, because the difference of unsigned positions wraps around.
            window = min(self.window, FARTHEST)
            near = (query_BTx < key_BxS + window) & (key_BxS < query_BTx + window)
            may_look = may_look & near
        if self.query_segments is not None and self.key_segments is not None:
            same = self.query_segments[:, :, None] == self.key_segments[:, None, :]
            may_look = may_look & same
        if self.key_valid is not None:
            may_look = may_look & self.key_valid[:, None, :]
        return may_look[:, None]

    def of_queries(self, start: int | Int[Array, ""], T: int) -> "Visibility":
        """Returns the visibility of the T queries from `start` on; all keys stay."""
        rows = {
            name: jax.lax.dynamic_slice_in_dim(getattr(self, name), start, T, axis=1)
            for name in ("query_positions", "query_segments")
            if getattr(self, name) is not None
        }
        return dataclasses.replace(self, **rows, by_place=False)

    def part(self, queries: slice, keys: slice) -> "Visibility":
        """Returns the visibility of some of the keys to some of the queries."""
        cut = {"query": queries, "key": keys}
        parts = {
            name: array[:, cut[name.split("_")[0]]]
            for name in ARRAYS
            if name != "prefix_length" and (array := getattr(self, name)) is not None
        }
        return dataclasses.replace(self, **parts, by_place=False)


STATIC = ("causal", "window", "by_place")
ARRAYS = tuple(field.name for field in dataclasses.fields(Visibility) if field.name not in STATIC)

register_value(Visibility, leaves=ARRAYS, static=STATIC)


def require_boolean(mask: Array, name: str) -> None:
    """Refuses 0/1 arrays, which have two meanings in circulation.

    Raises:
        ValueError: If the dtype of `mask` is not bool.
    """
    if mask.dtype != jnp.bool_:
        raise ValueError(
            f"{name} must be boolean (True = may look), got dtype={mask.dtype}; write "
            f"`{name} != 0` if nonzero means visible."
        )
