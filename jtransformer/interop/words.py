"""Words of theirs for activations and gates, and ours."""

from collections.abc import Mapping

from jtransformer.spec import ModelSpec, SpecError
from jtransformer.spec.model import Ffn

# The first word of each kind is the one that is written.
ACTIVATIONS: Mapping[str, Ffn] = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "relu": "relu",
    "relu2": "relu_squared",
    "silu": "silu",
    "swish": "silu",
}
"""Activations of feed-forward networks without a gate."""
GATES: Mapping[str, Ffn] = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu_pytorch_tanh": "geglu_tanh",
    "gelu_new": "geglu_tanh",
    "gelu_fast": "geglu_tanh",
    "gelu": "geglu",
    "relu": "reglu",
    "sigmoid": "glu",
    "linear": "bilinear",
}
"""Activations of the gate, where there is one."""


def word_of(table: Mapping[str, Ffn], spec: ModelSpec) -> str:
    """Returns their word for the feed-forward network of a spec.

    Raises:
        SpecError: If they have none.
    """
    for theirs, ours in table.items():
        if ours == spec.ffn:
            return theirs
    allowed = ", ".join(dict.fromkeys(table.values()))
    raise SpecError("ffn", f"= {spec.ffn!r} has no counterpart; use one of {allowed}.")
