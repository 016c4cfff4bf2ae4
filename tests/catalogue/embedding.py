"""Rows of the embedding and of the tied readout."""

import jax.numpy as jnp
import numpy as np

from catalogue.row import B, D, Row, T, V
from jtransformer import functional as F

TOKENS = np.array([[0, 8, 2], [2, 2, 5]], np.int32)


def one_hot(table, *, scale=None):
    """A product with one-hot rows."""
    picks = np.equal.outer(TOKENS, np.arange(V)).astype(float)
    return (1.0 if scale is None else scale) * np.einsum("btv,vd->btd", picks, table)


def scored(hidden, table, bias=0.0, *, scale=None):
    """One score for each token of the vocabulary, from a table that is scaled instead."""
    table = table * (1.0 if scale is None else scale)
    return np.stack([(hidden * row).sum(-1) for row in table], axis=-1) + bias


ROWS = {
    "embed": Row(
        lambda table, **options: F.embed(jnp.array(TOKENS), table, **options),
        ((V, D),),
        one_hot,
        options=dict(scale=2.75),
        live=dict(scale=3.0),
        null=dict(scale=1.0),
        batched=0,
        of="embed",
    ),
    "readout": Row(
        F.readout,
        ((B, T, D), (V, D), (V,)),
        scored,
        options=dict(scale=D**-0.5),
        live=dict(scale=0.5),
        null=dict(scale=1.0, rows="merged"),
        program=dict(rows="apart"),
    ),
    "readout plain": Row(F.readout, ((B, T, D), (V, D)), scored),
}
