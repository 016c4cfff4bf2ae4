"""Frequencies of rotary positions, and the ways to extend the length that a model was trained on.

Plane i of a rotary width W turns by `theta^(-2i/W)` radians per token: one turn takes a
wavelength of `2π theta^(2i/W)` tokens. An extension by a `factor` slows the planes down; they
differ in which. With a factor of 1 each is no extension at all.

Sources. Linear: Chen et al. 2023, sec. 2.3, https://arxiv.org/abs/2306.15595. NTK: bloc97 2023,
https://www.reddit.com/r/LocalLLaMA/comments/14lz7j5, written down in sec. 3.1 of the YaRN paper.
Llama 3: Meta's code (`apply_scaling`),
https://github.com/meta-llama/llama-models/blob/main/models/llama3/model.py; the paper,
https://arxiv.org/abs/2407.21783, sec. 3.2, states the base 500,000 alone. YaRN: Peng et al. 2023,
sec. 3, https://arxiv.org/abs/2309.00071, and their code, https://github.com/jquesnelle/yarn,
which differs from the paper in the ramp: see `YarnScaling.ramp`.

Where we differ: all is computed in float64 (published code: float32).
"""

import dataclasses
import math
from typing import Literal

import numpy as np
from jaxtyping import Float64


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearScaling:
    """Turns every plane `factor` times more slowly: positions are divided by it.

    Attributes:
        factor: New length over trained length, at least 1.
    """

    factor: float

    def __post_init__(self):
        _check_factor(self.factor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NTKScaling:
    """Raises the base to `theta * factor^(W / (W - 2))`.

    The first plane keeps its speed and the last one turns `factor` times more slowly.

    Attributes:
        factor: New length over trained length, at least 1.
    """

    factor: float

    def __post_init__(self):
        _check_factor(self.factor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama3Scaling:
    """Slows down the planes that turn few times within the trained length.

    With `r = original_length / wavelength`, planes of `r >= high_frequency_factor` stay as they
    are, those of `r <= low_frequency_factor` turn `factor` times more slowly, and between the
    two the speed is interpolated linearly in r.

    Attributes:
        factor: New length over trained length, at least 1; 8 in Llama 3.1.
        original_length: Trained length, in tokens; 8192 in Llama 3.1.
        low_frequency_factor: Turns within the trained length, at and below which all is slowed.
        high_frequency_factor: Turns within the trained length, at and above which nothing is.
    """

    factor: float
    original_length: int
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def __post_init__(self):
        _check_factor(self.factor)
        _check_length(self.original_length)
        if not 0 < self.low_frequency_factor < self.high_frequency_factor < math.inf:
            raise ValueError(
                "low_frequency_factor must be positive and below a finite high_frequency_factor, "
                f"got low_frequency_factor={self.low_frequency_factor}, "
                f"high_frequency_factor={self.high_frequency_factor}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class YarnScaling:
    """Slows down the planes that turn few times, and sharpens the attention.

    Planes that turn at least `beta_fast` times within the trained length stay as they are, those
    that turn at most `beta_slow` times turn `factor` times more slowly, and a ramp lies between.
    The turned channels of queries and keys are also multiplied by the attention factor.

    Attributes:
        factor: New length over trained length, at least 1.
        original_length: Trained length, in tokens.
        beta_fast: Turns within the trained length, at and above which a plane is kept.
        beta_slow: Turns within the trained length, at and below which a plane is slowed fully.
        attention_factor: Multiplies cosines and sines; None is `0.1 ln(factor) + 1`.
        ramp: What the ramp is linear in. "whole_planes": the index of the plane, between the two
            planes at which the turns are the two betas, rounded outwards; the authors' code and
            almost every published model. "planes": the same, not rounded (gpt-oss). "rotations":
            the number of turns, as in the paper's equations.
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    ramp: Literal["whole_planes", "planes", "rotations"] = "whole_planes"

    def __post_init__(self):
        _check_factor(self.factor)
        _check_length(self.original_length)
        if not 0 < self.beta_slow < self.beta_fast < math.inf:
            raise ValueError(
                "beta_slow must be positive and below a finite beta_fast, got "
                f"beta_slow={self.beta_slow}, beta_fast={self.beta_fast}."
            )
        if self.attention_factor is not None and not 0 < self.attention_factor < math.inf:
            raise ValueError(
                "attention_factor must be positive and finite, got "
                f"attention_factor={self.attention_factor}; None computes it from the factor."
            )
        if self.ramp not in ("whole_planes", "planes", "rotations"):
            raise ValueError(
                f"Unknown ramp {self.ramp!r}; use 'whole_planes', 'planes' or 'rotations'."
            )


RopeScaling = LinearScaling | NTKScaling | Llama3Scaling | YarnScaling
"""A way to extend the trained length; None in its place is none."""


def rope_frequencies(
    width: int, *, theta: float = 10_000.0, scaling: RopeScaling | None = None
) -> Float64[np.ndarray, " P"]:
    """Computes how far each plane of `rope` turns per token.

    Without an extension, plane i turns by `theta^(-2i/width)`.

    Args:
        width: Rotary width: channels that are turned, two for each plane.
        theta: Base of the frequency ladder.
        scaling: An extension of the trained length; None is none.

    Returns:
        Radians per token in float64, as a NumPy array: they are known before anything runs.

    Raises:
        ValueError: If the width is odd, `theta` is not positive, or the extension is not defined
            for them.
    """
    if width < 2 or width % 2:
        raise ValueError(f"rope needs an even rotary width of at least 2, got width={width}.")
    if not theta > 0:
        raise ValueError(f"theta must be positive, got theta={theta}.")
    radians_per_token_P = float(theta) ** (-np.arange(0, width, 2) / width)
    match scaling:
        case None:
            return radians_per_token_P
        case LinearScaling(factor=factor):
            return radians_per_token_P / factor
        case NTKScaling(factor=factor):
            if width == 2:
                raise ValueError(
                    "NTKScaling changes the base, which a single plane does not have, got width=2; "
                    "use LinearScaling."
                )
            return rope_frequencies(width, theta=theta * float(factor) ** (width / (width - 2)))
        case Llama3Scaling(low_frequency_factor=low, high_frequency_factor=high):
            kept_P = _kept_by_turns(radians_per_token_P * scaling.original_length, low, high)
        case YarnScaling(beta_slow=low, beta_fast=high, ramp="rotations"):
            kept_P = _kept_by_turns(radians_per_token_P * scaling.original_length, low, high)
        case YarnScaling():
            kept_P = _kept_by_index(width, theta, scaling)
        case _:
            raise ValueError(
                "scaling must be None, LinearScaling, NTKScaling, Llama3Scaling or YarnScaling, "
                f"got scaling={scaling!r}."
            )
    kept_P = np.clip(kept_P, 0.0, 1.0)
    # Exactly the old speed where all of it is kept, and where the factor is 1.
    return radians_per_token_P * (kept_P + (1.0 - kept_P) / scaling.factor)


def attention_factor(scaling: RopeScaling | None) -> float:
    """Computes what an extension multiplies cosines and sines by: 1 for all but YaRN."""
    if not isinstance(scaling, YarnScaling):
        return 1.0
    if scaling.attention_factor is None:
        return 0.1 * math.log(scaling.factor) + 1.0
    return scaling.attention_factor


def _kept_by_turns(radians_P: np.ndarray, low: float, high: float) -> np.ndarray:
    """Computes the share that each plane keeps by a ramp over its turns in the trained length."""
    return (radians_P / (2 * math.pi) - low) / (high - low)


def _kept_by_index(width: int, theta: float, scaling: YarnScaling) -> np.ndarray:
    """Computes the share that each plane keeps by a ramp over the indices of the planes."""
    if not theta > 1:
        raise ValueError(
            f"The ramp {scaling.ramp!r} of YarnScaling needs theta above 1, got theta={theta}; "
            "use ramp='rotations'."
        )

    def plane_of(turns: float) -> float:
        wavelength = scaling.original_length / turns
        return width * math.log(wavelength / (2 * math.pi)) / (2 * math.log(theta))

    first, last = plane_of(scaling.beta_fast), plane_of(scaling.beta_slow)
    if scaling.ramp == "whole_planes":
        first, last = math.floor(first), math.ceil(last)
    # The bounds of the authors' code, of which the upper one counts channels, not planes.
    first, last = max(first, 0), min(last, width - 1)
    return (last - np.arange(width // 2)) / max(last - first, 1e-3)


def _check_factor(factor: float) -> None:
    if not 1 <= factor < math.inf:
        raise ValueError(f"An extension needs a finite factor of at least 1, got factor={factor}.")


def _check_length(original_length: int) -> None:
    if not 1 <= original_length < math.inf:
        raise ValueError(
            f"original_length must be a number of tokens, got original_length={original_length}."
        )
