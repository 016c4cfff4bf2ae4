"""Weights of other people's models, both ways: Hugging Face directories and specs of ours.

No family has a model class of its own: each is a table of settings and of names.
"""

from jtransformer.interop.expressing import differing, plain
from jtransformer.interop.families import FAMILIES, family_named
from jtransformer.interop.family import Family
from jtransformer.interop.load import Loaded, family_of, load, unread
from jtransformer.interop.save import Saved, choose, save
from jtransformer.interop.tokenizer import Steering, steering, tokenizer_settings

__all__ = [
    "FAMILIES",
    "Family",
    "Loaded",
    "Saved",
    "Steering",
    "choose",
    "differing",
    "family_named",
    "family_of",
    "load",
    "plain",
    "save",
    "steering",
    "tokenizer_settings",
    "unread",
]
