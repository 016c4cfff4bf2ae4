"""What a run is: a model, its data, how it is trained, and a seed."""

import dataclasses
from typing import ClassVar

from jtransformer.spec.errors import SpecError
from jtransformer.spec.fields import check, number
from jtransformer.spec.model import Learned, ModelSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kjv:
    """The King James Bible as bytes: 4.2 MB of English that a package ships."""

    kind: ClassVar[str] = "kjv"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFile:
    """Any file, read as bytes. Its content, not its name, is part of a run's identity."""

    kind: ClassVar[str] = "text_file"
    path: str = ""

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Bytes of a text, split by position: train, then validation, then test.

    Attributes:
        source: Where the text comes from.
        length: Tokens a model sees at once [T].
        validation_fraction: Share of the text that selects settings.
        test_fraction: Share of the text that is read once, at the end of a run.
    """

    source: Kjv | TextFile = Kjv()
    length: int = number(64, minimum=1)
    validation_fraction: float = number(0.02, above=0, below=0.5)
    test_fraction: float = number(0.02, above=0, below=0.5)

    def __post_init__(self):
        check(self)
        if isinstance(self.source, TextFile) and not self.source.path:
            raise SpecError("source.text_file.path", "is empty; give the file to read.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """AdamW with decoupled decay on matrices only (Loshchilov and Hutter 2019).

    Attributes:
        learning_rate: Peak of the schedule.
        weight_decay: Each step takes learning rate x weight decay off every matrix.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of squared gradients.
        epsilon: Added to the root of the second moment.
        gradient_clip: Largest global norm of the gradient; None clips nothing.
    """

    learning_rate: float = number(3e-3, above=0)
    weight_decay: float = number(0.1, minimum=0)
    beta1: float = number(0.9, minimum=0, below=1)
    beta2: float = number(0.95, minimum=0, below=1)
    epsilon: float = number(1e-8, above=0)
    gradient_clip: float | None = number(1.0, above=0)

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constant:
    """The peak rate throughout, after a linear warm-up.

    Updates are counted from 1: update t of the warm-up uses t / warmup_steps of the peak.
    """

    kind: ClassVar[str] = "constant"
    warmup_steps: int = number(0, minimum=0)

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupCosine:
    """A linear warm-up, then half a cosine down to `final_fraction` of the peak."""

    kind: ClassVar[str] = "warmup_cosine"
    warmup_steps: int = number(40, minimum=0)
    final_fraction: float = number(0.1, minimum=0, maximum=1)

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """How long and in what portions a run is trained.

    Attributes:
        steps: Optimizer updates.
        batch_size: Sequences per update [B].
        log_every: Updates between rows of metrics.
        evaluate_every: Updates between evaluations; the last update is always evaluated.
        checkpoint_every: Updates between checkpoints; every evaluation is followed by one.
        evaluation_batch_size: Sequences per evaluation step; changes speed, not the result
            beyond rounding.
    """

    steps: int = number(400, minimum=1)
    batch_size: int = number(16, minimum=1)
    log_every: int = number(20, minimum=1)
    evaluate_every: int = number(200, minimum=1)
    checkpoint_every: int = number(200, minimum=1)
    evaluation_batch_size: int = number(64, minimum=1)

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run, completely.

    Attributes:
        seed: Decides initial values and data order, alike for every arm of a sweep.
    """

    model: ModelSpec = ModelSpec()
    data: DataSpec = DataSpec()
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: Constant | WarmupCosine = WarmupCosine()
    training: TrainingSpec = TrainingSpec()
    seed: int = number(0, minimum=0, maximum=2**31 - 1)

    def __post_init__(self):
        check(self)
        _check_rules(self)


def _check_rules(run: RunSpec) -> None:
    """Rules over several parts of a run; there is no other place for them."""
    if run.model.vocabulary < 256:
        raise SpecError(
            "model.vocabulary",
            f"must be at least 256 for bytes, got {run.model.vocabulary}; use 256.",
        )
    position = run.model.position
    if isinstance(position, Learned) and position.max_length < run.data.length:
        raise SpecError(
            "model.position.learned.max_length",
            f"must reach data.length, got max_length={position.max_length}, "
            f"data.length={run.data.length}; use at least {run.data.length}.",
        )
    if run.schedule.warmup_steps > run.training.steps:
        raise SpecError(
            f"schedule.{run.schedule.kind}.warmup_steps",
            f"must not exceed training.steps, got {run.schedule.warmup_steps} and "
            f"{run.training.steps}; the peak rate would never be reached.",
        )
