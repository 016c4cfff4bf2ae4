"""A whole small decoder of functional layers alone, for the tests inside other JAX code."""

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer import functional as F

VOCABULARY, WIDTH, HEADS, KEY_HEADS, HEAD_WIDTH, FFN_WIDTH, LAYERS = 11, 16, 4, 2, 4, 24, 3
LAYER_SHAPES = {
    "norm_1": (WIDTH,),
    "query": (WIDTH, HEADS, HEAD_WIDTH),
    "key": (WIDTH, KEY_HEADS, HEAD_WIDTH),
    "value": (WIDTH, KEY_HEADS, HEAD_WIDTH),
    "out": (HEADS, HEAD_WIDTH, WIDTH),
    "norm_2": (WIDTH,),
    "gate": (WIDTH, FFN_WIDTH),
    "up": (WIDTH, FFN_WIDTH),
    "down": (FFN_WIDTH, WIDTH),
}


def layer_parameters(generator):
    """Draws one layer."""
    return {
        name: jnp.asarray(
            np.ones(shape) if name.startswith("norm") else generator.normal(size=shape) / 4,
            jnp.float32,
        )
        for name, shape in LAYER_SHAPES.items()
    }


def parameters(seed=0):
    """Draws the table and the layers, the layers as a tuple."""
    generator = np.random.default_rng(seed)
    table = jnp.asarray(generator.normal(size=(VOCABULARY, WIDTH)) / 4, jnp.float32)
    return {"table": table, "layers": tuple(layer_parameters(generator) for _ in range(LAYERS))}


def stacked(layers):
    """The same layers with a leading axis, for a scan."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)


def token_rows(B=8, T=6, seed=1):
    """Draws rows of tokens that each count up from their first: easy to learn."""
    first = np.random.default_rng(seed).integers(VOCABULARY, size=(B, 1))
    return jnp.asarray((first + np.arange(T + 1)) % VOCABULARY, jnp.int32)


def layer(p, x, join=lambda branch: branch):
    """A pre-norm layer; `join` adds up the parts of a branch that is spread over devices."""
    positions = jnp.arange(x.shape[1], dtype=jnp.int32)[None]

    def attend(h):
        q, k = (F.rope(F.linear(h, p[name]), positions) for name in ("query", "key"))
        mask = F.causal_mask(h.shape[1])
        heads = F.dot_product_attention(q, k, F.linear(h, p["value"]), mask=mask)
        return join(F.linear(heads, p["out"], axes=2))

    def transform(h):
        return join(F.gated_feed_forward(h, p["gate"], p["up"], p["down"]))

    x = F.residual(x, attend, norm_in=lambda h: F.rms_norm(h, p["norm_1"]))
    return F.residual(x, transform, norm_in=lambda h: F.rms_norm(h, p["norm_2"]))


def losses(p, rows, run_layer=layer):
    """The sums of next-token losses."""
    x = F.embed(rows[:, :-1], p["table"])
    for one in p["layers"]:
        x = run_layer(one, x)
    return F.cross_entropy(F.readout(F.rms_norm(x), p["table"]), rows[:, 1:])


def mean_loss(p, rows, run_layer=layer):
    """The loss per token, in nats."""
    sums = losses(p, rows, run_layer)
    return sums.loss_sum / sums.weight_sum
