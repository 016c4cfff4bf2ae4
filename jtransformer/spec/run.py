"""What a run is: a model, its data, what it is asked, how it is trained, and a seed."""

import dataclasses
import math
from typing import ClassVar

from jtransformer.spec.attention import LinearAttention
from jtransformer.spec.data import Bytes, DataSpec
from jtransformer.spec.errors import SpecError
from jtransformer.spec.fields import Checked, check, number
from jtransformer.spec.heads import TokenHead
from jtransformer.spec.model import ModelSpec
from jtransformer.spec.objectives import (
    CausalLM,
    LossSpec,
    MaskedLM,
    Objective,
    PrefixLM,
    Seq2Seq,
    SpanCorruption,
)
from jtransformer.spec.optimizer import OptimizerSpec, Schedule, WarmupCosine, WarmupStableDecay
from jtransformer.spec.positions import Learned
from jtransformer.spec.sources import Kjv, TextFile
from jtransformer.spec.spans import RowLengths, row_lengths
from jtransformer.spec.stacks import Decoder, Encoder, EncoderDecoder, PrefixDecoder

STACKS = {
    CausalLM: Decoder,
    PrefixLM: PrefixDecoder,
    Seq2Seq: EncoderDecoder,
    MaskedLM: Encoder,
    SpanCorruption: EncoderDecoder,
}
"""The stack that an objective needs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoEarlyStopping(Checked):
    """Every run makes all its updates."""

    kind: ClassVar[str] = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience(Checked):
    """A run ends when its validation loss has not fallen for a while.

    Attributes:
        evaluations: Evaluations in a row without a new best before it ends.
        least_gain: Nats by which a new best must lie below the last.
    """

    kind: ClassVar[str] = "patience"
    evaluations: int = number(3, minimum=1)
    least_gain: float = number(0.0, minimum=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSpec(Checked):
    """How long and in what portions a run is trained.

    Attributes:
        steps: Optimizer updates.
        batch_size: Rows per update [B].
        microbatches: Parts of a batch whose gradients are computed one after the other and added
            up, so that memory holds the activations of one; a divisor of `batch_size`. The update
            is that of the whole batch, up to rounding, however many tokens each part scores.
        log_every: Updates between rows of metrics.
        evaluate_every: Updates between evaluations; the last update is always evaluated.
        checkpoint_every: Updates between checkpoints; every evaluation is followed by one.
        evaluation_batch_size: Rows per evaluation step; changes speed, not the result beyond
            rounding.
        average_decay: Decay of an exponential mean of the parameters, which is then evaluated in
            their place; None is no mean.
        early_stopping: Whether a run may end before its last update.
        probe_steps: Updates behind which the inside of the model is measured, in rising order; 0 is
            before the first. To measure moves no result.
    """

    steps: int = number(400, minimum=1)
    batch_size: int = number(16, minimum=1)
    microbatches: int = number(1, minimum=1)
    log_every: int = number(20, minimum=1)
    evaluate_every: int = number(200, minimum=1)
    checkpoint_every: int = number(200, minimum=1)
    evaluation_batch_size: int = number(64, minimum=1)
    average_decay: float | None = number(None, above=0, below=1)
    early_stopping: NoEarlyStopping | Patience = NoEarlyStopping()
    probe_steps: tuple[int, ...] = ()

    def __post_init__(self):
        check(self)
        if self.batch_size % self.microbatches:
            common = math.gcd(self.batch_size, self.microbatches)
            raise SpecError(
                "microbatches",
                f"must divide batch_size, got microbatches={self.microbatches}, "
                f"batch_size={self.batch_size}; use {common}.",
            )
        probed, steps = self.probe_steps, self.steps
        if probed != (ordered := tuple(sorted(set(probed)))):
            raise SpecError("probe_steps", f"must rise, got {list(probed)}; use {list(ordered)}.")
        if probed and not (0 <= probed[0] and probed[-1] <= steps):
            raise SpecError(
                "probe_steps",
                f"must lie between 0 and training.steps, got {list(probed)} and steps={steps}; "
                "leave out the others.",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSpec(Checked):
    """One training run, completely.

    Attributes:
        start_from: Directory of a run, or of a Hugging Face model, whose parameters this run starts
            with where path and shape agree; the others, and all without it, are drawn. Its
            content, not its name, is part of a run's identity.
        seed: Decides initial values, data order, masking and dropout, alike for every arm of a
            sweep.
    """

    model: ModelSpec = ModelSpec()
    data: DataSpec = DataSpec()
    objective: Objective = CausalLM()
    loss: LossSpec = LossSpec()
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: Schedule = WarmupCosine()
    training: TrainingSpec = TrainingSpec()
    start_from: str | None = None
    seed: int = number(0, minimum=0, maximum=2**31 - 1)

    def __post_init__(self):
        check(self)
        if self.start_from == "":
            raise SpecError("start_from", "is empty; give a directory, or None.")
        for rule in (_objective, _rows, _lengths, _schedule, _chunk):
            rule(self)

    @property
    def row_lengths(self) -> RowLengths:
        """The tokens of each row of a batch.

        Raises:
            SpecError: If span corruption would drop all of a row.
        """
        return row_lengths(self.data, self.objective)

    @property
    def loss_unit(self) -> str:
        """What a loss is per: a byte where every scored token is one, else a token."""
        data = self.data
        is_bytes = isinstance(data.source, Kjv | TextFile) and isinstance(data.tokenizer, Bytes)
        has_sentinels = isinstance(self.objective, SpanCorruption)
        return "nats/byte" if is_bytes and not has_sentinels else "nats/token"


def _objective(run: RunSpec) -> None:
    needed, found = STACKS[type(run.objective)], run.model.stack
    if not isinstance(found, needed):
        raise SpecError(
            "objective.kind",
            f"= {run.objective.kind!r} needs model.stack.kind {needed.kind!r}, got "
            f"{found.kind!r}; change one of them.",
        )
    if not isinstance(run.model.head, TokenHead):
        raise SpecError(
            "model.head.kind",
            f"= {run.model.head.kind!r} cannot be trained on objective {run.objective.kind!r}, "
            "which scores tokens; use 'tokens'.",
        )
    if isinstance(run.data.tokenizer, Bytes) and run.model.vocabulary < 256:
        raise SpecError(
            "model.vocabulary",
            f"must be at least 256 for bytes, got {run.model.vocabulary}; use 256.",
        )


def _rows(run: RunSpec) -> None:
    data, objective = run.data, run.objective
    if isinstance(objective, Seq2Seq) and not data.has_pairs:
        raise SpecError(
            "data.source.kind",
            f"= {data.source.kind!r} has no pairs, which objective 'seq2seq' needs; use "
            "'cmudict', 'text_pairs', 'synthetic' or a source_field.",
        )
    if isinstance(objective, MaskedLM | SpanCorruption) and data.has_pairs:
        raise SpecError(
            "objective.kind",
            f"= {objective.kind!r} corrupts texts, and source.kind {data.source.kind!r} has "
            "pairs; use 'seq2seq', 'prefix_lm' or 'causal_lm'.",
        )
    if isinstance(objective, PrefixLM) and data.has_pairs:
        for field in dataclasses.fields(objective):
            if (share := getattr(objective, field.name)) != field.default:
                raise SpecError(
                    f"objective.prefix_lm.{field.name}",
                    f"= {share} would do nothing with source.kind {data.source.kind!r}, whose "
                    "sources are the prefixes; leave it out.",
                )
    if data.rows == "packed" and isinstance(objective, SpanCorruption | PrefixLM):
        raise SpecError(
            "data.rows",
            f"= 'packed' is not defined for objective {objective.kind!r}; use 'padded'.",
        )
    if data.rows == "packed" and isinstance(run.model.attention, LinearAttention):
        raise SpecError(
            "data.rows",
            "= 'packed' needs attention that keeps examples apart, and linear attention has one "
            "state for all; use 'padded'.",
        )


def _lengths(run: RunSpec) -> None:
    data, position = run.data, run.model.position
    if isinstance(run.objective, Seq2Seq) and data.source_length is None:
        raise SpecError(
            "data.source_length", "is missing; give the tokens of a source, its end included."
        )
    if not isinstance(run.objective, Seq2Seq) and data.source_length is not None:
        raise SpecError(
            "data.source_length",
            f"= {data.source_length} would do nothing with objective {run.objective.kind!r}; "
            "leave it out.",
        )
    for name, length in (("length", data.length), ("source_length", data.source_length or 0)):
        if isinstance(position, Learned) and position.max_length < length:
            raise SpecError(
                "model.position.learned.max_length",
                f"must reach data.{name}, got max_length={position.max_length}, "
                f"data.{name}={length}; use at least {length}.",
            )


def _chunk(run: RunSpec) -> None:
    training, chunk = run.training, run.loss.chunk
    if chunk is None:
        return
    positions = training.batch_size // training.microbatches * run.row_lengths.length
    if chunk >= positions:
        raise SpecError(
            "loss.chunk",
            f"= {chunk} would do nothing: an update computes the logits of {positions} positions "
            "at a time; use fewer, or None.",
        )


def _schedule(run: RunSpec) -> None:
    schedule, steps = run.schedule, run.training.steps
    if schedule.warmup_steps > steps:
        raise SpecError(
            f"schedule.{schedule.kind}.warmup_steps",
            f"must not exceed training.steps, got {schedule.warmup_steps} and "
            f"{steps}: the peak rate would never be reached; use at most {steps}.",
        )
    if isinstance(schedule, WarmupStableDecay):
        if schedule.warmup_steps + schedule.decay_steps > steps:
            raise SpecError(
                "schedule.warmup_stable_decay.decay_steps",
                f"+ warmup_steps must not exceed training.steps, got {schedule.decay_steps} + "
                f"{schedule.warmup_steps} and {steps}.",
            )
