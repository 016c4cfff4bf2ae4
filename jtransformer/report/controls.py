"""Menus beside a figure: each choice is a set of changes to the figure's Vega-Lite spec.

A scale's type cannot be bound to a parameter in Vega-Lite, so a choice draws the figure anew from
the changed spec. What changes is decided here; the page only puts values in their places.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

Path = tuple[str | int, ...]


class Choice(NamedTuple):
    """One entry of a menu.

    Attributes:
        label: What is read in the menu.
        changes: Places in the spec, each with the value that is put there.
    """

    label: str
    changes: list[tuple[Path, Any]]


class Control(NamedTuple):
    """A menu of a figure; the first choice is the figure as it is.

    Attributes:
        label: What the menu is about.
        choices: Its entries.
    """

    label: str
    choices: list[Choice]


def log_axis(spec: dict[str, Any], channel: str, label: str, lowest: float) -> Control:
    """Lets an axis be logarithmic.

    Args:
        spec: The figure's spec.
        channel: "x" or "y".
        label: What the axis is called in the menu.
        lowest: The smallest positive value that is drawn; what is not positive is cut.
    """
    changes = []
    for path, encoding in encodings(spec):
        scale = encoding.get(channel, {}).get("scale")
        if scale is None:
            continue
        bounds = {"domainMin": lowest}
        if "domain" in scale:
            low, high = scale["domain"]
            bounds = {"domain": [max(low, lowest), high]}
        kept = {key: value for key, value in scale.items() if key not in ("domainMin", "padding")}
        changes.append(((*path, channel, "scale"), kept | {"type": "log", "clamp": True} | bounds))
    return Control(f"{label} axis", [Choice("linear", []), Choice("logarithmic", changes)])


def smoothing(spec: dict[str, Any], field: str, title: str, windows: list[int]) -> Control:
    """Lets curves be drawn smoothed; the axis then says over how many points.

    Args:
        spec: The figure's spec, in whose data `smoothed_field` names the smoothed values.
        field: What is drawn on the y axis.
        title: The title of that axis.
        windows: How many points are averaged; odd, since the window is centred.
    """
    choices = [Choice("none", [])]
    for window in windows:
        changes: list[tuple[Path, Any]] = []
        for path, encoding in encodings(spec):
            if "title" in encoding.get("y", {}):
                said = f"{title}, mean of {window} points"
                changes.append(((*path, "y", "title"), said))
            # What has no arm is no curve: a yardstick stays as it is.
            if encoding.get("color", {}).get("field") == "arm":
                changes.append(((*path, "y", "field"), smoothed_field(field, window)))
        choices.append(Choice(f"mean of {window} points", changes))
    return Control("smoothing", choices)


def smoothed_field(field: str, window: int) -> str:
    """Names a smoothed column."""
    return f"{field}_mean_of_{window}"


def encodings(spec: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yields every encoding of a spec and of its layers, with its place."""
    if "encoding" in spec:
        yield (*path, "encoding"), spec["encoding"]
    for group in ("layer", "hconcat", "vconcat", "concat"):
        for index, part in enumerate(spec.get(group, ())):
            yield from encodings(part, (*path, group, index))
