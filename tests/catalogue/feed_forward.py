"""Rows of the affine map and of the feed-forward sublayers."""

import jax.numpy as jnp
import numpy as np

from catalogue.activations import POINTWISE
from catalogue.row import FW, B, D, H, Hv, N, Row, T
from jtransformer import functional as F

DENSE = ((B, T, D), (D, FW), (FW, D), (FW,), (D,))
GATED = ((B, T, D), (D, FW), (D, FW), (FW, D))


def affine(x, kernel, bias, axes=1):
    """Sums over the fan-in one entry at a time."""
    lead = x.shape[: x.ndim - axes]
    out = np.zeros((*lead, *kernel.shape[axes:])) + bias
    for index in np.ndindex(*kernel.shape[:axes]):
        out += np.multiply.outer(x[(..., *index)], kernel[index])
    return out


def by_number(activation):
    """The same non-linearity on one number at a time, by another formula."""
    return np.vectorize(POINTWISE[activation.__name__], otypes=[float])


def dense_units(x, w_in, w_out, b_in, b_out, *, activation):
    """`Σ_j φ(x · w_in,j) w_out,j`: one hidden unit at a time."""
    out = np.zeros_like(x) + b_out
    for j in range(w_in.shape[1]):
        out += np.multiply.outer(by_number(activation)(x @ w_in[:, j] + b_in[j]), w_out[j])
    return out


def gated_units(x, w_gate, w_up, w_down, *, activation):
    out = np.zeros_like(x)
    for j in range(w_gate.shape[1]):
        unit = by_number(activation)(x @ w_gate[:, j]) * (x @ w_up[:, j])
        out += np.multiply.outer(unit, w_down[j])
    return out


def gated_with_biases(x, w_gate, w_up, w_down, b_gate, b_up, b_down):
    return F.gated_feed_forward(x, w_gate, w_up, w_down, b_gate=b_gate, b_up=b_up, b_down=b_down)


def gated_units_with_biases(x, w_gate, w_up, w_down, *biases):
    """A bias is the weight of one more input that is always 1."""
    b_gate, b_up, b_down = biases
    more = np.concatenate([x, np.ones_like(x[..., :1])], axis=-1)
    gate, up = np.vstack([w_gate, b_gate]), np.vstack([w_up, b_up])
    out = np.zeros_like(x) + b_down
    for j in range(gate.shape[1]):
        unit = by_number(F.silu)(more @ gate[:, j]) * (more @ up[:, j])
        out += np.multiply.outer(unit, w_down[j])
    return out


def ffn(kind):
    biases = dict(b_gate=(FW,), b_up=(FW,), b_down=(D,)) if kind.gated else {}
    return Row(
        F.gated_feed_forward if kind.gated else F.feed_forward,
        GATED if kind.gated else DENSE,
        gated_units if kind.gated else dense_units,
        options=dict(activation=kind.activation),
        live={"activation": F.tanh, **{name: jnp.ones(shape) for name, shape in biases.items()}},
        null={
            "activation": F.silu if kind.gated else F.gelu,
            "rows": "merged",
            **{name: jnp.zeros(shape) for name, shape in biases.items()},
        },
        program=dict(rows="apart"),
    )


ROWS = {
    "linear": Row(
        F.linear,
        ((B, T, D), (D, N, H), (N, H)),
        affine,
        null=dict(rows="merged"),
        program=dict(rows="apart"),
    ),
    "linear joining heads": Row(
        F.linear, ((B, T, N, Hv), (N, Hv, D), (D,)), affine, options=dict(axes=2)
    ),
    "linear either way": Row(
        lambda x, kernel, **axes: F.linear(x, kernel, **axes),
        ((B, D, D), (D, D, H)),
        lambda x, kernel, **axes: affine(x, kernel, 0, **axes),
        live=dict(axes=2),
        null=dict(axes=1),
        of="linear",
    ),
    "ffn swiglu with biases": Row(
        gated_with_biases,
        (*GATED, (FW,), (FW,), (D,)),
        gated_units_with_biases,
        of="gated_feed_forward",
    ),
    **{f"ffn {name}": ffn(kind) for name, kind in F.FFN_KINDS.items()},
}
