"""Compiles the programs of tests, most of which run once: the compiler is what they cost."""

import functools

import jax
import numpy as np

OPTIONS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

# `jax.jit`, compiled several times as fast: the same program, whose kernels run more slowly.
quickly = functools.partial(jax.jit, compiler_options=OPTIONS)


def is_array(value):
    """Whether an argument is given at run time; what else there is, the program is written for."""
    return all(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(value))


def at_once(function):
    """Makes each call of a function one program.

    Called as it is, each of its steps would be compiled alone, and again for every shape: thirty
    programs in the place of one. Where it is transformed it is the function itself, since JAX
    takes the compiler's options from the outermost program alone.
    """

    @functools.partial(quickly, static_argnums=0)
    def program(fixed, arrays):
        named = {**dict(fixed), **arrays}
        positions = sorted(filter(str.isdigit, named), key=int)
        return function(*[named.pop(position) for position in positions], **named)

    @functools.wraps(function)
    def call(*positional, **options):
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((positional, options))):
            return function(*positional, **options)
        named = {**{str(n): x for n, x in enumerate(positional)}, **options}
        arrays = {name: x for name, x in named.items() if is_array(x)}
        fixed = tuple((name, x) for name, x in named.items() if name not in arrays)
        return program(fixed, arrays)

    return call
