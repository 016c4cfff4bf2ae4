"""Norms: the definition for hard inputs, the Jacobian, and the norm before the head."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.checks.compiling import quickly
from jtransformer.checks.law import Law
from jtransformer.checks.report import Finding, NotApplicable
from jtransformer.checks.subject import NormPart, Subject
from jtransformer.checks.tolerance import distance, epsilon, exact

GROUP = "norms"
ROUNDINGS = 16.0
"""Errors of one rounding that a norm may make: its sums are trees, whose errors hardly add up."""
LARGE_MEAN = 4e4
"""Beside a spread of 1, it leaves a variance by one pass, E[x^2] - E[x]^2, no digit in float32."""
LARGE_STREAM, STRETCH = 64.0, 16.0
"""Size of a stream beside which no epsilon counts, and how much larger it becomes; powers of two,
which round nothing."""
JACOBIAN = 1e-6


def defined(norm: NormPart, x: np.ndarray) -> np.ndarray:
    """Returns the norm by its definition, in double precision: by two passes."""
    if norm.kind == "layer_norm":
        x = x - x.mean(axis=-1, keepdims=True)
    y = x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + norm.epsilon)
    y = y if norm.scale is None else y * exact(norm.scale)
    return y if norm.bias is None else y + exact(norm.bias)


def inputs(generator: np.random.Generator, width: int) -> dict[str, tuple[np.ndarray, Any]]:
    """Returns the inputs on which norms fail, and their types."""
    x = generator.normal(size=(4, width))
    return {
        "plain": (x, jnp.float32),
        "large mean": (x + LARGE_MEAN, jnp.float32),
        "constant": (np.full((4, width), 3.0), jnp.float32),
        "tiny": (1e-6 * x, jnp.float32),
        "large": (1e6 * x, jnp.float32),
        "bfloat16": (x, jnp.bfloat16),
        "float16, large mean": (x + 100.0, jnp.float16),
    }


def definition(subject: Subject) -> Finding:
    """Compares a norm with its definition, in errors of one rounding of input and result.

    A rounding of the input counts (1 + |mean| / deviation) times in a layer norm, whatever the
    algorithm: so much does the deviation from the mean move.
    """
    norm, figures, names = subject.norm, [0.0], [""]
    assert norm is not None
    for name, (values, dtype) in inputs(subject.generator(81), norm.width).items():
        given = jnp.asarray(values, dtype)
        x = exact(given)
        y = defined(norm, x)
        condition = np.ones((len(x), 1))
        if norm.kind == "layer_norm":
            mean, spread = x.mean(axis=-1), np.sqrt(x.var(axis=-1) + norm.epsilon)
            condition = (1 + np.abs(mean) / spread)[:, None]
        size = np.abs(y).max() + np.abs(exact(1.0 if norm.scale is None else norm.scale)).max()
        allowed = size * (epsilon(jnp.float32) * condition + epsilon(dtype))
        figures.append(float((np.abs(exact(norm.apply(given)) - y) / allowed).max()))
        names.append(f"farthest: {name} input")
    worst = int(np.argmax(figures))
    return Finding(figures[worst], "roundings", ROUNDINGS, detail=names[worst])


def jacobian(subject: Subject) -> Finding | NotApplicable:
    """Compares a norm's Jacobian, forwards and backwards, with its formula, in double precision.

    diag(scale) (P / s - c c' / (D s^3)) with c = P x, P the projection off the mean, or the
    identity for an RMS norm, and s the root of mean(c^2) + epsilon.
    """
    norm = subject.norm
    assert norm is not None
    D = norm.width

    def derived(x: Any) -> tuple[Any, ...]:
        return norm.apply(x), jax.jacfwd(norm.apply)(x), jax.jacrev(norm.apply)(x)

    with jax.enable_x64(True):
        x = subject.generator(82).normal(size=D)
        result, *found = quickly(derived)(jnp.asarray(x))
        if result.dtype != jnp.float64:
            return NotApplicable("the norm returns another type than the float64 that it is given")
        off_mean = np.eye(D) - (1 / D if norm.kind == "layer_norm" else 0)
        c = off_mean @ x
        s = np.sqrt(np.square(c).mean() + norm.epsilon)
        scale = np.ones(D) if norm.scale is None else exact(norm.scale)
        formula = scale[:, None] * (off_mean / s - np.outer(c, c) / (D * s**3))
    error = max(float(np.abs(exact(each) - formula).max()) for each in found)
    if not all(np.isfinite(exact(each)).all() for each in found):
        error = float("nan")
    return Finding(error / np.abs(formula).max(), "of its largest entry", JACOBIAN)


def before_head(subject: Subject) -> Finding:
    """Makes the last stream larger, which a norm before the head ignores."""
    assert subject.readout is not None and subject.width is not None
    shape = (subject.rows, subject.length, subject.width)
    stream = (LARGE_STREAM * subject.generator(83).normal(size=shape)).astype(np.float32)
    small, large = (subject.readout(jnp.asarray(k * stream)) for k in (1.0, STRETCH))
    detail = f"the stream times {STRETCH:g}"
    return Finding(
        distance(large, small), "of the logits' size", subject.rounding.limit(), detail=detail
    )


LAWS = (
    Law(GROUP, "definition of the norm", ("norm",), definition),
    Law(GROUP, "Jacobian of the norm", ("norm",), jacobian),
    Law(GROUP, "norm before the head", ("readout", "width"), before_head),
)
