"""A decoder written once more, in NumPy float64, with every convention as a knob.

It reads the parameters of a model of ours, shares no code with it, and returns its values by place.
A test turns one knob the wrong way: that is the planted fault.
"""

import dataclasses
import math

import numpy as np

ERF = np.vectorize(math.erf)


@dataclasses.dataclass(frozen=True)
class Conventions:
    """What implementations disagree on; the defaults are those of the models in these tests."""

    placement: str = "pre"
    final_norm: bool = True
    sublayers: str = "sequential"
    norm: str = "layer_norm"
    epsilon: float = 1e-5
    scale_embedding: bool = False
    position: str = "rope"
    pairing: str = "half"
    direction: int = 1
    first: int = 0
    query_ahead: int = 0
    layout: str = "interleaved"
    query_key_norm: str = "none"
    scale: float | None = None
    head_order: str = "repeat"
    mask: str = "causal"
    padding: str = "hidden"
    taken_apart: bool = True
    joined: bool = True
    ffn: str = "gelu"
    gate_is: str = "gate"
    tied_scale: float = 1.0
    label_shift: int = 1
    rounding: str = "float64"


class Reference:
    """The decoder: called with tokens, it returns values by place."""

    def __init__(self, parameters, conventions, only=None):
        self.p, self.c, self.only = parameters, conventions, only

    def __call__(self, tokens, valid=None):
        p, c = self.p, self.c
        out = {}
        x = p["embedding"]["table"][tokens]
        T, D = x.shape[1:]
        if c.scale_embedding:
            x = x * math.sqrt(D)
        places = places_of(T, valid) + c.first
        if c.position == "sinusoidal":
            x = x + sinusoids(places, D, c.layout)
        elif c.position == "learned":
            x = x + p["position"]["table"][places]
        x = out["embedded"] = self.rounded(x)
        layers = sum(name.startswith("layer_") for name in p)
        for layer in range(layers):
            x = self.layer(p[f"layer_{layer}"], x, valid, out, f"layer_{layer}/")
        if c.final_norm:
            x = out["final_norm"] = self.normed(p["final_norm"], x)
        logits = out["logits"] = self.rounded((x * c.tied_scale) @ p["embedding"]["table"].T)
        out["loss"] = loss(logits, tokens, valid, c.label_shift)
        if self.only is not None:
            out = {name: out[name] for name in self.only}
        return out

    def rounded(self, x):
        return x if self.c.rounding == "float64" else x.astype(self.c.rounding).astype(float)

    def layer(self, p, x, valid, out, at):
        c = self.c

        def attend(y):
            return self.attention(p["attention"], y, valid, out, f"{at}attention/")

        def feed(y):
            return self.ffn(p["ffn"], y, out, f"{at}ffn/")

        def norm(name, y):
            return self.normed(p[name], y)

        if c.sublayers != "sequential":
            ys = norm("attention_norm_in", x), norm("attention_norm_in", x)
            if c.sublayers == "parallel":
                ys = ys[0], norm("ffn_norm_in", x)
            x = x + attend(ys[0]) + feed(ys[1])
        else:
            for name, sublayer in (("attention", attend), ("ffn", feed)):
                slots = [slot for slot in p if slot.startswith(f"{name}_norm")]
                if c.placement == "pre":
                    x = x + sublayer(norm(slots[0], x))
                elif c.placement == "post":
                    x = norm(slots[0], x + sublayer(x))
                elif c.placement == "branch":
                    x = x + norm(slots[0], sublayer(x))
                out[f"{at}{name}/stream"] = x = self.rounded(x)
        out[f"{at}stream"] = x
        return x

    def normed(self, p, x):
        if self.c.norm == "layer_norm":
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + self.c.epsilon)
        return self.rounded(x * p["scale"] + p.get("bias", 0.0))

    def attention(self, p, x, valid, out, at):
        c = self.c
        out[f"{at}input"] = x
        q, k, v = (self.projected(p[name], x) for name in ("query", "key", "value"))
        out |= {f"{at}query": q, f"{at}key": k, f"{at}value": v}
        if c.query_key_norm != "none":
            q, k = (self.head_normed(p[f"{n}_norm"], y) for n, y in (("query", q), ("key", k)))
            out |= {f"{at}query_normed": q, f"{at}key_normed": k}
        T, N, K, H = x.shape[1], q.shape[2], k.shape[2], q.shape[3]
        if c.position == "rope":
            places = c.direction * (places_of(T, valid) + c.first)
            q = turned(q, places + c.query_ahead, c.pairing)
            k = turned(k, places, c.pairing)
            out |= {f"{at}query_turned": q, f"{at}key_turned": k}
        expand = {"repeat": lambda y: np.repeat(y, N // K, 2), "tile": lambda y: np.tile(
            y, (1, 1, N // K, 1))}[c.head_order]  # fmt: skip
        scale = H**-0.5 if c.scale is None else c.scale
        scores = out[f"{at}scores"] = np.einsum("bthc,bshc->bhts", q, expand(k)) * scale
        seen = np.broadcast_to(np.tril(np.ones((T, T), bool)), scores.shape)
        if valid is not None and c.padding != "seen":
            seen = seen & (valid if c.padding == "hidden" else ~valid)[:, None, None, :]
        seen = {"causal": seen, "inverted": ~seen, "none": np.ones_like(seen)}[c.mask]
        filled = np.where(seen, scores, -1e9)
        weights = np.exp(filled - filled.max(-1, keepdims=True))
        weights = out[f"{at}weights"] = weights / weights.sum(-1, keepdims=True)
        mixed = out[f"{at}mixed"] = np.einsum("bhts,bshc->bthc", weights, expand(v))
        flat = (mixed if c.joined else np.swapaxes(mixed, 1, 2)).reshape(*x.shape[:2], -1)
        kernel = p["out"]["kernel"]
        y = flat @ kernel.reshape(-1, kernel.shape[-1])
        out[f"{at}output"] = y = self.rounded(y)
        return y

    def projected(self, p, x):
        D, N, H = p["kernel"].shape
        y = self.rounded(x @ p["kernel"].reshape(D, N * H))
        if self.c.taken_apart:
            return y.reshape(*x.shape[:2], N, H)
        return np.swapaxes(y.reshape(x.shape[0], N, x.shape[1], H), 1, 2)

    def head_normed(self, p, x):
        axes = -1 if self.c.query_key_norm == "head" else (-2, -1)
        size = np.sqrt(np.square(x).mean(axes, keepdims=True) + 1e-6)
        return x / size * p["scale"]

    def ffn(self, p, x, out, at):
        out[f"{at}input"] = x
        if "in" in p:
            hidden = out[f"{at}hidden"] = self.rounded(x @ p["in"]["kernel"])
            h = out[f"{at}activation"] = self.rounded(activation(hidden, self.c.ffn))
            last = p["out"]
        else:
            up = "up" if self.c.gate_is == "gate" else "gate"
            gate, up = x @ p[self.c.gate_is]["kernel"], x @ p[up]["kernel"]
            out |= {f"{at}gate": gate, f"{at}up": up}
            h = out[f"{at}activation"] = activation(gate, self.c.ffn)
            h, last = h * up, p["down"]
        out[f"{at}output"] = y = self.rounded(h @ last["kernel"])
        return y


def places_of(T, valid):
    """Counts real tokens from 0."""
    if valid is None:
        return np.arange(T)[None]
    return np.maximum(np.cumsum(valid, 1) - 1, 0)


def turned(x, places, pairing):
    """Turns heads as complex numbers."""
    H = x.shape[-1]
    pair = (x[..., : H // 2], x[..., H // 2 :])
    if pairing == "interleaved":
        pair = (x[..., ::2], x[..., 1::2])
    angle = places[..., None] * 10_000.0 ** (-np.arange(0, H, 2) / H)
    z = (pair[0] + 1j * pair[1]) * np.exp(1j * angle)[:, :, None]
    if pairing == "half":
        return np.concatenate([z.real, z.imag], -1)
    return np.ascontiguousarray(z).view(float).reshape(x.shape)


def sinusoids(places, D, layout):
    """Sines and cosines, in the three layouts."""
    if layout == "concatenated":
        speed = 10_000.0 ** (-np.arange(D // 2) / (D // 2 - 1))
    else:
        speed = 10_000.0 ** (-np.arange(0, D, 2) / D)
    angle = places[..., None] * speed
    pair = np.sin(angle), np.cos(angle)
    if layout == "interleaved":
        return np.stack(pair, -1).reshape(*places.shape, D)
    return np.concatenate(pair, -1)


def activation(x, name):
    """The activations of feed-forward networks and of their gates."""
    if name in ("gelu", "geglu"):
        return 0.5 * x * (1 + ERF(x / math.sqrt(2)))
    if name == "gelu_tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if name == "swiglu":
        return x / (1 + np.exp(-x))
    raise ValueError(name)


def loss(logits, tokens, valid, shift):
    """The mean cross-entropy of the tokens that many places ahead."""
    T = tokens.shape[1]
    labels, scores = tokens[:, shift:], logits[:, : T - shift]
    scores = scores - scores.max(-1, keepdims=True)
    nll = np.log(np.exp(scores).sum(-1)) - np.take_along_axis(scores, labels[..., None], -1)[..., 0]
    valid = np.ones(tokens.shape, bool) if valid is None else valid
    weights = valid[:, shift:] & valid[:, : T - shift]
    return np.array((nll * weights).sum() / weights.sum())
