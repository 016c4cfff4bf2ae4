"""The one error that a user's setting can raise."""

import difflib
from collections.abc import Iterable


class SpecError(ValueError):
    """A setting that cannot be: which one, its value, and what to do.

    Attributes:
        path: Dotted path of the setting, such as "model.heads"; empty for a rule over several.
        problem: The sentence, without the path.
    """

    def __init__(self, path: str, problem: str):
        self.path = path
        self.problem = problem
        super().__init__(f"{path} {problem}" if path else problem)

    def inside(self, prefix: str) -> "SpecError":
        """Returns the same error, seen from the spec that holds this one."""
        return SpecError(f"{prefix}.{self.path}" if self.path else prefix, self.problem)


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Returns words that lead from an unknown name to the allowed ones."""
    allowed = list(allowed)
    if not allowed:
        return "there are none here"
    close = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed: {', '.join(sorted(allowed))}"
