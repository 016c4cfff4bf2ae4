"""The norms, and where they stand."""

import dataclasses
from typing import ClassVar, Literal

from jtransformer.spec.fields import Checked, number

NormPlacement = Literal["pre", "post", "sandwich", "branch", "deepnorm", "none"]
NORM_SLOTS = {
    "pre": ("norm_in",),
    "post": ("norm_out",),
    "sandwich": ("norm_in", "norm_branch"),
    "branch": ("norm_branch",),
    "deepnorm": ("norm_out",),
    "none": (),
}
"""The norms of the residual formula that each sublayer has."""
ENDS_WITH_NORM = ("pre", "sandwich", "branch")
"""Placements whose stack ends with a norm of its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerNorm(Checked):
    """Layer normalisation with scale, and bias where it is present (Ba et al. 2016)."""

    kind: ClassVar[str] = "layer_norm"
    epsilon: float = number(1e-5, above=0, below=1e-2)
    bias: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class RMSNorm(Checked):
    """Root-mean-square normalisation with scale (Zhang and Sennrich 2019).

    Attributes:
        epsilon: Added to the mean square.
        unit_offset: The stored scale is what is added to 1, as in Gemma; it starts at 0.
    """

    kind: ClassVar[str] = "rms_norm"
    epsilon: float = number(1e-6, above=0, below=1e-2)
    unit_offset: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleNorm(Checked):
    """Unit length times one learned number, which starts at sqrt(width) (Nguyen 2019)."""

    kind: ClassVar[str] = "scale_norm"
    epsilon: float = number(1e-5, above=0, below=1e-2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicTanh(Checked):
    """A tanh in the place of a norm, with a learned slope (Zhu et al. 2025).

    Attributes:
        alpha: Slope at the start.
    """

    kind: ClassVar[str] = "dynamic_tanh"
    alpha: float = number(0.5, above=0)


Norm = LayerNorm | RMSNorm | ScaleNorm | DynamicTanh
