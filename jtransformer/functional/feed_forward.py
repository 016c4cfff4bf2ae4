"""Feed-forward sublayers, dense and gated, and the table of their named kinds.

Sources: Vaswani et al. 2017, sec. 3.3, https://arxiv.org/abs/1706.03762; gated units,
Shazeer 2020, sec. 2, https://arxiv.org/abs/2002.05202; GLU itself, Dauphin et al. 2016,
sec. 2, https://arxiv.org/abs/1612.08083.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from jaxtyping import Array, Float

from jtransformer.functional import activations
from jtransformer.functional.activations import gelu, silu
from jtransformer.functional.linear import Rows, linear

Activation = Callable[[Float[Array, "..."]], Float[Array, "..."]]
"""A pointwise function."""


class FFNKind(NamedTuple):
    """What the name of a feed-forward kind stands for.

    Attributes:
        gated: Whether it is `gated_feed_forward` (three kernels) or `feed_forward` (two).
        activation: The non-linearity: of the hidden units, or of the gate.
    """

    gated: bool
    activation: Activation


FFN_KINDS: Mapping[str, FFNKind] = MappingProxyType(
    {
        "relu": FFNKind(gated=False, activation=activations.relu),
        "relu_squared": FFNKind(gated=False, activation=activations.relu_squared),
        "gelu": FFNKind(gated=False, activation=activations.gelu),
        "gelu_tanh": FFNKind(gated=False, activation=activations.gelu_tanh),
        "silu": FFNKind(gated=False, activation=activations.silu),
        "swiglu": FFNKind(gated=True, activation=activations.silu),
        "geglu": FFNKind(gated=True, activation=activations.gelu),
        "geglu_tanh": FFNKind(gated=True, activation=activations.gelu_tanh),
        "reglu": FFNKind(gated=True, activation=activations.relu),
        "glu": FFNKind(gated=True, activation=activations.sigmoid),
        "bilinear": FFNKind(gated=True, activation=activations.identity),
    }
)
"""Every named kind of feed-forward sublayer; the one place that says what a name means.

"geglu" has the exact GELU; T5 v1.1 and Gemma gate with its tanh form, which is "geglu_tanh".
"""


def feed_forward(
    x: Float[Array, "*batch D"],
    w_in: Float[Array, "D F"],
    w_out: Float[Array, "F D"],
    b_in: Float[Array, " F"] | None = None,
    b_out: Float[Array, " D"] | None = None,
    *,
    activation: Activation = gelu,
    rows: Rows = "merged",
) -> Float[Array, "*batch D"]:
    """Computes `activation(x W_in + b_in) W_out + b_out` at each position.

    Args:
        x: Positions, each transformed on its own.
        w_in: One direction in per hidden unit (a column).
        w_out: One direction out per hidden unit (a row).
        b_in: Bias of the hidden units; None is none.
        b_out: Bias of the output; None is none.
        activation: Applied to the hidden units.
        rows: As for `linear`.

    Raises:
        ValueError: If the shapes do not fit.
    """
    hidden = activation(linear(x, w_in, b_in, rows=rows))
    return linear(hidden, w_out, b_out, rows=rows)


def gated_feed_forward(
    x: Float[Array, "*batch D"],
    w_gate: Float[Array, "D F"],
    w_up: Float[Array, "D F"],
    w_down: Float[Array, "F D"],
    *,
    b_gate: Float[Array, " F"] | None = None,
    b_up: Float[Array, " F"] | None = None,
    b_down: Float[Array, " D"] | None = None,
    activation: Activation = silu,
    rows: Rows = "merged",
) -> Float[Array, "*batch D"]:
    """Computes `(activation(x W_gate + b_gate) * (x W_up + b_up)) W_down + b_down`.

    Args:
        x: Positions, each transformed on its own.
        w_gate: Kernel of the gate, the factor that is activated.
        w_up: Kernel of the other factor.
        w_down: Kernel back to the model width.
        b_gate: Bias of the gate; None is none.
        b_up: Bias of the other factor; None is none.
        b_down: Bias of the output; None is none.
        activation: Applied to the gate: SiLU is SwiGLU, GELU GEGLU, ReLU ReGLU, the sigmoid
            GLU, and the identity bilinear.
        rows: As for `linear`.

    Raises:
        ValueError: If the shapes do not fit.
    """
    gate = activation(linear(x, w_gate, b_gate, rows=rows))
    return linear(gate * linear(x, w_up, b_up, rows=rows), w_down, b_down, rows=rows)
