"""The cases in three JAX libraries: jtransformer, flax.linen and Equinox."""

from collections.abc import Callable
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen
from sublayer_cases import Inputs

from jtransformer import functional as F

Forward = Callable[[Any, Any, Any], Any]
"""Parameters, input and tokens in; output, one array, out."""


def differentiated(library: str, case: str, given: Inputs) -> Callable[[], tuple]:
    """Compiles forward and backward pass of a case.

    Returns:
        A function that runs both and waits; it returns the output, the gradient of the input
        and the gradients of the parameters.
    """
    parameters, forward = {
        "jtransformer": in_jtransformer,
        "flax.linen": in_linen,
        "equinox": in_equinox,
    }[library](case, given)

    @jax.jit
    def both(parameters, x, tokens, upstream):
        out, pull = jax.vjp(lambda p, x: forward(p, x, tokens), parameters, x)
        by_parameters, by_x = pull(upstream)
        return out, by_x, by_parameters

    arguments = jax.device_put((parameters, given.x, given.tokens, given.upstream))
    return lambda: jax.block_until_ready(both(*arguments))


def in_jtransformer(case: str, given: Inputs) -> tuple[Any, Forward]:
    """The functions, called as they are."""

    def attention(w, x, tokens):
        q, k, v = (F.linear(x, w[name]) for name in ("query", "key", "value"))
        heads = F.dot_product_attention(q, k, v, mask=F.causal_mask(x.shape[1]))
        return F.linear(heads, w["out"], axes=2)

    forwards: dict[str, Forward] = {
        "layer_norm": lambda w, x, _: F.layer_norm(x, w["scale"], w["bias"]),
        "rms_norm": lambda w, x, _: F.rms_norm(x, w["scale"]),
        "feed_forward": lambda w, x, _: F.feed_forward(
            x, w["in"], w["out"], w["in_bias"], w["out_bias"]
        ),
        "swiglu": lambda w, x, _: F.gated_feed_forward(x, w["gate"], w["up"], w["down"]),
        "attention": attention,
        "embedding": lambda w, x, tokens: F.embed(tokens, w["table"]),
        "cross_entropy": lambda w, x, tokens: F.cross_entropy(x, tokens).loss_sum,
    }
    return given.weights, forwards[case]


def in_linen(case: str, given: Inputs) -> tuple[Any, Forward]:
    """The modules of flax.linen with the same weights; optax for the loss."""
    w = given.weights

    class Dense(linen.Module):
        hidden: int
        width: int
        gated: bool

        @linen.compact
        def __call__(self, x):
            bias = not self.gated
            first = linen.Dense(self.hidden, use_bias=bias, name="first")(x)
            if self.gated:
                up = linen.Dense(self.hidden, use_bias=False, name="up")(x)
                hidden = linen.silu(first) * up
            else:
                hidden = linen.gelu(first, approximate=False)
            return linen.Dense(self.width, use_bias=bias, name="last")(hidden)

    def kernel(name):
        return {"kernel": w[name]}

    if case == "cross_entropy":
        return w, lambda w, x, t: optax.softmax_cross_entropy_with_integer_labels(x, t).sum()
    if case == "embedding":
        module = linen.Embed(*w["table"].shape)
        return {"embedding": w["table"]}, lambda p, x, t: module.apply({"params": p}, t)
    if case == "attention":
        D, N, H = w["query"].shape
        module = linen.MultiHeadDotProductAttention(num_heads=N, qkv_features=D, use_bias=False)
        parameters = {name: kernel(name) for name in w}

        def attend(p, x, tokens):
            mask = linen.make_causal_mask(tokens, dtype=jnp.bool_)
            return module.apply({"params": p}, x, mask=mask)

        return parameters, attend
    if case == "feed_forward":
        module = Dense(*reversed(w["in"].shape), gated=False)
        parameters = {
            "first": kernel("in") | {"bias": w["in_bias"]},
            "last": kernel("out") | {"bias": w["out_bias"]},
        }
    elif case == "swiglu":
        module = Dense(*reversed(w["up"].shape), gated=True)
        parameters = {"first": kernel("gate"), "up": kernel("up"), "last": kernel("down")}
    else:
        norms = {"layer_norm": linen.LayerNorm(epsilon=1e-5), "rms_norm": linen.RMSNorm()}
        module, parameters = norms[case], w
    return parameters, lambda p, x, _: module.apply({"params": p}, x)


def in_equinox(case: str, given: Inputs) -> tuple[Any, Forward]:
    """The modules of Equinox with the same weights, mapped over batch and positions."""
    w = given.weights
    key = jax.random.key(0)

    def dense(name: str, bias: str | None = None) -> equinox.nn.Linear:
        fan_in, fan_out = w[name].shape
        module = equinox.nn.Linear(fan_in, fan_out, use_bias=bias is not None, key=key)
        module = equinox.tree_at(lambda m: m.weight, module, jnp.asarray(w[name].T))
        return equinox.tree_at(lambda m: m.bias, module, jnp.asarray(w[bias])) if bias else module

    def everywhere(function):
        return jax.vmap(jax.vmap(function))

    if case == "cross_entropy":
        return w, lambda w, x, t: optax.softmax_cross_entropy_with_integer_labels(x, t).sum()
    if case == "embedding":
        table = equinox.nn.Embedding(weight=jnp.asarray(w["table"]))
        return table, lambda m, x, t: everywhere(m)(t)
    if case == "attention":
        return equinox_attention(w)
    if case == "feed_forward":
        modules = (dense("in", "in_bias"), dense("out", "out_bias"))

        def transform(m, x):
            return m[1](jax.nn.gelu(m[0](x), approximate=False))
    elif case == "swiglu":
        modules = (dense("gate"), dense("up"), dense("down"))

        def transform(m, x):
            return m[2](jax.nn.silu(m[0](x)) * m[1](x))
    else:
        D = given.weights["scale"].shape[0]
        kinds = {
            "layer_norm": equinox.nn.LayerNorm(D, eps=1e-5),
            "rms_norm": equinox.nn.RMSNorm(D, eps=1e-6, use_bias=False),
        }
        modules = equinox.tree_at(lambda m: m.weight, kinds[case], jnp.asarray(w["scale"]))
        if case == "layer_norm":
            modules = equinox.tree_at(lambda m: m.bias, modules, jnp.asarray(w["bias"]))

        def transform(m, x):
            return m(x)

    arrays, rest = equinox.partition(modules, equinox.is_array)
    return arrays, lambda p, x, _: everywhere(lambda x: transform(equinox.combine(p, rest), x))(x)


def equinox_attention(w: dict[str, np.ndarray]) -> tuple[Any, Forward]:
    """`equinox.nn.MultiheadAttention`, mapped over the batch."""
    D, N, H = w["query"].shape
    module = equinox.nn.MultiheadAttention(N, D, key=jax.random.key(0))
    for name in ("query", "key", "value"):
        where = {
            "query": lambda m: m.query_proj.weight,
            "key": lambda m: m.key_proj.weight,
            "value": lambda m: m.value_proj.weight,
        }[name]
        module = equinox.tree_at(where, module, jnp.asarray(w[name].reshape(D, N * H).T))
    out = jnp.asarray(w["out"].reshape(N * H, D).T)
    module = equinox.tree_at(lambda m: m.output_proj.weight, module, out)
    arrays, rest = equinox.partition(module, equinox.is_array)

    def attend(p, x, tokens):
        mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), jnp.bool_))
        return jax.vmap(lambda row: equinox.combine(p, rest)(row, row, row, mask=mask))(x)

    return arrays, attend
