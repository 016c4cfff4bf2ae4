"""Rows of the rotary, sinusoidal and learned positions, and of the biases by distance.

Functions of integers alone are rows in which their result scales or indexes an array.
"""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from catalogue.row import B, D, H, N, Row, S, T
from jtransformer import functional as F

POSITIONS = np.array([[0, 1, 2], [7, 70_000, 131_072]], np.int32)
# Far out, but not far from each other: in float16 a large bias ends at 65,504.
QUERIES = np.array([[0, 1, 2], [131_050, 131_060, 131_072]], np.int32)
KEYS = np.array([[0, 1, 2, 9, 4], [130_900, 131_040, 131_060, 131_061, 131_073]], np.int32)
RELATIVE = np.array([[-200, -20, -9], [-8, -1, 0], [1, 8, 70_000]], np.int32)
VALID = np.array([[False, True, True, False, True], [True, True, True, False, False]])
ODD = D + 1


def kept(plane, radians, width, theta, scaling):
    """Which share of its speed a plane keeps, by the pieces in which the papers define it."""

    def plane_of(turns):
        """Finds by bisection the plane that turns so often; it may lie between two."""
        low, high = 0.0, 100.0
        for _ in range(60):
            middle = (low + high) / 2
            made = scaling.original_length / (2 * math.pi * theta ** (2 * middle / width))
            low, high = (middle, high) if made > turns else (low, middle)
        return low

    turns = scaling.original_length / (2 * math.pi / radians)
    match scaling:
        case F.Llama3Scaling():
            fast, slow = scaling.high_frequency_factor, scaling.low_frequency_factor
        case F.YarnScaling(ramp="rotations"):
            fast, slow = scaling.beta_fast, scaling.beta_slow
        case F.YarnScaling():
            first, last = plane_of(scaling.beta_fast), plane_of(scaling.beta_slow)
            if scaling.ramp == "whole_planes":
                first, last = math.floor(first), math.ceil(last)
            # Counted backwards, planes are like turns: more of them is faster.
            turns, fast, slow = -plane, -first, -last
    if turns > fast:
        return 1.0
    return 0.0 if turns < slow else (turns - slow) / (fast - slow)


def speeds(width, theta, scaling):
    """Radians per token of each plane, one after the other."""
    if isinstance(scaling, F.NTKScaling):
        # The base with which the last plane is as slow as if positions were divided.
        last = theta ** ((2 - width) / width) / scaling.factor
        theta, scaling = last ** (width / (2 - width)), None
    for plane in range(width // 2):
        radians = theta ** (-2 * plane / width)
        if isinstance(scaling, F.LinearScaling):
            yield radians / scaling.factor
        elif scaling is None:
            yield radians
        else:
            share = kept(plane, radians, width, theta, scaling)
            yield share * radians + (1 - share) * radians / scaling.factor


def turned(x, *, theta=10_000.0, pairing="half", rotary_width=None, scaling=None):
    """Each plane of each head is a complex number times exp(i * angle)."""
    width = rotary_width or x.shape[-1]
    stretch = 1.0
    if isinstance(scaling, F.YarnScaling):
        stretch = scaling.attention_factor or math.log(scaling.factor) / 10 + 1
    out = x.copy()
    for plane, radians in enumerate(speeds(width, theta, scaling)):
        a, b = (plane, plane + width // 2) if pairing == "half" else (2 * plane, 2 * plane + 1)
        turn = stretch * np.exp(1j * POSITIONS * radians)[..., None]
        z = (x[..., a] + 1j * x[..., b]) * turn
        out[..., a], out[..., b] = z.real, z.imag
    return out


def rotary(*, live=(), null=(), **options):
    return Row(
        lambda x, **options: F.rope(x, jnp.array(POSITIONS), **options),
        ((B, T, N, H),),
        turned,
        options=options,
        live=dict(live),
        null=dict(null),
        of="rope",
    )


def extended(scaling, **options):
    null = dict(scaling=dataclasses.replace(scaling, factor=1.0))
    return rotary(scaling=scaling, live=dict(scaling=None), null=null, **options)


def sinusoids(positions, width, layout="interleaved"):
    """One entry after the other; the concatenated form is that of tensor2tensor."""
    out = np.zeros((*positions.shape, width))
    for index in np.ndindex(positions.shape):
        for i in range(width):
            if layout == "interleaved":
                angle = positions[index] / 10_000 ** (2 * (i // 2) / width)
                out[(*index, i)] = math.cos(angle) if i % 2 else math.sin(angle)
            elif i < 2 * (width // 2):
                half = width // 2
                step = math.log(10_000) / (half - 1)
                angle = positions[index] * math.exp(-(i % half) * step)
                out[(*index, i)] = math.sin(angle) if i < half else math.cos(angle)
    return out


def sinusoidal(name, function, positions):
    return Row(
        lambda x, **options: x * function(**options).astype(x.dtype).reshape(-1, T, ODD),
        ((B, T, ODD),),
        lambda x, **options: x * sinusoids(positions, ODD, **options),
        live=dict(layout="concatenated"),
        null=dict(layout="interleaved"),
        of=name,
    )


def bucket(relative, *, bidirectional, n_buckets=32, max_distance=128):
    """The formula of the paper's code for one distance; no boundary of the rows is a whole one."""
    offset = 0
    if bidirectional:
        n_buckets //= 2
        offset = n_buckets if relative > 0 else 0
    elif relative > 0:
        return 0
    distance, exact = abs(int(relative)), n_buckets // 2
    if distance < exact:
        return offset + distance
    wider = math.log(distance / exact) / math.log(max_distance / exact) * (n_buckets - exact)
    return offset + min(exact + int(wider), n_buckets - 1)


def buckets(table, **options):
    return np.stack([[table[bucket(r, **options)] for r in row] for row in RELATIVE])


def by_distance(score):
    """Fills the bias in one entry at a time, from a score of head and relative position."""

    def filled(array, **options):
        out = np.zeros((B, array.shape[-1], T, S))
        for b, n, t, s in np.ndindex(*out.shape):
            out[b, n, t, s] = score(array, n, int(KEYS[b, s] - QUERIES[b, t]), **options)
        return out

    return filled


def t5(rows, bidirectional):
    return Row(
        lambda table, **options: F.t5_bias(table, jnp.array(QUERIES), jnp.array(KEYS), **options),
        ((rows, N),),
        by_distance(
            lambda table, n, relative, **options: table[
                bucket(relative, n_buckets=len(table), **options), n
            ]
        ),
        options=dict(bidirectional=bidirectional),
        live=dict(bidirectional=not bidirectional, max_distance=23),
        null=dict(max_distance=128),
        batched=0,
        of="t5_bias",
    )


def slopes(N):
    """Press's recursion."""
    if math.log2(N).is_integer():
        first = 2 ** (-8 / N)
        return [first * first**n for n in range(N)]
    power = 2 ** math.floor(math.log2(N))
    return slopes(power) + slopes(2 * power)[::2][: N - power]


def counted(x, *, first=0):
    """Looks rows up by counting the real tokens of each row of the batch by hand."""
    out = np.zeros((*VALID.shape, x.shape[-1]))
    for b, row in enumerate(VALID):
        position = first
        for t, is_real in enumerate(row):
            out[b, t] = x[position if is_real else max(first - 1, 0)]
            position += is_real
    return out


ROWS = {
    "rope": rotary(
        live=dict(
            theta=500.0, pairing="interleaved", rotary_width=2, scaling=F.LinearScaling(factor=3.0)
        ),
        null=dict(theta=10_000.0, pairing="half", rotary_width=H, scaling=None),
    ),
    "rope interleaved": rotary(pairing="interleaved", theta=700.0),
    "rope partial": rotary(rotary_width=4),
    "rope linear": extended(F.LinearScaling(factor=2.5)),
    "rope ntk": extended(F.NTKScaling(factor=3.0), pairing="interleaved"),
    "rope llama3": extended(
        F.Llama3Scaling(factor=8.0, original_length=300, low_frequency_factor=0.5)
    ),
    "rope yarn": extended(
        F.YarnScaling(factor=4.0, original_length=300, beta_fast=8.0, beta_slow=0.5)
    ),
    "rope yarn by rotations": extended(
        F.YarnScaling(
            factor=4.0, original_length=300, beta_fast=8.0, beta_slow=0.5, ramp="rotations"
        )
    ),
    "rope yarn partial interleaved": rotary(
        scaling=F.YarnScaling(
            factor=16.0,
            original_length=300,
            beta_fast=8.0,
            beta_slow=0.01,
            attention_factor=1.3,
            ramp="planes",
        ),
        rotary_width=4,
        pairing="interleaved",
    ),
    "rope_frequencies": Row(
        lambda x, **options: x * jnp.asarray(F.rope_frequencies(2 * T, **options), x.dtype)[None],
        ((B, T),),
        lambda x, theta=10_000.0, scaling=None: x * list(speeds(2 * T, theta, scaling)),
        live=dict(theta=500.0, scaling=F.NTKScaling(factor=3.0)),
        null=dict(theta=10_000.0, scaling=F.NTKScaling(factor=1.0)),
        of="rope_frequencies",
    ),
    "sinusoidal_positions": sinusoidal(
        "sinusoidal_positions",
        lambda **options: F.sinusoidal_positions(T, ODD, **options),
        np.arange(T),
    ),
    "sinusoidal_embedding": sinusoidal(
        "sinusoidal_embedding",
        lambda **options: F.sinusoidal_embedding(jnp.array(POSITIONS), ODD, **options),
        POSITIONS,
    ),
    "learned_positions": Row(
        lambda table: F.learned_positions(jnp.array(POSITIONS[:1]), table),
        ((5, D),),
        lambda table: table[POSITIONS[:1]],
        batched=0,
        of="learned_positions",
    ),
    "token_positions": Row(
        lambda x, **options: x[F.token_positions(jnp.array(VALID), **options)],
        ((7, D),),
        counted,
        options=dict(first=2),
        live=dict(first=3),
        null=dict(first=0),
        batched=0,
        of="token_positions",
    ),
    "t5_bucket": Row(
        lambda table, **options: table[F.t5_bucket(jnp.array(RELATIVE), **options)],
        ((32, N),),
        buckets,
        options=dict(bidirectional=True, n_buckets=20, max_distance=77),
        live=dict(bidirectional=False, n_buckets=16, max_distance=23),
        null=dict(n_buckets=32, max_distance=128),
        batched=0,
        of="t5_bucket",
    ),
    "t5_bias": t5(32, bidirectional=True),
    "t5_bias causal": t5(12, bidirectional=False),
    "alibi_slopes": Row(
        lambda x: x * F.alibi_slopes(ODD).astype(x.dtype)[None],
        ((B, ODD),),
        lambda x: x * slopes(ODD),
        of="alibi_slopes",
    ),
    "alibi_bias": Row(
        lambda slopes: F.alibi_bias(slopes, jnp.array(QUERIES), jnp.array(KEYS)),
        ((N,),),
        by_distance(lambda slopes, n, relative: slopes[n] * min(relative, -relative)),
        batched=0,
        of="alibi_bias",
    ),
}
