"""Rows of the norms, of the bounded map in their place, and of their Jacobians."""

import jax
import jax.numpy as jnp
import numpy as np

from catalogue.row import B, D, Row, T
from jtransformer import functional as F


def without_mean(x):
    """The projection `I - 1 1^T / D`, as a matrix."""
    width = x.shape[-1]
    return x @ (np.eye(width) - np.ones((width, width)) / width)


def length(x):
    return np.sqrt(np.einsum("...i,...i->...", x, x))[..., None]


def layer_norm(x, scale=1.0, bias=0.0, *, epsilon=1e-5):
    """A direction of length sqrt(D), shortened by the angle that epsilon opens."""
    return rms_norm(without_mean(x), scale, epsilon=epsilon) + bias


def rms_norm(x, scale=1.0, *, epsilon=1e-6, scale_offset=0.0, cast="after"):
    """The two casts differ in low precision alone, and this is float64."""
    width = x.shape[-1]
    # A complex x is one of the complex step, whose lengths are analytic, not absolute values.
    cosine = length(x) / np.sqrt(length(x) ** 2 + width * epsilon)
    return np.sqrt(width) * cosine * x / length(x) * (scale_offset + scale)


def scale_norm(x, scale, *, epsilon=1e-5):
    return scale * x / np.hypot(length(x), np.sqrt(epsilon))


def dynamic_tanh(x, alpha, scale, bias):
    """The hyperbolic tangent as a circular one of an imaginary angle."""
    return scale * np.tan(1j * alpha * x).imag + bias


def jacobian(norm):
    """Each column by a step along the imaginary axis, which no rounding spoils."""

    def columns(x, scale=1.0, **options):
        steps = 1e-30j * np.eye(x.shape[-1])
        return np.stack([norm(x + step, scale, **options).imag / 1e-30 for step in steps], -1)

    return columns


def halved(norm):
    """The norm in bfloat16, where casts count; in float64, whose references are exact, as it is."""

    def on_half(x, scale, **options):
        if x.dtype == jnp.float64:
            return norm(x, scale, **options)
        out = norm(x.astype(jnp.bfloat16), scale.astype(jnp.bfloat16), **options)
        # Compiled, the conversion back would undo the rounding: see `norms._rounded`.
        return jax.lax.reduce_precision(out, 8, 7).astype(x.dtype)

    return on_half


X = (B, T, D)
EPSILON = dict(epsilon=0.3)
ROWS = {
    "layer_norm": Row(
        F.layer_norm, (X, (D,), (D,)), layer_norm, live=EPSILON, null=dict(epsilon=1e-5)
    ),
    "layer_norm plain": Row(F.layer_norm, (X,), layer_norm, options=EPSILON),
    "rms_norm": Row(
        F.rms_norm,
        (X, (D,)),
        rms_norm,
        live=dict(epsilon=0.3, scale_offset=1.0),
        null=dict(epsilon=1e-6, scale_offset=0.0, cast="after"),
    ),
    "rms_norm offset": Row(F.rms_norm, (X, (D,)), rms_norm, options=dict(scale_offset=1.0)),
    "rms_norm cast before": Row(
        halved(F.rms_norm),
        (X, (D,)),
        rms_norm,
        options=dict(cast="before"),
        live=dict(cast="after"),
        of="rms_norm",
    ),
    "scale_norm": Row(
        F.scale_norm, (X, ()), scale_norm, live=dict(epsilon=2.0), null=dict(epsilon=1e-5)
    ),
    "dynamic_tanh": Row(F.dynamic_tanh, (X, (), (D,), (D,)), dynamic_tanh),
    "layer_norm_jacobian": Row(
        F.layer_norm_jacobian,
        (X, (D,)),
        jacobian(layer_norm),
        live=EPSILON,
        null=dict(epsilon=1e-5),
    ),
    "rms_norm_jacobian": Row(
        F.rms_norm_jacobian, (X, (D,)), jacobian(rms_norm), live=EPSILON, null=dict(epsilon=1e-6)
    ),
}
