"""The keys and values of the tokens so far, as a value.

Every row of the batch has its own length: the next token of row b is stored at the position
`length[b]`, so prompts of different lengths need no common counter, and padding on either side
of them is never stored. All sizes are static; a cache can be the carry of a loop, be donated
to a compiled step, be mapped, and be taken apart by `jax.tree.map` (a beam search picks rows).
Heads lie before tokens, as the products of attention need them: a step of decoding reads all
slots, and turning their axes round first took it three times as long (CPU, 16 rows of 143 slots).

A cache for sliding windows is a ring. With window W, appended to by at most C tokens at a
time, it has W + C - 1 slots and position p lies in slot `p mod (W + C - 1)`: while C tokens
are stored, the W - 1 before them that their queries still read are in place. (With W slots, as
in Jiang et al. 2023, sec. 2, https://arxiv.org/abs/2310.06825, the first of several new
queries would miss keys that the last of them has overwritten.)

Nothing is overwritten or cut off silently. What does not fit is refused by a ValueError where
the lengths are known (outside a traced function); inside one, the row is left as it is, marked,
and takes nothing more. `KVCache.check` turns a mark into an error.
"""

import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from jtransformer.functional._arrays import known, require_integers
from jtransformer.functional._cache_rows import (
    OVERFLOW,
    REWIND,
    can_rewind,
    check_tokens,
    fits,
    places,
    refuse,
)
from jtransformer.functional._values import register_value
from jtransformer.functional.visibility import FARTHEST


class KVRead(NamedTuple):
    """All slots of a cache, with what `visible` needs to know about them.

    Attributes:
        k: Keys; in a slot that is not valid, anything.
        v: Values; in a slot that is not valid, anything.
        positions: Position of the token in each slot; 0 in a slot that is not valid.
        valid: Whether a slot holds a token.
    """

    k: Float[Array, "B S K H"]
    v: Float[Array, "B S K Hv"]
    positions: Int[Array, "B S"]
    valid: Bool[Array, "B S"]


@dataclasses.dataclass(frozen=True, eq=False)
class KVCache:
    """Keys and values of one attention layer for the tokens so far; made by `create`.

    One step of decoding, and likewise the first pass over a prompt:

        positions = cache.next_positions(T, valid=valid)  # for rope, and below
        cache = cache.append(k, v, valid=valid)
        read = cache.read()
        mask = visible(positions, read.positions, key_valid=read.valid, window=cache.window)
        out = dot_product_attention(q, read.k, read.v, mask=mask)

    For latent attention store the latent `B T C` as the key and the rotary key `B T Hr` as the
    value of a single head: `create(B=B, K=1, H=C, Hv=Hr, ...)`, then
    `append(latent[:, :, None], k_rotary[:, :, None])`.

    Attributes:
        k: Keys, one slot per token; `read` returns them with the axes of `append`.
        v: Values, likewise.
        length: Tokens of each row, which is the position of its next one.
        oldest: Position from which on a row is complete; 0 unless a ring has gone round.
        overflowed: Rows that were given more tokens than they can hold.
        rewind_refused: Rows that were to be rewound to where they cannot be.
        window: How many positions a query sees, if the cache is a ring.
        chunk: How many tokens a ring takes at a time.
    """

    k: Float[Array, "B K S H"]
    v: Float[Array, "B K S Hv"]
    length: Int[Array, " B"]
    oldest: Int[Array, " B"]
    overflowed: Bool[Array, " B"]
    rewind_refused: Bool[Array, " B"]
    window: int | None
    chunk: int | None

    @classmethod
    def create(
        cls,
        *,
        B: int,
        K: int,
        H: int,
        Hv: int | None = None,
        capacity: int | None = None,
        window: int | None = None,
        chunk: int | None = None,
        dtype: DTypeLike = jnp.float32,
    ) -> "KVCache":
        """Makes an empty cache, either for `capacity` tokens per row or for a window.

        Args:
            B: Rows.
            K: Key and value heads.
            H: Width of a key head.
            Hv: Width of a value head; None is H.
            capacity: Tokens per row; not given for a ring, which takes any number.
            window: Makes a ring for queries that see so many positions, their own among them.
            chunk: Tokens that a ring takes at a time; None is 1.
            dtype: What keys and values are stored in.

        Raises:
            ValueError: If a size is below 1, not exactly one of `capacity` and `window` is
                given, `chunk` is given without `window`, or `dtype` is no floating-point type.
        """
        if (capacity is None) == (window is None):
            raise ValueError(
                "A cache has either a capacity or a window, got "
                f"capacity={capacity}, window={window}."
            )
        if window is None and chunk is not None:
            raise ValueError(f"chunk belongs to a ring; give window as well, got chunk={chunk}.")
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(f"dtype must be a floating-point type, got dtype={dtype}.")
        chunk = 1 if window is not None and chunk is None else chunk
        sizes = dict(B=B, K=K, H=H, Hv=Hv, capacity=capacity, window=window, chunk=chunk)
        for name, size in sizes.items():
            if size is not None and size < 1:
                raise ValueError(f"{name} must be at least 1, got {name}={size}.")
        if window is not None and chunk is not None:
            capacity = window + chunk - 1
        assert capacity is not None
        return cls(
            k=jnp.zeros((B, K, capacity, H), dtype),
            v=jnp.zeros((B, K, capacity, H if Hv is None else Hv), dtype),
            length=jnp.zeros(B, jnp.int32),
            oldest=jnp.zeros(B, jnp.int32),
            overflowed=jnp.zeros(B, bool),
            rewind_refused=jnp.zeros(B, bool),
            window=window,
            chunk=chunk,
        )

    @property
    def capacity(self) -> int:
        """Slots of each row."""
        return self.k.shape[-2]

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values, of all layers if the cache was stacked."""
        return sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in (self.k, self.v))

    def next_positions(
        self, T: int, *, valid: Bool[Array, "B T"] | None = None
    ) -> Int[Array, "B T"]:
        """Says at which positions the next T tokens will be stored.

        Args:
            T: Tokens to be appended, padding included.
            valid: As for `append`. Padding has the position of the token before it, or of the
                first one where there is none.
        """
        numbers = places(self.length.shape[0], T, valid)
        return self.length[:, None] + jnp.maximum(numbers, 0)

    def append(
        self,
        k: Float[Array, "B T K H"],
        v: Float[Array, "B T K Hv"],
        *,
        valid: Bool[Array, "B T"] | None = None,
    ) -> "KVCache":
        """Stores the next tokens of each row behind those it has.

        Args:
            k: Keys; converted to the dtype of the cache.
            v: Values; likewise.
            valid: Which tokens are real; None is all. Padding is stored nowhere and takes no
                position, wherever in the row it lies.

        Returns:
            The cache with the tokens. A row that cannot hold all of its new ones gets none of
            them, keeps its length, and has `overflowed` set for good.

        Raises:
            ValueError: If the shapes do not fit, T exceeds the capacity or the chunk of a ring,
                or it is known that a row overflows.
        """
        most = self.capacity if self.chunk is None else self.chunk
        check_tokens((k, v), (self.k, self.v), valid, most=most)
        B, T = k.shape[:2]
        real = np.full((B, T), True) if valid is None else valid
        state = (self.length, real, self.overflowed, self.rewind_refused)
        if (values := known(*state)) is not None:
            new = values[1].sum(axis=1)
            refused = ~fits(*values, limit=self._limit)
            refuse(refused, OVERFLOW, length=values[0], new=new, limit=self._limit)
        takes = fits(*state, limit=self._limit)
        count = real.sum(axis=1, dtype=jnp.int32)
        positions = self.length[:, None] + places(B, T, valid)
        # What is not stored gets slots of its own beyond the end, where a scatter drops it.
        beyond = self.capacity + np.arange(T, dtype=np.int32)[None]
        slots = jnp.where(real & takes[:, None], positions % self.capacity, beyond)
        batch = np.arange(B, dtype=np.int32)[:, None]

        def stored(old: Array, new: Array) -> Array:
            at = old.at[batch, :, slots]
            return at.set(new.astype(old.dtype), mode="drop", unique_indices=True)

        length = jnp.where(takes, self.length + count, self.length)
        return dataclasses.replace(
            self,
            k=stored(self.k, k),
            v=stored(self.v, v),
            length=length,
            oldest=jnp.maximum(self.oldest, length - self.capacity),
            overflowed=self.overflowed | (self.length + count > self._limit),
        )

    def read(self) -> KVRead:
        """Returns every slot, with its position and whether it holds a token."""
        last = self.length[:, None] - 1
        slots = jnp.arange(self.capacity, dtype=jnp.int32)[None]
        positions = last - (last - slots) % self.capacity
        valid = positions >= self.oldest[:, None]
        k, v = (jnp.swapaxes(x, 1, 2) for x in (self.k, self.v))
        return KVRead(k, v, jnp.where(valid, positions, 0), valid)

    def rewind(self, length: int | Int[Array, ""] | Int[Array, " B"]) -> "KVCache":
        """Forgets the last tokens of each row, as after a rejected draft.

        They stay in memory until they are overwritten. Attention gives them weight 0, so they
        have no influence unless they are NaN or infinite.

        Args:
            length: Tokens to keep, counted from the first one: one number, or one per row.

        Returns:
            The cache of that length. A row that cannot be rewound to it stays as it is and has
            `rewind_refused` set for good.

        Raises:
            ValueError: If it is known that a length is negative or beyond that of a row, or
                that a ring has overwritten what a query at that position would read.
        """
        if isinstance(length, int | np.integer) and not 0 <= length <= self._limit:
            raise ValueError(f"length must lie in 0 … {self._limit}, got length={length}.")
        is_number = isinstance(length, int | np.integer)
        kept = np.asarray(length, np.int32) if is_number else length
        require_integers(kept, "length")
        # Bytes are widened, and the rest clipped before it is converted: 64 bits would wrap around.
        kept = kept.astype(jnp.int32) if kept.dtype.itemsize < 4 else kept
        kept = kept.clip(max=FARTHEST).astype(jnp.int32)
        if (values := known(kept, self.length, self.oldest)) is not None:
            rewound, length_now, oldest = np.broadcast_arrays(*values)
            refused = ~can_rewind(rewound, length_now, oldest, window=self.window)
            refuse(refused, REWIND, to=rewound, length=length_now, oldest=oldest)
        kept = jnp.broadcast_to(kept, self.length.shape)
        can = can_rewind(kept, self.length, self.oldest, window=self.window)
        return dataclasses.replace(
            self,
            length=jnp.where(can, kept, self.length),
            oldest=jnp.where(can, jnp.minimum(self.oldest, kept), self.oldest),
            rewind_refused=self.rewind_refused | ~can,
        )

    def check(self) -> None:
        """Raises where a row was refused tokens or a rewind; not for traced functions.

        Raises:
            ValueError: If a row is marked; the message names the rows.
        """
        length = np.asarray(self.length)
        refuse(np.asarray(self.overflowed), OVERFLOW, length=length, limit=self._limit)
        refuse(np.asarray(self.rewind_refused), REWIND, length=length)

    @property
    def _limit(self) -> int:
        return self.capacity if self.window is None else FARTHEST


LEAVES = ("k", "v", "length", "oldest", "overflowed", "rewind_refused")
STATIC = ("window", "chunk")

register_value(KVCache, leaves=LEAVES, static=STATIC)
