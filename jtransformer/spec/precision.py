"""In which floating-point type the parts of a model are computed."""

import dataclasses
from typing import Literal

from jtransformer.spec.fields import Checked

Float = Literal["float32", "bfloat16"]
"""A type of 32 bits, or one with its range and 8 bits of precision in 16."""
FLOAT_BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2}
"""What one number of a type takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Precision(Checked):
    """The type of each part's products and of what it keeps (Micikevicius et al. 2017).

    A part rounds its input and, where they are used, its parameters to its own type, and gives its
    output the type of the stream. In float32 whatever is chosen: the parameters themselves, their
    gradients and all that the optimizer holds, statistics of norms, angles of positions, scores
    and softmax, activation functions, the sums of linear attention, losses.

    Attributes:
        stream: The residual stream, from the embeddings to the last norm.
        attention: Projections, queries, keys, values, the read, and the cache of decoding.
        ffn: Matrices and hidden units of the feed-forward network.
        head: What is computed from the last states, logits included.
    """

    stream: Float = "float32"
    attention: Float = "float32"
    ffn: Float = "float32"
    head: Float = "float32"
