"""A decoder that a reader may have written with Equinox, and the mistakes that he may make in it.

Pre-norm, rotary positions, two heads, a cache, a tied head, an optional prefix.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from quickly import quickly

from jtransformer.checks import Decoding, NormPart, Parts

V, D, N, H, T, F, LAYERS = 19, 12, 2, 6, 8, 20, 2
EPSILON = 1e-5


def norm(x, fault=""):
    raised = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean = raised.mean(axis=-1, keepdims=True)
    if fault == "batch statistics":
        mean = raised.mean(axis=(0, 1), keepdims=True)
    if fault == "one-pass variance":
        variance = jnp.square(raised).mean(axis=-1, keepdims=True) - jnp.square(mean)
    else:
        variance = jnp.square(raised - mean).mean(axis=-1, keepdims=True)
    return ((raised - mean) / jnp.sqrt(variance + EPSILON)).astype(x.dtype)


def rope(x, positions, fault=""):
    """Turns channel i with channel i + H/2."""
    planes = x.shape[-1] // 2
    speed = 10_000.0 ** (-jnp.arange(planes) / planes)
    angle = positions[:, :, None, None].astype(speed.dtype) * speed
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    if fault == "swapped pairing":
        a, b = x[..., ::2], x[..., 1::2]
        return jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)
    a, b = x[..., :planes], x[..., planes:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def split(x, fault=""):
    B, length, _ = x.shape
    if fault == "heads of every other channel":
        return jnp.swapaxes(x.reshape(B, length, H, N), 2, 3)
    if fault == "heads across tokens":
        return jnp.swapaxes(x.reshape(B, N, length, H), 1, 2)
    return x.reshape(B, length, N, H)


def attend(q, k, v, mask):
    scores = jnp.einsum("BTNH,BSNH->BNTS", q, k) * jnp.asarray(q.shape[-1] ** -0.5, q.dtype)
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    return jnp.einsum("BNTS,BSNH->BTNH", weights, v)


class Layer(eqx.Module):
    query: jax.Array
    key: jax.Array
    value: jax.Array
    out: jax.Array
    wide: jax.Array
    narrow: jax.Array

    def __call__(self, x, positions, mask, cache, fault):
        h = norm(x, fault)
        q, k, v = (split(h @ w, fault) for w in (self.query, self.key, self.value))
        late = fault == "wrong cache index" and cache is not None
        q, k = (rope(y, positions, fault) for y in (q, k))
        if cache is not None:
            keys, values, index = cache
            at = jnp.maximum(index - late, 0) if late else index
            k = jax.lax.dynamic_update_slice(keys, k, (0, at, 0, 0))
            v = jax.lax.dynamic_update_slice(values, v, (0, at, 0, 0))
        heads = attend(q, k, v, mask)
        x = x + heads.reshape(*x.shape[:2], N * H) @ self.out
        return x + jax.nn.gelu(norm(x, fault) @ self.wide) @ self.narrow, (k, v)


class Reader(eqx.Module):
    table: jax.Array
    layers: list[Layer]
    fault: str = eqx.field(static=True)

    def embedded(self, tokens):
        return self.table[tokens]

    def logits(self, x):
        return (x if self.fault == "no final norm" else norm(x, self.fault)) @ self.table.T

    def from_rows(self, x, *, positions=None, valid=None, segments=None, prefix=None):
        places = jnp.arange(x.shape[1])[None]
        ahead = 1 if self.fault == "shifted mask" else 0
        mask = places[:, :, None] + ahead >= places[:, None]
        if prefix is not None:
            inside = places <= prefix if self.fault == "leaking prefix" else places < prefix
            mask = mask | (inside[:, :, None] & inside[:, None])
        if valid is not None:
            # What is padding sees itself, and so something.
            mask = mask & (valid[:, None] | jnp.eye(x.shape[1], dtype=bool))
        if segments is not None:
            mask = mask & (segments[:, :, None] == segments[:, None])
        positions = places if positions is None else positions
        for layer in self.layers:
            x, _ = layer(x, positions, mask[:, None], None, self.fault)
        return self.logits(x)

    def __call__(self, tokens, **options):
        return self.from_rows(self.embedded(tokens), **options)

    def decode(self, cache, tokens):
        keys, values, index = cache
        positions = index + jnp.arange(tokens.shape[1])[None]
        mask = jnp.arange(T)[None, None] <= positions[:, :, None]
        x, after = self.embedded(tokens), []
        for number, layer in enumerate(self.layers):
            own = keys[number], values[number], index
            x, kept = layer(x, positions, mask[:, None], own, self.fault)
            after.append(kept)
        new = [jnp.stack(each) for each in zip(*after, strict=True)]
        return self.logits(x), (*new, index + tokens.shape[1])


def made(fault="", seed=0):
    """Returns a model with drawn parameters."""
    generator = np.random.default_rng(seed)

    def draw(*shape):
        return jnp.asarray(generator.normal(size=shape) * shape[0] ** -0.5, jnp.float32)

    shapes = ((D, N * H), (D, N * H), (D, N * H), (N * H, D), (D, F), (F, D))
    layers = [Layer(*(draw(*shape) for shape in shapes)) for _ in range(LAYERS)]
    return Reader(draw(V, D), layers, fault)


def permuted(model, order):
    """Puts heads, each a block of H channels, in another order."""
    channels = (np.arange(N * H).reshape(N, H))[order].ravel()
    turned = [
        dataclasses.replace(
            layer,
            query=layer.query[:, channels],
            key=layer.key[:, channels],
            value=layer.value[:, channels],
            out=layer.out[channels],
        )
        for layer in model.layers
    ]
    return dataclasses.replace(model, layers=turned)


def losses(model, tokens, shift):
    """Returns the mean loss of labels so many places on, in one step or by mistake in more."""
    logits = model(tokens)[:, : T - shift]
    each = jax.nn.log_softmax(logits)[jnp.arange(len(tokens))[:, None],
                                      jnp.arange(T - shift)[None], tokens[:, shift:]]  # fmt: skip
    return -each.mean()


def stripped(model):
    """Returns the model whose branches are silent: its stream is what it is given."""
    quiet = [dataclasses.replace(x, out=0.0 * x.out, narrow=0.0 * x.narrow) for x in model.layers]
    return dataclasses.replace(model, layers=quiet)


def arguments(model, shift=1, most: int | None = 2) -> dict[str, Any]:
    """Returns what a reader gives `run_all` to have his model judged by all that he can."""
    call = quickly(lambda model, tokens, options: model(tokens, **options))
    step = quickly(lambda model, cache, tokens: model.decode(cache, tokens))
    rows = quickly(lambda model, x: model.from_rows(x))
    loss = quickly(losses, static_argnums=2)

    def empty(B, capacity):
        assert capacity == T
        return (*jnp.zeros((2, LAYERS, B, T, N, H)), jnp.zeros((), jnp.int32))

    def fault_of(function):
        return lambda *given: function(*given, model.fault)

    return dict(
        apply=lambda tokens: call(model, tokens, {}),
        again=lambda tokens: quickly(lambda m, t: m(t))(model, tokens),
        vocabulary=V,
        length=T,
        depth=2 * LAYERS,
        terms=max(D, F),
        with_valid=lambda tokens, valid: call(model, tokens, {"valid": valid}),
        with_segments=lambda tokens, segments: call(model, tokens, {"segments": segments}),
        with_prefix=lambda tokens, prefix: call(model, tokens, {"prefix": prefix}),
        with_positions=lambda tokens, at: call(model, tokens, {"positions": at}),
        positions="relative",
        decoding=Decoding(empty, lambda cache, tokens: step(model, cache, tokens), most=most),
        initial=lambda tokens: call(model, tokens, {}),
        loss=lambda ids: loss(model, ids, shift),
        parameters=model,
        # Derived in programs of the laws, which have the compiler's options.
        model=lambda model, tokens: model(tokens),
        heads=N,
        permute_heads=permuted,
        lookup=lambda model, tokens: model.embedded(tokens),
        with_embeddings=lambda model, x: model.from_rows(x),
        tied_table=lambda model: model.table,
        init=lambda seed: made(model.fault, seed),
        width=D,
        readout=lambda x: rows(stripped(model), x),
        norm=NormPart(fault_of(norm), "layer_norm", D, EPSILON),
        parts=Parts(rope={"half": fault_of(rope)}),
    )
