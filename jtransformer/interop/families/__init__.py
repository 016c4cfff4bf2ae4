"""The families, each in a file of its own; a new one is a file and a line here."""

from jtransformer.interop.families.gpt2 import GPT2
from jtransformer.interop.families.llama import LLAMA
from jtransformer.interop.family import Family
from jtransformer.spec import SpecError, nearest

FAMILIES: tuple[Family, ...] = (GPT2, LLAMA)
"""Where a spec fits several, the first of them is written."""


def family_named(name: str) -> Family:
    """Returns a family by its name.

    Raises:
        SpecError: If there is none.
    """
    named = {family.name: family for family in FAMILIES}
    if name not in named:
        raise SpecError("family", f"= {name!r} is not known; {nearest(name, named)}.")
    return named[name]


__all__ = ["FAMILIES", "family_named"]
