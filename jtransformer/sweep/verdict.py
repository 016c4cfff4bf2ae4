"""What `get_sweep()` may say of how the sweep is judged; it changes no run."""

import sys
from typing import Any, get_args, get_type_hints

from jtransformer.records import VerdictRule
from jtransformer.spec import SpecError
from jtransformer.sweep.parts import read_parts


def read_verdict(value: Any) -> VerdictRule:
    """Reads the "verdict" part of a declaration.

    Raises:
        SpecError: For an unknown part, a margin that is no positive number, or an unknown name.
    """
    given = read_parts("verdict", value, VerdictRule)
    margin = given.get("margin")
    if margin is not None:
        number = isinstance(margin, (int, float)) and not isinstance(margin, bool)
        if not number or not 0 < margin <= sys.float_info.max:
            raise SpecError("verdict.margin", "must be None or a positive number in the unit of "
                            f"the loss, got {margin!r}.")  # fmt: skip
        given["margin"] = float(margin)
    for name in ("correction", "intervals"):
        allowed = get_args(get_type_hints(VerdictRule)[name])
        if given.get(name, allowed[0]) not in allowed:
            raise SpecError(f"verdict.{name}", f"must be one of {', '.join(allowed)}, got "
                            f"{given[name]!r}.")  # fmt: skip
    return VerdictRule(**given)
