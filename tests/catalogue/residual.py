"""Rows of the residual wiring: every placement, its multipliers, and parallel sublayers."""

import functools

import jax
import numpy as np

from catalogue import norms
from catalogue.activations import POINTWISE, dropped
from catalogue.row import B, D, Row, T
from jtransformer import functional as F

X, W = (B, T, D), (D, D)
KEY = jax.random.key(5)
ALPHA = 1.8


def sublayer(h, w):
    return F.linear(F.tanh(h), w)


def other_sublayer(h, w):
    return F.linear(F.silu(h), w)


def branch(h, w, name="tanh"):
    """The sublayer in NumPy: one hidden unit after the other."""
    out = np.zeros_like(h)
    for d in range(D):
        out += np.multiply.outer(np.vectorize(POINTWISE[name])(h[..., d]), w[d])
    return out


def numpy_of(norm):
    names = {"layer_norm": norms.layer_norm, "rms_norm": norms.rms_norm}
    return (lambda x: x) if norm is None else names[norm.__name__]


def wired(x, w, **options):
    return F.residual(x, lambda h: sublayer(h, w), **options)


def scaled(x, w, scale):
    return F.residual(x, lambda h: sublayer(h, w), branch_scale=scale)


PAPERS = {
    "post": lambda x, f: norms.layer_norm(x + f(x)),
    "pre": lambda x, f: x + f(norms.layer_norm(x)),
    "sandwich": lambda x, f: x + norms.layer_norm(f(norms.layer_norm(x))),
    "branch": lambda x, f: x + norms.layer_norm(f(x)),
    "deepnorm": lambda x, f: norms.layer_norm(ALPHA * x + f(x)),
    "none": lambda x, f: x + f(x),
}


def placed(name):
    """The reference knows the placement by its name, the row by the table."""
    placement = F.PLACEMENTS[name]
    options = dict.fromkeys(placement.norms, F.layer_norm)
    if placement.deepnorm:
        options["stream_scale"] = ALPHA
    return Row(
        wired,
        (X, W),
        lambda x, w, **_: PAPERS[name](x, lambda h: branch(h, w)),
        options=options,
        of="residual",
    )


def whole_formula(x, w, *, norm_in, norm_branch, norm_out, branch_scale, stream_scale, **drop):
    """From the outside in, as the sentence of the paper names its parts."""
    inner = numpy_of(norm_branch)(branch(numpy_of(norm_in)(x), w))
    kept = dropped(inner, rate=drop["dropout_rate"], key=drop["key"])
    return numpy_of(norm_out)(sum([stream_scale * x, branch_scale * kept]))


def parallel(x, w, v, **options):
    both = (lambda h: sublayer(h, w), lambda h: other_sublayer(h, v))
    return F.parallel_residual(x, both, **options)


def parallel_formula(x, w, v, *, norms_in=None, norms_branch=None, norm_out=None, **rest):
    each_in = norms_in if isinstance(norms_in, tuple) else (norms_in, norms_in)
    each_branch = norms_branch if isinstance(norms_branch, tuple) else (norms_branch,) * 2
    keys = [None] * 2 if rest.get("key") is None else jax.random.split(rest["key"])
    out = rest.get("stream_scale", 1) * x
    for i, (kernel, name) in enumerate(((w, "tanh"), (v, "silu"))):
        inner = numpy_of(each_branch[i])(branch(numpy_of(each_in[i])(x), kernel, name))
        if keys[i] is not None:
            inner = dropped(inner, rate=rest["dropout_rate"], key=keys[i])
        out = out + rest.get("branch_scale", 1) * inner
    return numpy_of(norm_out)(out)


MULTIPLIERS = dict(branch_scale=0.7, stream_scale=1.3, dropout_rate=0.4, key=KEY)
OTHERS = dict(branch_scale=0.2, stream_scale=0.0, dropout_rate=0.6, key=jax.random.key(6))
NEUTRAL = dict(branch_scale=1.0, stream_scale=1.0, dropout_rate=0.0, key=None)
BOTH = (F.layer_norm, F.rms_norm)
AROUND = ("norm_in", "norm_branch", "norm_out")
wide = functools.partial(F.layer_norm, epsilon=0.5)

ROWS = {
    **{f"residual {name}": placed(name) for name in F.PLACEMENTS},
    "residual without the stream": Row(
        wired,
        (X, W),
        lambda x, w, **_: branch(x, w),
        options=dict(stream_scale=0.0),
        of="residual",
    ),
    "residual with everything": Row(
        wired,
        (X, W),
        whole_formula,
        options=dict(
            norm_in=F.layer_norm, norm_branch=F.rms_norm, norm_out=F.layer_norm, **MULTIPLIERS
        ),
        live=dict(norm_in=F.rms_norm, norm_branch=wide, norm_out=F.rms_norm, **OTHERS),
        null=dict(**dict.fromkeys(AROUND, F.identity), **NEUTRAL),
        of="residual",
    ),
    "residual rezero": Row(
        scaled, (X, W, ()), lambda x, w, scale: x + scale * branch(x, w), of="residual"
    ),
    "residual layerscale": Row(
        scaled, (X, W, (D,)), lambda x, w, scale: x + branch(x, w) @ np.diag(scale), of="residual"
    ),
    "parallel_residual": Row(parallel, (X, W, W), parallel_formula, of="parallel_residual"),
    "parallel_residual shared": Row(
        parallel,
        (X, W, W),
        parallel_formula,
        options=dict(norms_in=F.layer_norm),
        of="parallel_residual",
    ),
    "parallel_residual with everything": Row(
        parallel,
        (X, W, W),
        parallel_formula,
        options=dict(norms_in=BOTH, norms_branch=BOTH, norm_out=F.rms_norm, **MULTIPLIERS),
        live=dict(
            norms_in=F.rms_norm, norms_branch=(F.layer_norm, wide), norm_out=F.layer_norm, **OTHERS
        ),
        null=dict(norms_in=None, norms_branch=F.identity, norm_out=F.identity, **NEUTRAL),
        of="parallel_residual",
    ),
}
