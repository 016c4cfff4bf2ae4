"""Floating-point types: of what enters a part of a model, and of parameters where they are used.

With one type for all parts nothing is cast, so that a model computes in the type of the parameters
and inputs that it is given.

Source: Micikevicius et al. 2017, sec. 3, https://arxiv.org/abs/1710.03740 (parameters in float32).
"""

from typing import Literal

from jaxtyping import Array, Float

from jtransformer.spec import ModelSpec

Part = Literal["attention", "ffn", "head"]


def entering(spec: ModelSpec, part: Part, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Gives what a part reads of the stream the type of that part."""
    own = getattr(spec.precision, part)
    return x if own == spec.precision.stream else x.astype(own)


def rounded(x: Float[Array, "..."], precision: str) -> Float[Array, "..."]:
    """Rounds what is not yet of any part, a parameter or embedded tokens, to the type of one."""
    return x.astype(precision) if precision == "bfloat16" else x
