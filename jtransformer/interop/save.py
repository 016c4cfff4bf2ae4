"""Writes a model as a Hugging Face directory that `transformers` loads."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jtransformer.interop.expressing import other_dropout, written
from jtransformer.interop.families import FAMILIES, family_named
from jtransformer.interop.family import Family
from jtransformer.interop.files import CONFIG, MOST_BYTES_A_SHARD, SAFE, SAFE_INDEX
from jtransformer.interop.layouts import Shape
from jtransformer.interop.mapping import flat, rules_of, shapes_of, their_tensors
from jtransformer.interop.reading import IRRELEVANT
from jtransformer.interop.rules import Rule
from jtransformer.modules import unstack_layers
from jtransformer.spec import ModelSpec, SpecError

TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
"""Fields that belong to the tokenizer, whatever the family."""


class Saved(NamedTuple):
    """What was written.

    Attributes:
        family: Name of the family.
        other_dropout: What it has no field for, in words. It changes no answer, and what training
            goes on with there.
    """

    family: str
    other_dropout: tuple[str, ...]


def save(
    directory: str | Path,
    spec: ModelSpec,
    variables: Mapping[str, Any],
    *,
    family: str | None = None,
    config: Mapping[str, Any] | None = None,
    shard_bytes: int = MOST_BYTES_A_SHARD,
) -> Saved:
    """Writes config.json and model.safetensors, or shards of it.

    Args:
        directory: Where; it is made. Files of the same names are replaced.
        spec: The model.
        variables: Its variables, `{"params": tree}`, of looped or stacked layers.
        family: Name of the family; None is the first that can express the spec.
        config: Fields of a config that the model came with: those that the family does not
            compute with, such as ids of special tokens, are kept.
        shard_bytes: Most bytes of numbers in one file.

    Raises:
        SpecError: If no family, or not this one, can express the spec, with the setting that it
            lacks; or if variables are not those of the spec, or no finite numbers.
    """
    directory = Path(directory).expanduser()
    chosen, fields = choose(spec, family)
    saved = Saved(chosen.name, other_dropout(chosen, spec, fields))
    if spec.scan_layers:
        variables = unstack_layers(spec, variables)
    leaves, shapes = flat(variables["params"]), shapes_of(_looped(spec))
    _check_leaves(leaves, shapes)
    rules = rules_of(chosen, spec, shapes)
    kept = {} if config is None else _kept(chosen, config, fields)
    types = {str(leaf.dtype) for leaf in leaves.values()}
    directory.mkdir(parents=True, exist_ok=True)
    fields = (
        {**chosen.unnamed}
        | kept
        | fields
        | {"dtype": types.pop() if len(types) == 1 else "float32"}
    )
    _write_tensors(directory, rules, leaves, shard_bytes)
    # Last: with it the directory is that of a model.
    text = json.dumps(fields, indent=2, sort_keys=True, allow_nan=False)
    (directory / CONFIG).write_text(text + "\n", encoding="utf-8")
    return saved


def choose(spec: ModelSpec, name: str | None) -> tuple[Family, dict[str, Any]]:
    """Finds a family that can express a spec, and the config that it writes.

    Raises:
        SpecError: If there is none, or not the one that is named; then with what it lacks.
    """
    if name is not None:
        family = family_named(name)
        return family, written(family, spec)
    reasons = []
    for family in FAMILIES:
        try:
            return family, written(family, spec)
        except SpecError as error:
            reasons.append(f"{family.name}: {error.path}")
    raise SpecError(
        "",
        "No family can express this model; the first setting that each lacks: "
        f"{', '.join(reasons)}.",
    )


def _looped(spec: ModelSpec) -> ModelSpec:
    return dataclasses.replace(spec, scan_layers=False)


def _check_leaves(leaves: Mapping[str, Any], shapes: Mapping[str, Shape]) -> None:
    own = {path: tuple(leaf.shape) for path, leaf in leaves.items()}
    if own != dict(shapes):
        wrong = sorted(path for path in {*own, *shapes} if own.get(path) != shapes.get(path))
        raise SpecError(
            "variables",
            f"do not belong to the spec: {wrong[0]} has the shape {own.get(wrong[0])}, and the "
            f"spec has {shapes.get(wrong[0])} there.",
        )
    for path, leaf in leaves.items():
        if not np.isfinite(np.asarray(leaf)).all():
            raise SpecError(
                "variables",
                f"hold numbers in {path} that are not finite; save those of another step.",
            )


def _kept(family: Family, config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a config that may be kept beside those that are written.

    They are those that no family, or not this one, computes with.
    """
    if config.get("model_type") not in family.model_types:
        return {name: config[name] for name in TOKEN_IDS if name in config}
    return {
        name: value
        for name, value in config.items()
        if name not in fields and (name in IRRELEVANT or name in family.irrelevant)
    }


def _write_tensors(
    directory: Path, rules: Iterable[Rule], leaves: Mapping[str, Any], shard_bytes: int
) -> None:
    """Writes one file, or shards with an index; what an earlier save left is removed."""
    shards = _shards(rules, leaves, shard_bytes)
    single = len(shards) == 1
    (directory / (SAFE_INDEX if single else SAFE)).unlink(missing_ok=True)
    weights: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = SAFE if single else f"model-{number:05}-of-{len(shards):05}.safetensors"
        _write_file(directory / name, their_tensors(shard, leaves))
        weights |= {rule.theirs: name for rule in shard}
    if not single:
        total = sum(leaf.nbytes for leaf in leaves.values())
        index = {"metadata": {"total_size": total}, "weight_map": weights}
        (directory / SAFE_INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _shards(rules: Iterable[Rule], leaves: Mapping[str, Any], shard_bytes: int) -> list[list[Rule]]:
    """Divides rules among files, in their order."""
    shards: list[list[Rule]] = [[]]
    filled = 0
    for rule in rules:
        size = sum(leaves[path].nbytes for path in rule.ours)
        if shards[-1] and filled + size > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(rule)
        filled += size
    return shards


def _write_file(path: Path, tensors: Iterable[tuple[str, np.ndarray]]) -> None:
    from safetensors import SafetensorError  # pyright: ignore[reportMissingImports]
    from safetensors.numpy import save_file  # pyright: ignore[reportMissingImports]

    # It writes the memory of an array as it lies there, so strides have to be the usual ones.
    content = {name: np.ascontiguousarray(array) for name, array in tensors}
    # What transformers asks for: who the numbers were written for.
    try:
        save_file(content, path, {"format": "pt"})
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from None
