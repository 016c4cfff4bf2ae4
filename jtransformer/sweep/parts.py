"""How the parts of a declaration are read: strictly, with the names that there are."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jtransformer.spec import SpecError, nearest


def read_parts(where: str, value: Any, cls: type) -> dict[str, Any]:
    """Returns the given parts of a dict that may have the fields of a class and no others."""
    names = [field.name for field in dataclasses.fields(cls)]
    if not isinstance(value, Mapping):
        raise SpecError(where, f"must be a dict of {', '.join(names)}; got {value!r}.")
    for name in value:
        if name not in names:
            offer = nearest(str(name), names)
            raise SpecError(f"{where}: {name}", f"is not a part of it; {offer}.")
    return dict(value)


def read_integer(path: str, value: Any, *, minimum: int) -> None:
    """Refuses what is no integer of at least a minimum."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise SpecError(path, f"must be an integer of at least {minimum}, got {value!r}.")
