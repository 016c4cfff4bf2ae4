"""Rows of the products with a Jacobian and of its spectral norm."""

import jax
import numpy as np

from catalogue.row import B, D, H, Row, T
from jtransformer import functional as F

STEP = 1e-30


def sublayer(w):
    return lambda h: F.linear(F.tanh(h), w)


def along(x, tangent, w):
    """A step along the imaginary axis, which no rounding spoils."""
    return (np.tanh(x + STEP * 1j * tangent) @ w).imag / STEP


def columns(x, w):
    """The Jacobian as a matrix, one entry of x at a time."""
    unit_vectors = np.eye(x.size).reshape(-1, *x.shape)
    return np.stack([along(x, unit, w).ravel() for unit in unit_vectors], axis=-1)


def back(x, cotangent, w):
    return (cotangent.ravel() @ columns(x, w)).reshape(x.shape)


def iterated(x, w, *, key, iterations):
    """The part of the start along a singular vector grows by s^2 in each step."""
    start = np.asarray(jax.random.normal(key, x.shape), np.float64).ravel()
    _, s, directions = np.linalg.svd(columns(x, w), full_matrices=False)
    parts = (directions @ start) * (s / s[0]) ** (2 * iterations)
    return np.sqrt(np.sum((s * parts) ** 2) / np.sum(parts**2))


def largest(x, w, **_):
    return np.linalg.svd(columns(x, w), compute_uv=False)[0]


def value(x, w, **options):
    return F.spectral_norm(sublayer(w), x, **options).value


KEY, OTHER = jax.random.key(3), jax.random.key(4)
ROWS = {
    "jacobian_vector_product": Row(
        lambda x, tangent, w: F.jacobian_vector_product(sublayer(w), x, tangent),
        ((B, T, D), (B, T, D), (D, H)),
        along,
        batched=2,
        of="jacobian_vector_product",
    ),
    "vector_jacobian_product": Row(
        lambda x, cotangent, w: F.vector_jacobian_product(sublayer(w), x, cotangent),
        ((B, T, D), (B, T, H), (D, H)),
        back,
        batched=2,
        of="vector_jacobian_product",
    ),
    "spectral_norm at once": Row(
        value,
        ((T, D), (D, H)),
        iterated,
        options=dict(key=KEY, iterations=1),
        live=dict(key=OTHER, iterations=30),
        null=dict(iterations=50),
        batched=0,
        keeps_dtype=False,
        of="spectral_norm",
    ),
    "spectral_norm": Row(
        value,
        ((T, D), (D, H)),
        largest,
        options=dict(key=KEY, iterations=200),
        batched=0,
        keeps_dtype=False,
        of="spectral_norm",
    ),
}
