"""How parameters are updated, and at which rate."""

import dataclasses
from typing import ClassVar

from jtransformer.spec.errors import SpecError
from jtransformer.spec.fields import Checked, check, number


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW(Checked):
    """Adam with decoupled decay (Loshchilov and Hutter 2017).

    Attributes:
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of squared gradients.
        epsilon: Added to the root of the second moment.
    """

    kind: ClassVar[str] = "adamw"
    beta1: float = number(0.9, minimum=0, below=1)
    beta2: float = number(0.95, minimum=0, below=1)
    epsilon: float = number(1e-8, above=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(Checked):
    """Adam without decay (Kingma and Ba 2014); the fields are those of AdamW."""

    kind: ClassVar[str] = "adam"
    beta1: float = number(0.9, minimum=0, below=1)
    beta2: float = number(0.999, minimum=0, below=1)
    epsilon: float = number(1e-8, above=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adafactor(Checked):
    """Second moments of rows and columns instead of entries (Shazeer and Stern 2018).

    Attributes:
        decay_rate: Exponent with which the second moment forgets.
        clipping_threshold: Largest root mean square of an update; None clips none.
        factored_from: Matrices with both sides at least so long are factored.
        scale_by_parameter: Updates are scaled by the size of their parameter.
    """

    kind: ClassVar[str] = "adafactor"
    decay_rate: float = number(0.8, above=0, below=1)
    clipping_threshold: float | None = number(1.0, above=0)
    factored_from: int = number(128, minimum=1)
    scale_by_parameter: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lion(Checked):
    """The sign of a mean of gradients (Chen et al. 2023).

    Attributes:
        beta1: Share of the mean in the update.
        beta2: Decay of the mean.
    """

    kind: ClassVar[str] = "lion"
    beta1: float = number(0.9, minimum=0, below=1)
    beta2: float = number(0.99, minimum=0, below=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sgd(Checked):
    """Stochastic gradient descent with momentum.

    Attributes:
        momentum: Decay of the sum of gradients; None is no momentum.
        nesterov: Nesterov's form of it.
    """

    kind: ClassVar[str] = "sgd"
    momentum: float | None = number(0.9, above=0, below=1)
    nesterov: bool = False

    def __post_init__(self):
        check(self)
        if self.nesterov and self.momentum is None:
            raise SpecError("nesterov", "= True needs momentum; set it or use False.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Muon(Checked):
    """Orthogonalised momentum for the matrices of the layers, AdamW for the rest (Jordan 2024).

    Updates of matrices are scaled by 0.2 max(rows, columns)^0.5 (Liu et al. 2025), so that one
    learning rate serves both.

    Attributes:
        momentum: Decay of the sum of gradients.
        iterations: Newton-Schulz iterations.
        beta1: As of AdamW, for what is no matrix of a layer.
        beta2: Likewise.
        epsilon: Likewise.
    """

    kind: ClassVar[str] = "muon"
    momentum: float = number(0.95, minimum=0, below=1)
    iterations: int = number(5, minimum=1, maximum=100)
    beta1: float = number(0.9, minimum=0, below=1)
    beta2: float = number(0.95, minimum=0, below=1)
    epsilon: float = number(1e-8, above=0)


Rule = AdamW | Adam | Adafactor | Lion | Sgd | Muon


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerSpec(Checked):
    """The rule of the update, and what all rules have.

    Attributes:
        learning_rate: Peak of the schedule; a factor of it where it has its own ("noam").
        weight_decay: Each update shrinks every matrix by learning rate x weight decay of itself.
        gradient_clip: Largest global norm of the gradient; None clips nothing.
        rule: What becomes of the gradient.
    """

    learning_rate: float = number(3e-3, above=0)
    weight_decay: float = number(0.1, minimum=0)
    gradient_clip: float | None = number(1.0, above=0)
    rule: Rule = AdamW()

    def __post_init__(self):
        check(self)
        if isinstance(self.rule, Adam) and self.weight_decay:
            raise SpecError(
                "weight_decay",
                f"= {self.weight_decay} with rule.kind 'adam', which has no decay; use 0, or "
                "rule.kind 'adamw'.",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constant(Checked):
    """The peak rate throughout, after a linear warm-up.

    Updates are counted from 1: update t of the warm-up uses t / warmup_steps of the peak.
    """

    kind: ClassVar[str] = "constant"
    warmup_steps: int = number(0, minimum=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupCosine(Checked):
    """A linear warm-up, then half a cosine down to `final_fraction` of the peak."""

    kind: ClassVar[str] = "warmup_cosine"
    warmup_steps: int = number(40, minimum=0)
    final_fraction: float = number(0.1, minimum=0, maximum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupLinear(Checked):
    """A linear warm-up, then a line down to `final_fraction` of the peak."""

    kind: ClassVar[str] = "warmup_linear"
    warmup_steps: int = number(40, minimum=0)
    final_fraction: float = number(0.0, minimum=0, maximum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupInverseSqrt(Checked):
    """A linear warm-up, then peak x (warmup_steps / t)^0.5 (Raffel et al. 2019)."""

    kind: ClassVar[str] = "warmup_inverse_sqrt"
    warmup_steps: int = number(40, minimum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupStableDecay(Checked):
    """A linear warm-up, the peak, then a line down over the last steps (Hu et al. 2024).

    Attributes:
        warmup_steps: Updates of the warm-up.
        decay_steps: Updates of the descent, the last ones of the run.
        final_fraction: Share of the peak at the last update.
    """

    kind: ClassVar[str] = "warmup_stable_decay"
    warmup_steps: int = number(40, minimum=0)
    decay_steps: int = number(80, minimum=1)
    final_fraction: float = number(0.0, minimum=0, maximum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noam(Checked):
    """width^-0.5 min(t^-0.5, t warmup_steps^-1.5), t counted from 1 (Vaswani et al. 2017).

    The rate is this times `optimizer.learning_rate`, which is 1 in the paper.
    """

    kind: ClassVar[str] = "noam"
    warmup_steps: int = number(40, minimum=1)


Schedule = Constant | WarmupCosine | WarmupLinear | WarmupInverseSqrt | WarmupStableDecay | Noam
