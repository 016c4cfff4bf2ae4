"""Where the activations of a model lie on the devices of a mesh.

Without a word on its activations a model whose parameters are divided over devices is compiled
into one that also moves, or repeats, the activations: naive `fsdp` took more memory than whole
parameters do. So the stream, the heads, the hidden units and the logits are each told their place.

Rows lie over the axes data and fsdp, tokens over sequence; heads, hidden units and the vocabulary
over tensor. What an axis does not divide stays whole.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float

from jtransformer import functional as F
from jtransformer.functional.dropout import DropoutKey
from jtransformer.functional.linear import Rows
from jtransformer.modules.sharded_attention import choose, divided_attention

ROWS = ("data", "fsdp")
"""The axes of a mesh over which the rows of a batch lie."""
TOKENS = "sequence"
"""The axis over which the tokens of a row lie."""
PARTS = "tensor"
"""The axis over which heads, hidden units and the vocabulary lie."""


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Placement:
    """The places of activations; a static value, so that it passes scan and remat.

    Attributes:
        mesh: The devices, with the axes of `jtransformer.spec.MESH_AXES`; None is one device, on
            which nothing is said.
        kernels: Whether attention may be computed by a kernel, which has no forward mode.
    """

    mesh: Mesh | None = None
    kernels: bool = True

    @property
    def platform(self) -> str:
        """What the program is compiled for: "cpu", "gpu" or "tpu"."""
        return jax.default_backend() if self.mesh is None else self.mesh.devices.flat[0].platform

    @property
    def rows(self) -> Rows:
        """How the rows and tokens of a product's input are kept, see `functional.linear`."""
        if self.mesh is not None and self.mesh.shape[TOKENS] > 1:
            return "apart"
        return "merged_cpu" if self.platform == "cpu" else "merged"

    def table(self, x: Float[Array, "V D"]) -> Float[Array, "V D"]:
        """Places a table to be read: whole in width, or every token would be gathered instead."""
        return self._placed(x, (PARTS, None))

    def stream(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Places the residual stream, or what is as wide."""
        return self._placed(x, (ROWS, TOKENS, None))

    def heads(self, x: Float[Array, "B T N H"]) -> Float[Array, "B T N H"]:
        """Places queries, keys, values or what was read by them."""
        return self._placed(x, (ROWS, TOKENS, PARTS, None))

    def hidden(self, x: Float[Array, "B T F"]) -> Float[Array, "B T F"]:
        """Places the hidden units of a feed-forward network."""
        return self._placed(x, (ROWS, TOKENS, PARTS))

    def logits(self, x: Float[Array, "B T V"]) -> Float[Array, "B T V"]:
        """Places the scores of every token."""
        return self._placed(x, (ROWS, TOKENS, PARTS))

    def attend(
        self,
        q: Float[Array, "B T N H"],
        k: Float[Array, "B S K H"],
        v: Float[Array, "B S K Hv"],
        *,
        mask: Bool[Array, "..."] | F.Visibility | None = None,
        bias: Float[Array, "..."] | None = None,
        scale: float | None = None,
        soft_cap: float | None = None,
        dropout_rate: float | Float[Array, ""] = 0.0,
        key: DropoutKey | None = None,
        heads_on: Bool[Array, " N"] | None = None,
    ) -> Float[Array, "B T N Hv"]:
        """Computes `dot_product_attention` where the program runs, see `sharded_attention`.

        Args:
            q: Queries.
            k: Keys.
            v: Values.
            mask: As there, of four axes where it is drawn.
            bias: Likewise.
            scale: As there, like the options that follow.
            soft_cap: See there.
            dropout_rate: See there.
            key: See there.
            heads_on: See there.
        """
        platform = self._platform_of_attention()
        scores: Any = {"mask": mask, "bias": bias, "soft_cap": soft_cap}
        drops: Any = {"dropout_rate": dropout_rate, "key": key}
        backend = "auto"
        if self.mesh is not None:
            chosen = choose(self.mesh, (q, k, v), platform, scores | drops)
            if chosen.backend != "plain":
                out = divided_attention(chosen, (q, k, v), platform, **scores, scale=scale)
                return out if heads_on is None else jnp.where(heads_on[:, None], out, 0)
            backend = "plain"
        return F.dot_product_attention(
            q,
            k,
            v,
            **scores,
            **drops,
            scale=scale,
            heads_on=heads_on,
            backend=backend,
            platform=platform,
        )

    def _platform_of_attention(self) -> str | None:
        if not self.kernels:
            # No kernel is made for it, so that none is chosen, wherever the program runs.
            return "cpu"
        # Of the devices of this process more is known than the name of their platform.
        is_here = self.mesh is None or self.platform == jax.default_backend()
        return None if is_here else self.platform

    def _placed(self, x: Array, over: Any) -> Array:
        if self.mesh is None:
            return x
        axes = divided(x.shape, over, self.mesh.shape)
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, axes))


ONE_DEVICE = Placement()
"""That of a model which is not divided."""


def divided(
    shape: tuple[int, ...],
    axes: tuple[str | tuple[str, ...] | None, ...],
    sizes: Mapping[str, int],
) -> PartitionSpec:
    """Returns which axis of an array lies over which of a mesh.

    Args:
        shape: The shape of the array.
        axes: What each axis is to lie over; None is none.
        sizes: The size of each axis of the mesh. What it does not divide stays whole.
    """
    found: list[str | tuple[str, ...] | None] = []
    for size, over in zip(shape, axes, strict=True):
        names = (over,) if isinstance(over, str) else over or ()
        parts = math.prod(sizes[name] for name in names)
        found.append(over if parts > 1 and size % parts == 0 else None)
    return PartitionSpec(*found)
