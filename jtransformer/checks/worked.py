"""Figures worked out by hand, in double precision, and what is not in need of a block.

They reproduce to six digits. In two dimensions a norm hides differences, so that values on the way
are compared and never an output alone.
"""

import importlib.resources
import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.checks.compiling import quickly
from jtransformer.checks.law import Law
from jtransformer.checks.parts import Parts
from jtransformer.checks.report import Finding, NotApplicable
from jtransformer.checks.subject import Subject
from jtransformer.checks.tolerance import exact

GROUP = "worked figures"
UNIT = "relative error, six digits allowed"
SIX_DIGITS = 5e-7
"""Half a unit of the sixth digit behind the first."""

Values = Mapping[str, Any]


def figures(name: str) -> Any:
    """Reads the figures of a block."""
    text = (
        importlib.resources.files("jtransformer.checks").joinpath("worked.json").read_text("utf-8")
    )
    return json.loads(text)[name]


def given(values: Any) -> jax.Array:
    """Returns an input of a computation, which the compiler does not carry out beforehand."""
    return jax.lax.optimization_barrier(jnp.asarray(values, jnp.float64))


def compared(pairs: Mapping[str, tuple[Any, Any]]) -> Finding:
    """Says how far computed values are from the figures.

    Args:
        pairs: What was computed and what it should be, by name. Errors are relative to the
            largest number of each, and to 1 where that is less.
    """
    worst, where = 0.0, ""
    for name, (found, figure) in pairs.items():
        found, figure = exact(found), np.asarray(figure, np.float64)
        error = float("nan")
        if found.shape == figure.shape:
            error = float(np.abs(found - figure).max() / max(1.0, np.abs(figure).max()))
        if not error <= worst:
            worst, where = error, f"farthest: {name}"
        if not np.isfinite(error):
            break
    return Finding(worst, UNIT, SIX_DIGITS, detail=where)


def worked(needs: tuple[str, ...], compute: Callable[[Parts], Any]) -> Any:
    """Makes a check of a computation on parts, in double precision, as one program."""

    def check(subject: Subject) -> Finding | NotApplicable:
        parts = subject.parts
        assert parts is not None
        missing = [name for name in needs if getattr(parts, name) is None]
        if missing:
            return NotApplicable(f"{' and '.join(missing)} not among the parts")

        def arrays() -> dict[str, tuple[Any, Any]]:
            return {
                name: (found, jnp.asarray(figure))
                for name, (found, figure) in compute(parts).items()
            }

        with jax.enable_x64(True):
            pairs = quickly(arrays)()
        return compared(pairs) if pairs else NotApplicable("none of its parts was given")

    return check


def _activations(parts: Parts) -> dict[str, tuple[Any, Any]]:
    known, pairs = figures("activations"), {}
    assert parts.activations is not None
    u = given(known["u"])
    for name, function in parts.activations.items():
        if name in known:
            pairs[name] = (function(u), known[name])
        if f"{name}_grad" in known:
            slopes = jax.vmap(jax.grad(function))(u)
            pairs[f"slope of {name}"] = (slopes, known[f"{name}_grad"])
        zero = known.get(f"{name}_slope_zero")
        if zero is not None:
            pairs[f"zero slope of {name}"] = (jax.grad(function)(given(zero)), 0.0)
    return pairs


def _norms(parts: Parts) -> dict[str, tuple[Any, Any]]:
    pairs = {}
    for name in ("layer_norm", "rms_norm"):
        norm = getattr(parts, name)
        for case in figures("norms")["cases"]:
            if norm is not None and name in case:
                x = given(case["x"])
                key = f"{name} of {case['x']} with epsilon {case['epsilon']}"
                pairs[key] = (norm(x, case["epsilon"]), case[name])
    return pairs


def _norm_jacobians(parts: Parts) -> dict[str, tuple[Any, Any]]:
    known, pairs = figures("norm_jacobians"), {}
    x, gamma = (given(known[name]) for name in ("x", "gamma"))
    for name in ("layer_norm", "rms_norm"):
        norm = getattr(parts, name)
        if norm is None:
            continue

        def scaled(x: Any, gamma: Any, norm: Any = norm) -> Any:
            return gamma * norm(x, known["epsilon"])

        upstream = given(known["upstream"])
        by_x, by_scale = jax.vjp(scaled, x, gamma)[1](upstream)
        pairs[f"Jacobian of {name}"] = (jax.jacrev(scaled)(x, gamma), known[f"{name}_jacobian"])
        pairs[f"gradient through {name}"] = (by_x, known[f"{name}_vjp"])
        pairs[f"gradient of the scale of {name}"] = (by_scale, known[f"{name}_scale_grad"])
    return pairs


def _rope(parts: Parts) -> dict[str, tuple[Any, Any]]:
    known, pairs = figures("rope"), {}
    assert parts.rope is not None
    q, k = (given(known[name])[None, None, None] for name in ("q", "k"))
    for pairing, turn in parts.rope.items():
        own = known[pairing]

        def at(x: Any, position: int, turn: Any = turn) -> Any:
            return turn(x, jnp.full((1, 1), position, jnp.int32))[0, 0, 0]

        pairs[f"query at 5, {pairing}"] = (at(q, 5), own["q_at_5"])
        pairs[f"key at 2, {pairing}"] = (at(k, 2), own["k_at_2"])
        for i, j in ((5, 2), (20, 17), (20, 10)):
            score = jnp.sum(at(q, i) * at(k, j))
            pairs[f"score of {i} and {j}, {pairing}"] = (score, own[f"score_{i}_{j}"])
    return pairs


def _sinusoidal(parts: Parts) -> dict[str, tuple[Any, Any]]:
    table = np.asarray(figures("sinusoidal")["interleaved_4x6"])
    assert parts.sinusoidal is not None
    return {"table": (parts.sinusoidal(*table.shape), table)}


def _masks(parts: Parts) -> dict[str, tuple[Any, Any]]:
    known, pairs = figures("masks"), {}
    assert parts.causal_mask is not None and parts.attention is not None
    drawn = {"causal_4": parts.causal_mask(4)}
    if parts.prefix_mask is not None:
        drawn |= {"prefix_4_2": parts.prefix_mask(4, 2), "prefix_6_3": parts.prefix_mask(6, 3)}
    for name, mask in drawn.items():
        pairs[name] = (jnp.asarray(mask).reshape(jnp.shape(mask)[-2:]), known[name])
    # A mask acts before the softmax: the visible value alone is read.
    forms = known["mask_forms"]
    k, v = (given(forms[name])[None, :, None, None] for name in ("scores", "values"))
    out = parts.attention(jnp.ones((1, 1, 1, 1)), k, v, jnp.asarray([forms["visible"]]))
    pairs["one visible key"] = (out[0, 0, 0, 0], forms["right"])
    return pairs


def _two_queries(parts: Parts) -> dict[str, tuple[Any, Any]]:
    known = figures("two_query_attention")
    assert parts.attention is not None and parts.attention_weights is not None
    q, k, v = (given(known[name])[None, :, None] for name in "qkv")
    pairs = {}
    for name, factor in (("scaled", 1.0), ("unscaled", q.shape[-1] ** 0.5)):
        pairs[f"{name} weights"] = (
            parts.attention_weights(factor * q, k, None)[0, 0],
            known[f"{name}_weights"],
        )
        out = parts.attention(factor * q, k, v, None)[0, :, 0]
        pairs[f"{name} output"] = (out, known[f"{name}_out"])
    return pairs


def _losses(parts: Parts) -> dict[str, tuple[Any, Any]]:
    known = figures("losses")
    assert parts.cross_entropy is not None
    logits, weights = (given(known[name]) for name in ("logits", "weights"))
    labels = jnp.asarray(known["labels"], jnp.int32)
    plain = parts.cross_entropy(logits, labels, weights, 0.0)
    smoothed = parts.cross_entropy(logits, labels, weights, known["eta"])
    return {
        "mean": (plain, known["nll_mean"]),
        "smoothed mean": (smoothed, known["smoothed_uniform_mean"]),
    }


LAWS = (
    Law(GROUP, "activations", ("parts",), worked(("activations",), _activations)),
    Law(GROUP, "norms", ("parts",), worked((), _norms)),
    Law(GROUP, "Jacobians of norms", ("parts",), worked((), _norm_jacobians)),
    Law(
        GROUP,
        "two queries",
        ("parts",),
        worked(("attention", "attention_weights"), _two_queries),
    ),
    Law(GROUP, "masks", ("parts",), worked(("causal_mask", "attention"), _masks)),
    Law(GROUP, "rotary positions", ("parts",), worked(("rope",), _rope)),
    Law(GROUP, "sinusoidal positions", ("parts",), worked(("sinusoidal",), _sinusoidal)),
    Law(GROUP, "losses", ("parts",), worked(("cross_entropy",), _losses)),
)
