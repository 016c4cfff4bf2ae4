"""Runs that together choose every kind of every choice, and other values for every field."""

import dataclasses
import types
import typing

from jtransformer import spec as package
from jtransformer.spec import (
    Adafactor,
    Adam,
    Alibi,
    Characters,
    Classifier,
    CmuDict,
    Constant,
    DataSpec,
    DotProduct,
    DynamicTanh,
    Embedder,
    Encoder,
    EncoderDecoder,
    HuggingFace,
    JsonLines,
    LatentAttention,
    LayerScale,
    Learned,
    LinearAttention,
    LinearScaling,
    Lion,
    Llama3Scaling,
    MaskedLM,
    ModelSpec,
    Muon,
    Noam,
    NoPosition,
    NTKScaling,
    OptimizerSpec,
    Parquet,
    Patience,
    PrefixDecoder,
    PrefixLM,
    RelativeBias,
    ReZero,
    RMSNorm,
    Rope,
    RunSpec,
    ScaleNorm,
    Seq2Seq,
    Sgd,
    Shaw,
    SpanCorruption,
    Synthetic,
    T5Bias,
    Tagger,
    TextFile,
    TextPairs,
    TokenHead,
    TokenizerFile,
    Trained,
    TrainingSpec,
    WarmupInverseSqrt,
    WarmupLinear,
    WarmupStableDecay,
    Words,
    YarnScaling,
)
from jtransformer.spec.norms import Norm

PAIRS = dict(length=24, source_length=20, rows="padded")
TWO_STACKS = ModelSpec(stack=EncoderDecoder())
RUNS = (
    RunSpec(),
    *(RunSpec(model=ModelSpec(norm=kind())) for kind in typing.get_args(Norm)[1:]),
    RunSpec(
        model=ModelSpec(norm=RMSNorm(), position=Learned(max_length=200)),
        data=DataSpec(source=TextFile(path="text"), tokenizer=Characters()),
        schedule=Constant(warmup_steps=10),
        optimizer=OptimizerSpec(rule=Lion()),
    ),
    RunSpec(
        model=ModelSpec(position=NoPosition(), attention=LinearAttention(), norm=ScaleNorm()),
        optimizer=OptimizerSpec(gradient_clip=None, rule=Sgd()),
        schedule=WarmupLinear(),
    ),
    RunSpec(
        model=ModelSpec(
            attention=LatentAttention(rotary_width=8), position=Rope(scaling=YarnScaling())
        ),
        optimizer=OptimizerSpec(rule=Muon()),
        schedule=WarmupStableDecay(),
    ),
    RunSpec(
        model=ModelSpec(
            stack=PrefixDecoder(),
            position=Rope(scaling=LinearScaling()),
            branch_scale=LayerScale(),
            attention=DotProduct(window=8, window_pattern="window,full"),
        ),
        objective=PrefixLM(),
        schedule=WarmupInverseSqrt(),
        optimizer=OptimizerSpec(rule=Adafactor()),
    ),
    RunSpec(
        model=ModelSpec(
            stack=Encoder(),
            position=Alibi(),
            branch_scale=ReZero(),
            embedding_norm=True,
            head=TokenHead(transform=True),
        ),
        data=DataSpec(source=JsonLines(path="lines"), rows="padded", tokenizer=Trained()),
        objective=MaskedLM(),
        training=TrainingSpec(early_stopping=Patience()),
    ),
    RunSpec(
        model=ModelSpec(stack=EncoderDecoder(), position=T5Bias(), norm=DynamicTanh()),
        data=DataSpec(source=Parquet(path="table"), rows="padded"),
        objective=SpanCorruption(),
    ),
    RunSpec(
        model=TWO_STACKS,
        data=DataSpec(source=CmuDict(), tokenizer=Words(), **PAIRS),
        objective=Seq2Seq(),
        schedule=Noam(),
        optimizer=OptimizerSpec(rule=Adam(), weight_decay=0),
    ),
    RunSpec(
        model=dataclasses.replace(TWO_STACKS, position=RelativeBias()),
        data=DataSpec(source=TextPairs(path="pairs"), tokenizer=TokenizerFile(path="t"), **PAIRS),
        objective=Seq2Seq(),
    ),
    RunSpec(
        model=dataclasses.replace(TWO_STACKS, position=Shaw()),
        data=DataSpec(source=Synthetic(), **PAIRS),
        objective=Seq2Seq(),
    ),
    RunSpec(
        model=dataclasses.replace(TWO_STACKS, position=Rope(scaling=NTKScaling())),
        data=DataSpec(source=HuggingFace(name="set", source_field="from"), **PAIRS),
        objective=Seq2Seq(),
    ),
    RunSpec(
        model=ModelSpec(position=Rope(scaling=Llama3Scaling())),
        data=DataSpec(source=JsonLines(path="lines", source_field="from"), rows="packed"),
    ),
    RunSpec(
        model=ModelSpec(stack=EncoderDecoder(share_embedding=False)),
        data=DataSpec(source=Parquet(path="table", source_field="from"), **PAIRS),
        objective=Seq2Seq(),
    ),
)
HEADS = (Classifier(), Tagger(), Embedder())
"""Heads that are no part of a run, since no objective trains them."""

# (class, field): values that differ from the default and from what `RUNS` hold.
SPECIAL = {
    (DotProduct, "window_pattern"): ["full,window"],
    (DotProduct, "heads_off"): ["0.1"],
    (DotProduct, "window"): [5],
    (EncoderDecoder, "source_vocabulary"): [300],
    (ModelSpec, "heads"): [2],
    (ModelSpec, "key_value_heads"): [1],
    (ModelSpec, "head_width"): [8],
    (ModelSpec, "final_norm"): [True, False],
    (ModelSpec, "scan_layers"): [True],
    (Rope, "rotary_fraction"): [0.5],
    (Rope, "window_theta"): [500.0],
    (DataSpec, "source_length"): [21],
    (TrainingSpec, "average_decay"): [0.9],
    (TrainingSpec, "probe_steps"): [[0, 3]],
    (LatentAttention, "value_width"): [4],
    (LatentAttention, "rotary_width"): [4],
    (Embedder, "embedding_width"): [12],
}


def leaves(spec, prefix=""):
    """Yields the class, path and hint of every field below a spec that is no spec itself."""
    for name, hint in typing.get_type_hints(type(spec)).items():
        if typing.get_origin(hint) is typing.ClassVar:
            continue
        value = getattr(spec, name)
        if not dataclasses.is_dataclass(value):
            yield type(spec), prefix + name, hint
        elif isinstance(hint, types.UnionType):
            yield from leaves(value, f"{prefix}{name}.{value.kind}.")
        else:
            yield from leaves(value, f"{prefix}{name}.")


def others(cls, name, value, hint):
    """Returns other values for a field; some may be refused where other fields stand against."""
    if (cls, name) in SPECIAL:
        return [one for one in SPECIAL[cls, name] if one != value]
    if typing.get_origin(hint) is typing.Literal:
        return [one for one in typing.get_args(hint) if one != value]
    if isinstance(value, bool):
        return [not value]
    if value is None and str in typing.get_args(hint):
        return ["x"]
    if value is None:
        return [3] if int in typing.get_args(hint) else [0.75]
    if isinstance(value, int):
        return [2 * value or 1]
    if isinstance(value, str):
        return [value + "x"]
    return [value * 0.875 or 0.125]


def spec_classes():
    """Returns every spec class that the package exports."""
    exported = [getattr(package, name) for name in package.__all__]
    return [one for one in exported if dataclasses.is_dataclass(one)]


def fields_of(spec):
    """Returns (class, field) of every field below a spec."""
    return {(cls, path.rpartition(".")[2]) for cls, path, _ in leaves(spec)}
