"""Rows of the pointwise functions and of dropout."""

import math

import jax
import numpy as np

from catalogue.row import B, D, Row, T
from jtransformer import functional as F


def normal_distribution(u):
    """Phi(u) by the error function of the C library."""
    return 0.5 * (1 + math.erf(u / math.sqrt(2)))


def logistic(u):
    return 1 / (1 + math.exp(-u))


POINTWISE = {
    "identity": lambda u: u,
    "relu": lambda u: u if u > 0 else 0.0,
    "relu_squared": lambda u: u * u if u > 0 else 0.0,
    "gelu": lambda u: u * normal_distribution(u),
    # A logistic of twice the angle is the tanh of the paper's form.
    "gelu_tanh": lambda u: u * logistic(2 * math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)),
    "silu": lambda u: u * logistic(u),
    "sigmoid": logistic,
    "tanh": lambda u: 2 * logistic(2 * u) - 1,
    "elu_plus_one": lambda u: math.exp(u) if u < 0 else u + 1,
}


def dropped(x, *, rate, key):
    """The draw is JAX's; what is done with it is written out."""
    out = x / (1 - rate)
    out[~np.asarray(jax.random.bernoulli(key, 1 - rate, x.shape))] = 0
    return out


ROWS = {
    **{
        name: Row(getattr(F, name), ((B, T),), np.vectorize(POINTWISE[name], otypes=[float]))
        for name in POINTWISE
    },
    "dropout": Row(
        F.dropout,
        ((B, T, D),),
        dropped,
        options=dict(rate=0.4, key=jax.random.key(1)),
        live=dict(rate=0.7, key=jax.random.key(2)),
        null=dict(key=None),
    ),
}
