"""A family of foreign models as data: which configs are its own, and what maps to what."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rules import Rule
from jtransformer.spec import ModelSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """One family; everything that is known of it.

    Attributes:
        name: What it is called on the command line and in errors.
        model_types: Values of `model_type` that are this family.
        architectures: Classes whose weights can be read; the first one is written.
        read: Makes the spec of a config. It reads every field that matters, with the defaults of
            their configuration class, since a config.json may leave those out; and refuses values
            that no spec expresses.
        write: Makes the config of a spec, `model_type` and `architectures` left out. It need not
            check what it cannot express: what is written is read again and compared.
        rules: Lists which of their tensors hold which parameters, each exactly once.
        irrelevant: Fields that do not change what is computed, and why not.
        aliases: Other names of fields, by their own.
        buffers: Patterns (whole names) of stored tensors that are no parameters.
        unnamed: Fields of special tokens that are written where a model brings none: what their
            configuration class has may lie beyond its vocabulary.
        prefix: What names begin with that a checkpoint of the model without its head lacks.
    """

    name: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    read: Callable[[ConfigReader], ModelSpec]
    write: Callable[[ModelSpec], dict[str, Any]]
    rules: Callable[[ModelSpec], Iterable[Rule]]
    irrelevant: Mapping[str, str] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    buffers: tuple[str, ...] = ()
    unnamed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    prefix: str = ""
