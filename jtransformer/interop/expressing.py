"""Whether a family can express a spec: what is written is read again and must be the same."""

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

from jtransformer.interop.family import Family
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rotary import windowed, windowed_layers
from jtransformer.spec import DotProduct, Dropout, ModelSpec, Precision, SpecError, to_tree

T = TypeVar("T")


def of_kind(spec: ModelSpec, name: str, kind: type[T]) -> T:
    """Returns a field of a spec whose kind a family needs.

    Raises:
        SpecError: If it is of another kind.
    """
    value = getattr(spec, name)
    if not isinstance(value, kind):
        raise SpecError(f"{name}.kind", f"= {value.kind!r} has no counterpart in this family.")
    return value


def written(family: Family, spec: ModelSpec) -> dict[str, Any]:
    """Returns the config of a spec in a family.

    Dropout is written where the family has fields for it, see `other_dropout`. Neither it nor
    initial values and how a model is computed are compared: they change no answer.

    Raises:
        SpecError: If the family cannot express the spec, with the setting that it lacks.
    """
    try:
        config = family.write(spec)
    except SpecError as error:
        raise SpecError(error.path, f"{error.problem} (family {family.name})") from None
    wanted, got = to_tree(plain(spec)), to_tree(plain(_read_again(family, spec, config)))
    for path, ours, theirs in differing(wanted, got):
        raise SpecError(
            path,
            f"= {ours!r} cannot be expressed by the family {family.name}, which has {theirs!r}; "
            "choose another family, or export a model without it.",
        )
    first, *_ = family.architectures
    kept = {"architectures": [first], "model_type": family.model_types[0]}
    return kept | config


def other_dropout(family: Family, spec: ModelSpec, config: dict[str, Any]) -> tuple[str, ...]:
    """Says which dropout a family has no field for, or one field for several.

    Args:
        family: The family.
        spec: The model.
        config: What `written` returns for the two.
    """
    ours, theirs = spec.dropout, _read_again(family, spec, config).dropout
    names = (field.name for field in dataclasses.fields(Dropout))
    return tuple(
        f"dropout.{name} = {getattr(ours, name)} is {getattr(theirs, name)} in the family "
        f"{family.name}"
        for name in names
        if getattr(ours, name) != getattr(theirs, name)
    )


def _read_again(family: Family, spec: ModelSpec, config: dict[str, Any]) -> ModelSpec:
    stored = frozenset(rule.theirs for rule in family.rules(spec))
    return read_with(family, config, "the config that is written", stored)


def read_with(
    family: Family, fields: dict[str, Any], where: str, stored: frozenset[str]
) -> ModelSpec:
    """Reads a config, strictly.

    Args:
        family: Its family.
        fields: Its fields.
        where: What errors call it.
        stored: Names of the tensors that come with it.

    Raises:
        SpecError: For a field that is unknown, wrong or not supported.
    """
    config = ConfigReader(fields, where, stored=stored, aliases=family.aliases)
    spec = family.read(config)
    config.ignore(*family.irrelevant)
    config.close()
    return spec


def plain(spec: ModelSpec) -> ModelSpec:
    """Returns a spec with its defaults written out, and without what changes no answer."""
    attention = spec.attention
    if isinstance(attention, DotProduct):
        fields = {"window": None, "window_pattern": "window"}
        fields |= windowed(attention.window, windowed_layers(spec))
        attention = dataclasses.replace(attention, **fields)
        if attention.scale == spec.H**-0.5:
            attention = dataclasses.replace(attention, scale=None)
    return dataclasses.replace(
        spec,
        attention=attention,
        head_width=spec.H,
        key_value_heads=spec.K if isinstance(attention, DotProduct) else spec.key_value_heads,
        final_norm=spec.has_final_norm,
        dropout=Dropout(),
        initialization="fan_in",
        scan_layers=False,
        rematerialize="nothing",
        precision=Precision(),
    )


def differing(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields settings in which two trees differ, with both values; of a choice its kind alone."""
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        if ours != theirs:
            yield path, ours, theirs
        return
    if ours.get("kind") != theirs.get("kind"):
        yield f"{path}.kind", ours.get("kind"), theirs.get("kind")
        return
    for name in ours:
        yield from differing(ours[name], theirs.get(name), f"{path}.{name}" if path else name)
