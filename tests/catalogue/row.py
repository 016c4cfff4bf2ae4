"""One row of the catalogue: a variant, how to call it, and what it must equal."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# Of the sizes that meet in one call no two are equal, so that a swapped axis fails.
B, T, S, N, K, H, Hv, D, FW, V = 2, 3, 5, 4, 2, 6, 3, 8, 7, 9

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Row(NamedTuple):
    """One variant of one public function.

    Attributes:
        function: Floating-point arrays in, then options by keyword; one array out.
        shapes: Shapes of the arrays.
        reference: Called alike with NumPy float64 arrays. It takes another road to the value:
            the paper's form, loops, complex numbers; never the same formula again.
        options: Options of the variant.
        live: Option -> value which, given alone on top of `options`, changes the output.
        null: Option -> neutral value, with which the output is that of leaving the option out.
        program: Option -> value which changes the program, and the output by rounding alone.
        batched: How many leading arrays have the batch as their first axis.
        keeps_dtype: Whether the output has the dtype of the input; else it is float32.
        sees_BTS: For queries, keys and values as the first three arrays: True where the output
            at t depends on the key and the value at s, and exactly there.
        of: Name of the public function, where `function` is a wrapper of it.
    """

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    reference: Callable[..., Any]
    options: Mapping[str, Any] = NO_OPTIONS
    live: Mapping[str, Any] = NO_OPTIONS
    null: Mapping[str, Any] = NO_OPTIONS
    program: Mapping[str, Any] = NO_OPTIONS
    batched: int = 1
    keeps_dtype: bool = True
    sees_BTS: np.ndarray | None = None
    of: str = ""

    def call(self, *arrays: Any, **options: Any) -> Any:
        """Calls the variant, with `options` in the place of its own where both have them."""
        return self.function(*arrays, **{**self.options, **options})

    def without(self, option: str) -> "Row":
        """Returns the variant with one option left to its default."""
        return self._replace(options={k: v for k, v in self.options.items() if k != option})

    @property
    def public(self) -> str:
        """Name of the public function that the row is of."""
        return self.of or self.function.__name__


def on_device(arrays, dtype=jnp.float32) -> tuple[jax.Array, ...]:
    """Moves NumPy arrays to JAX; they are prepared in NumPy, since JAX compiles each step."""
    return tuple(jnp.asarray(array, dtype) for array in arrays)


def draw(row: Row, *, copies: tuple[int, ...] = (), seed: int = 0) -> list[np.ndarray]:
    """Draws standard normal arrays for a row, with leading axes `copies`."""
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(*copies, *shape)) for shape in row.shapes]
