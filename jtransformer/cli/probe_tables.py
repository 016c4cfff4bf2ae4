"""The tables of `jtransformer probe`: a row per layer, and a cell per head."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from jtransformer.stats import head_rows, layer_rows

NOTHING = "—"


class _Column(NamedTuple):
    """A column of the table of layers: its heading, and which number of a layer it shows."""

    heading: str
    quantity: str
    part: str | None = None


COLUMNS = (
    _Column("gradient norm", "gradient_norm", "layer"),
    _Column("last FFN matrix", "gradient_norm", "ffn_last"),
    _Column("update / weight", "update_ratio", "layer"),
    _Column("stream RMS", "stream_rms"),
    _Column("outlier ratio", "outlier_ratio"),
    _Column("entropy / largest", "relative_entropy", "attention"),
    _Column("entropy / largest, cross", "relative_entropy", "cross_attention"),
    _Column("zero units", "zero_fraction"),
    _Column("dead units", "dead_fraction"),
    _Column("saturated gates", "saturated_fraction"),
    _Column("stretch, attention", "spectral_norm_stream", "attention"),
    _Column("stretch, cross", "spectral_norm_stream", "cross_attention"),
    _Column("stretch, FFN", "spectral_norm_stream", "ffn"),
    _Column("stretch, layer", "spectral_norm_stream", "layer"),
)


def tables(name: str, unit: str, found: dict[str, Any]) -> Iterator[Table]:
    """Yields the tables of a probe: its layers, what lies outside of them, and its heads.

    Args:
        name: What was probed.
        unit: Of the loss.
        found: The record of the probe.
    """
    rows = [*layer_rows(found)]
    for stack, values in found["stacks"].items():
        title = f"{name}, {stack}, step {found['step']}: loss {_loss(found['loss'])} {unit}"
        layers = len(values["gradient_norm"]["layer"])
        yield _layers(title, layers, [row[1:] for row in rows if row[0] == stack])
    yield _outside(found)
    yield from _heads(unit, found)


def _layers(title: str, layers: int, rows: list[tuple[str, str, int, float]]) -> Table:
    table = Table(title=escape(title))
    table.add_column("layer", justify="right")
    cells = {
        column: {
            layer: value
            for quantity, part, layer, value in rows
            if quantity == column.quantity and column.part in (None, part)
        }
        for column in COLUMNS
    }
    shown = [column for column in COLUMNS if cells[column]]
    for column in shown:
        table.add_column(column.heading, justify="right")
    for layer in range(layers + 1):
        # The stream has one entry more: what leaves the last layer.
        label = str(layer) if layer < layers else "end"
        table.add_row(label, *(_number(cells[column].get(layer)) for column in shown))
    return table


def _outside(found: dict[str, Any]) -> Table:
    table = Table(title="outside the layers")
    for heading in ("part", "gradient norm", "update / weight"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    for part, values in found["outside"].items():
        table.add_row(part, _number(values["gradient_norm"]), _number(values["update_ratio"]))
    logits = found["logits"]
    table.caption = f"logits: sd {_number(logits['sd'])}, largest {_number(logits['largest'])}"
    return table


def _heads(unit: str, found: dict[str, Any]) -> Iterator[Table]:
    """Yields how much the loss grows without each head, layers by heads."""
    gained: dict[tuple[str, str], dict[int, list[float]]] = {}
    for stack, sublayer, layer, _, _, gain in head_rows(found):
        gained.setdefault((stack, sublayer), {}).setdefault(layer, []).append(gain)
    for (stack, sublayer), layers in gained.items():
        words = sublayer.replace("_", " ")
        table = Table(title=f"{stack}, {words}: loss gained without each head, {unit}")
        table.add_column("layer", justify="right")
        for head in range(max(map(len, layers.values()))):
            table.add_column(f"head {head}", justify="right")
        for layer, own in layers.items():
            table.add_row(str(layer), *(_gain(gain) for gain in own))
        yield table


def _loss(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def _gain(value: float) -> str:
    # What is missing of a head is no number: the loss without it was none.
    return NOTHING if math.isnan(value) else f"{value:+.4f}"


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3g}"
