"""Compiles what is judged for its derivatives, not for its speed or its last digits."""

from collections.abc import Callable
from typing import Any

import jax

PRECISION = "highest"
"""Of products: full float32, for which accelerators have a coarser default."""
OPTIONS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Of the compiler for CPUs, to which most of the time of a judgement would go."""


def quickly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `jax.jit` of a function, in a program that is made faster and runs more slowly."""
    options = OPTIONS if jax.default_backend() == "cpu" else None
    return jax.jit(function, compiler_options=options)
