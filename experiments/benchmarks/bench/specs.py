"""The sizes as runs of jtransformer, and the operations of their update."""

from typing import Any

from jtransformer import accounting
from jtransformer.spec import (
    AdamW,
    Characters,
    Constant,
    DataSpec,
    Learned,
    LossSpec,
    ModelSpec,
    OptimizerSpec,
    RunSpec,
    TrainingSpec,
)

from .sizes import BETA1, BETA2, EPSILON, GRADIENT_CLIP, LEARNING_RATE, WEIGHT_DECAY, Size


def run_of(size: Size, *, chunk: int | None = None, microbatches: int = 1, **model: Any) -> RunSpec:
    """Returns a run of a size: a GPT-2 (learned positions, tanh GELU, pre-norm, all biases).

    Args:
        size: What is trained on which rows.
        chunk: Of the loss; see `LossSpec`.
        microbatches: Of an update; see `TrainingSpec`.
        model: Fields of its ModelSpec that differ.
    """
    fields: dict[str, Any] = dict(
        vocabulary=size.V,
        width=size.D,
        layers=size.L,
        heads=size.N,
        qkv_bias=True,
        attention_out_bias=True,
        ffn="gelu_tanh",
        ffn_width=size.F,
        ffn_bias=True,
        position=Learned(max_length=size.T),
        initialization="gpt2",
    )
    return RunSpec(
        model=ModelSpec(**fields | model),
        # Read from no corpus: the rows are drawn. Characters bound no vocabulary.
        data=DataSpec(length=size.T, tokenizer=Characters()),
        optimizer=OptimizerSpec(
            learning_rate=LEARNING_RATE,
            weight_decay=WEIGHT_DECAY,
            gradient_clip=GRADIENT_CLIP,
            rule=AdamW(beta1=BETA1, beta2=BETA2, epsilon=EPSILON),
        ),
        schedule=Constant(),
        training=TrainingSpec(batch_size=size.B, microbatches=microbatches),
        loss=LossSpec(chunk=chunk),
    )


def update_flops(size: Size) -> float:
    """Counts the operations of the matrix products of one update, hidden scores among them."""
    return accounting.flops(run_of(size).model, length=size.T).training * size.tokens
