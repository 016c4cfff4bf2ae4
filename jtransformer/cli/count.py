"""Counts the parameters, operations and bytes of a model, without making it.

usage: jtransformer count --preset NAME [flags]
       jtransformer count --config FILE [--config.PATH=VALUE ...] [flags]

  --preset NAME          a published model or a run, such as gpt2_small, t5_base or decoder_lm
  --config FILE          a Python file with get_config()
  --config.PATH=VALUE    change one setting of get_config(), e.g. --config.model.ffn=swiglu
  --length T             tokens of a sequence, for operations and cache: of the target, where there
                         is a source; a run's own, or 1024 (fewer if positions end before)
  --source_length S      tokens of the source; a run's own, or as many as of the target
  --json                 print one JSON object; "total" is the number of parameters

Operations are those of matrix products, per token. A run also has the memory of a training step; a
published model has no optimizer and no batch, so that its parameters and its cache are all.

example: jtransformer count --preset gpt2_small --length 1024
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from jtransformer import accounting
from jtransformer.cli.arguments import OVERRIDE, read_experiment, read_flags
from jtransformer.cli.units import as_bytes, as_flop
from jtransformer.spec import (
    Encoder,
    Learned,
    LinearAttention,
    ModelSpec,
    RunSpec,
    SpecError,
    nearest,
    to_tree,
)
from jtransformer.spec.presets import PRESETS

USUAL_LENGTH = 1024
SUMS_OF_FLOPS = (
    "forward",
    "forward_visible",
    "forward_without_scores",
    "training",
    "training_without_scores",
)


class Counted(NamedTuple):
    """What is counted, and for which lengths.

    Attributes:
        name: What the user called it.
        model: The model.
        run: The run it belongs to; None for a model alone.
        length: Tokens of a sequence.
        source_length: Tokens of a source; None where there is none.
    """

    name: str
    model: ModelSpec
    run: RunSpec | None
    length: int
    source_length: int | None


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    counted = _lengths(values, *_subject(values, argv))
    figures = _figures(counted)
    if values.json:
        print(json.dumps(figures))
    else:
        _show(counted, figures)
    return 0


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("preset", "config"):
        flags.DEFINE_string(name, None, name, flag_values=values)
    for name in ("length", "source_length"):
        flags.DEFINE_integer(name, None, name, flag_values=values)
    flags.DEFINE_bool("json", False, "json", flag_values=values)
    read_flags(values, argv, stray="write --preset NAME or --config FILE")
    return values


def _subject(values: flags.FlagValues, argv: list[str]) -> tuple[str, ModelSpec | RunSpec]:
    """Returns what is to be counted, and its name."""
    if (values.preset is None) == (values.config is None):
        found = "both" if values.preset else "neither"
        raise SpecError("", f"Give either --preset NAME or --config FILE, got {found}.")
    if values.config is not None:
        experiment = read_experiment(Path(values.config), argv)
        return str(experiment.path), experiment.run_spec()
    changed = [word for word in argv if word.startswith(OVERRIDE)]
    if changed:
        raise SpecError(
            changed[0], "changes a config file, and a preset is none; use --config FILE with it."
        )
    if values.preset not in PRESETS:
        raise SpecError(
            "--preset", f"= {values.preset!r} is unknown; {nearest(values.preset, PRESETS)}."
        )
    return values.preset, PRESETS[values.preset]()


def _lengths(values: flags.FlagValues, name: str, spec: ModelSpec | RunSpec) -> Counted:
    """Settles the lengths of sequences."""
    run = spec if isinstance(spec, RunSpec) else None
    model = spec.model if isinstance(spec, RunSpec) else spec
    position = model.position
    most = position.max_length if isinstance(position, Learned) else None
    length, source_length = min(USUAL_LENGTH, most or USUAL_LENGTH), None
    if run is not None:
        length, source_length = run.row_lengths
    if values.length is not None:
        length = values.length
    if values.source_length is not None:
        source_length = values.source_length
    elif source_length is None and model.has_encoder:
        source_length = length
    for flag, asked in (("length", length), ("source_length", source_length)):
        if most is not None and asked is not None and asked > most:
            raise SpecError(
                f"--{flag}", f"= {asked} exceeds the {most} positions that the model has learned."
            )
    return Counted(name, model, run, length, source_length)


def _figures(counted: Counted) -> dict[str, Any]:
    """Returns everything that is counted, as JSON has it."""
    model = counted.model
    lengths = {"length": counted.length, "source_length": counted.source_length}
    parameters = accounting.parameters(model)
    flops = accounting.flops(model, **lengths)
    memory = {"parameters": 4 * parameters.total}
    if counted.run is not None:
        spent = accounting.memory(counted.run)
        memory = dataclasses.asdict(spent) | {"total": spent.total}
    return {
        "name": counted.name,
        "total": parameters.total,
        "non_embedding": parameters.non_embedding,
        "components": dataclasses.asdict(parameters),
        **lengths,
        "flops_per_token": dataclasses.asdict(flops)
        | {name: getattr(flops, name) for name in SUMS_OF_FLOPS},
        "cache_bytes": accounting.cache_bytes(model, **lengths),
        "memory_bytes": memory,
    }


def _show(counted: Counted, figures: Mapping[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from jtransformer.cli.progress import console

    table = Table(title=escape(counted.name))
    table.add_column("component")
    for heading in ("parameters", "share"):
        table.add_column(heading, justify="right")
    for component, count in figures["components"].items():
        if count:
            share = count / figures["total"]
            table.add_row(component.replace("_", " "), f"{count:,}", f"{share:.1%}")
    table.add_section()
    table.add_row("total", f"{figures['total']:,}", "100.0%")
    kept = figures["non_embedding"]
    table.add_row("without embeddings and head", f"{kept:,}", f"{kept / figures['total']:.1%}")
    console().print(table)
    for line in (*_flops_lines(counted, figures), *_memory_lines(counted, figures)):
        print(line)


def _flops_lines(counted: Counted, figures: Mapping[str, Any]) -> list[str]:
    flops = figures["flops_per_token"]
    source = f" behind sources of {counted.source_length:,}" if counted.source_length else ""
    lines = [
        f"operations per token, in sequences of {counted.length:,} tokens{source}:",
        f"  forward {as_flop(flops['forward'])}, training {as_flop(flops['training'])}",
        f"  without attention scores: forward {as_flop(flops['forward_without_scores'])}, "
        f"training {as_flop(flops['training_without_scores'])}",
    ]
    if flops["forward_visible"] != flops["forward"]:
        lines.append(
            f"  if hidden scores were left out: forward {as_flop(flops['forward_visible'])}"
        )
    if not isinstance(counted.model.stack, Encoder):
        lines.append(f"  one more token from a full cache: {as_flop(flops['decoding'])}")
    return lines


def _types(model: ModelSpec) -> str:
    """Names the floating-point types of a training step."""
    rounded = [part for part, kind in to_tree(model.precision).items() if kind == "bfloat16"]
    return f"float32, bfloat16 in {' and '.join(rounded)}" if rounded else "float32"


def _memory_lines(counted: Counted, figures: Mapping[str, Any]) -> list[str]:
    memory = figures["memory_bytes"]
    lines = []
    if figures["cache_bytes"]:
        linear = isinstance(counted.model.attention, LinearAttention)
        kept = "float32" if linear else counted.model.precision.attention
        lines.append(f"cache of one such sequence, {kept}: {as_bytes(figures['cache_bytes'])}")
    if counted.run is None:
        lines.append(
            f"memory of the parameters, float32: {as_bytes(memory['parameters'])}; a training "
            "step's depends on optimizer and batch, which a model has not: count a run."
        )
        return lines
    training, length = counted.run.training, counted.run.row_lengths.length
    rows = f"{training.batch_size} x {length} tokens"
    if training.microbatches > 1:
        rows += f" in {training.microbatches} microbatches"
    parts = ", ".join(
        f"{part} {as_bytes(size)}" for part, size in memory.items() if size and part != "total"
    )
    lines.append(
        f"memory of a training step of {rows}, {_types(counted.model)}: "
        f"{as_bytes(memory['total'])} ({parts}; activations are an estimate)"
    )
    return lines
