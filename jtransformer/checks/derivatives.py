"""Derivatives: gradients against differences in double precision, and those of a tied table."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.checks.compiling import quickly
from jtransformer.checks.law import Law
from jtransformer.checks.mixtures import logits_of, mixed, mixture
from jtransformer.checks.report import Finding
from jtransformer.checks.subject import Subject
from jtransformer.checks.tolerance import exact, size

GROUP = "derivatives"
STEPS = (3e-6, 1e-7, 1e-8)
"""Steps of central differences, relative to the size of each array: the largest is the best for
smooth functions (eps^(1/3)); small ones meet few of the corners of a ReLU."""
DIFFERENCE = 1e-6
"""The smallest step loses eps / step = 2e-8 of the function, and a function is allowed to be fifty
times as large as what it changes by."""
COARSE_STEPS, COARSE_DIFFERENCE = (5e-3, 5e-4), 2.4e-3
"""The same where a part is computed in float32: eps^(1/3), and a hundred times eps^(2/3)."""
NOISE = 1e-12
"""What a value in double precision jumps by, relative to itself, lies far below it; what is
computed in float32 jumps by 1e-8."""
DIRECTIONS = 3


def doubled(tree: Any) -> Any:
    """Returns a tree in double precision; what is no floating-point number stays."""

    def raised(x: Any) -> Any:
        return jnp.asarray(exact(x)) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(raised, tree)


def by_differences(subject: Subject) -> Finding:
    """Derives a mixture of all outputs along random directions of all parameters at once.

    Measured is the difference between gradient and central difference, relative to what the
    gradient says of a direction typically; the best step and the middle direction count, since a
    wrong gradient is wrong in nearly all of them, and a corner of a ReLU in few.
    """
    call = subject.double or subject.model
    assert call is not None
    with jax.enable_x64(True):
        parameters, tokens = doubled(subject.parameters), jnp.asarray(subject.tokens(61))
        weights, scalar = mixture(subject.generator(51), call, parameters, tokens), mixed(call)
        value, slopes = quickly(scalar), quickly(jax.grad(scalar, argnums=1))
        slope = slopes(weights, parameters, tokens)
        return _judged(subject, parameters, slope, lambda p: float(value(weights, p, tokens)))


def _judged(subject: Subject, parameters: Any, slope: Any, value: Any) -> Finding:
    generator, found = subject.generator(62), []
    structure = jax.tree.structure(parameters)
    # NumPy moves them: each shape would be a program.
    leaves, slopes = ([exact(x) for x in jax.tree.leaves(tree)] for tree in (parameters, slope))
    # What starts at 0 moves by as much as what starts at 1e-2.
    sizes = [max(size(leaf), 1e-2) if leaf.size else 0.0 for leaf in leaves]
    weighed = zip(slopes, sizes, strict=True)
    typical = np.sqrt(sum(s**2 * np.square(g).sum() for g, s in weighed))

    def moved(step: float, along: Any) -> float:
        new = [jnp.asarray(x + step * d) for x, d in zip(leaves, along, strict=True)]
        return value(jax.tree.unflatten(structure, new))

    steps, limit, precision = (), DIFFERENCE, "float64"
    for _ in range(DIRECTIONS):
        drawn = zip(leaves, sizes, strict=True)
        along = [s * generator.normal(size=leaf.shape) for leaf, s in drawn]
        if not steps:
            here, least = value(parameters), STEPS[-1]
            jump = abs(moved(least, along) - 2 * here + moved(-least, along))
            coarse = jump > NOISE * abs(here)
            steps = COARSE_STEPS if coarse else STEPS
            if coarse:
                limit, precision = COARSE_DIFFERENCE, "float32, in which a part of it is computed"
        told = sum(float((g * d).sum()) for g, d in zip(slopes, along, strict=True))
        ways = [(moved(h, along) - moved(-h, along)) / (2 * h) for h in steps]
        errors = [abs(way - told) / typical for way in ways]
        found.append(min(errors) if np.isfinite(errors).all() else np.nan)
    detail = f"in {precision}; {DIRECTIONS} directions, the best of {len(steps)} steps"
    return Finding(float(np.median(found)), "of a typical slope", limit, detail=detail)


def _of_table(subject: Subject) -> tuple[Any, Any, Any, np.ndarray]:
    """Returns the gradients of a tied table: all of it, by the head, by the lookup; ids read."""
    model, lookup, rest = subject.model, subject.lookup, subject.with_embeddings
    table = subject.tied_table
    assert model is not None and lookup is not None and rest is not None and table is not None
    ids = np.asarray(subject.tokens(63))
    # Half of the ids at most are read, so that some are not.
    ids = ids % max(1, subject.vocabulary // 2)
    tokens = jnp.asarray(ids)

    def apart(by_head: Any, by_lookup: Any, tokens: Any) -> Any:
        return logits_of(rest(by_head, lookup(by_lookup, tokens)))

    p = subject.parameters
    # What a model returns besides its logits has no part in this.
    logits, *others = mixture(subject.generator(51), model, p, tokens)
    whole = subject.slopes([logits, *map(jnp.zeros_like, others)], p, tokens)
    slopes = quickly(jax.grad(mixed(apart), argnums=(1, 2)))
    parts = slopes([logits], p, p, tokens)
    return exact(table(whole)), exact(table(parts[0])), exact(table(parts[1])), np.unique(ids)


def tied(subject: Subject) -> Finding:
    """Compares the gradient of a tied table with the sum of those of its two uses."""
    whole, by_head, by_lookup, read = _of_table(subject)
    rows = np.sqrt(np.square(whole - (by_head + by_lookup)).mean(axis=-1))
    scale = np.sqrt(np.square(whole).mean(axis=-1)).max()
    figure = float(rows.max() / scale) if scale > 0 else np.nan
    # A row of the lookup that is frozen still moves through the head, as one that is not read.
    unread = np.setdiff1d(np.arange(len(whole)), read)
    for name, slopes in (
        ("the head leaves rows that are read", by_head[read]),
        ("the head leaves rows that are not read", whole[unread]),
        ("the lookup leaves rows that are read", by_lookup[read]),
    ):
        if len(slopes) and not (np.abs(slopes).max(axis=-1) > 0).all():
            unit, detail = "of the largest row's gradient", f"{name} without a gradient"
            return Finding(np.inf, unit, subject.rounding.limit(), detail=detail)
    detail = f"{len(read)} rows read, {len(unread)} moved by the head alone"
    return Finding(figure, "of the largest row's gradient", subject.rounding.limit(), detail=detail)


TIED = ("parameters", "model", "lookup", "with_embeddings", "tied_table")
LAWS = (
    Law(GROUP, "gradients by differences", ("parameters", "model"), by_differences),
    Law(GROUP, "gradient of a tied table", TIED, tied),
)
