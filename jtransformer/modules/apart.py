"""A model taken apart: what its layers are given, and each sublayer as a function of its own.

linen's interceptors see the calls of a model from outside, so that a model holds nothing for the
sake of being looked at.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import flax.linen as nn
from jaxtyping import Array, Float, Int

from jtransformer.modules.block import Block
from jtransformer.modules.context import Mask, Own, Shared, seen
from jtransformer.modules.convert import unstack_layers
from jtransformer.modules.initial import LAYER
from jtransformer.modules.parts import Part
from jtransformer.modules.placement import Placement
from jtransformer.modules.transformer import Output, build
from jtransformer.spec import ModelSpec

Level = Literal["stream", "branch"]
"""A sublayer as the stream sees it, with its norms, its branch and the sum; or its own map."""


class LayerCall(NamedTuple):
    """What one layer is given, besides the stream and its parameters.

    Attributes:
        part: Its stack.
        layer: Its index there.
        windowed: Whether it has the window.
        shared: What all layers of the stack read.
        own: What this layer has of its own.
    """

    part: Part
    layer: int
    windowed: bool
    shared: Shared
    own: Own

    def mask(self, spec: ModelSpec, name: str) -> Mask:
        """Returns which keys the queries of an attention sublayer see; None is all."""
        if name == "cross_attention":
            return self.shared.memory_mask
        return seen(
            spec, self.part, self.windowed, shared=self.shared, own=self.own, read=None
        ).mask


class Observed(NamedTuple):
    """A call of a model, looked at.

    Attributes:
        output: What the model returned, its intermediates included.
        calls: What its layers were given, in the order in which they ran.
    """

    output: Output
    calls: tuple[LayerCall, ...]


def looped(spec: ModelSpec, parameters: Any) -> tuple[ModelSpec, Any]:
    """Returns the twin of a model that runs and keeps each layer by itself, and its parameters.

    Args:
        spec: The model.
        parameters: Its parameters, or any tree of their structure.
    """
    twin = dataclasses.replace(spec, scan_layers=False, rematerialize="nothing")
    if not spec.scan_layers:
        return twin, parameters
    return twin, unstack_layers(spec, {"params": parameters})["params"]


def observe(
    spec: ModelSpec,
    parameters: Any,
    tokens: Int[Array, "B T"],
    inputs: Mapping[str, Any],
    names: Sequence[str],
) -> Observed:
    """Calls a model without dropout and keeps what its layers are given.

    Args:
        spec: The model, with looped layers; see `looped`.
        parameters: Its parameters.
        tokens: Token ids.
        inputs: What else the call is given, by keyword.
        names: Intermediates to return.
    """
    assert not spec.scan_layers and spec.rematerialize == "nothing"
    calls: list[LayerCall] = []

    def looking(next_call: Any, args: Any, kwargs: Any, context: Any):
        block = context.module
        if isinstance(block, Block) and context.method_name == "__call__":
            _, shared, own = args
            layer = int(str(block.name).removeprefix(LAYER))
            assert block.windowed is not None
            calls.append(LayerCall(block.part, layer, block.windowed, shared, own))
        return next_call(*args, **kwargs)

    with nn.intercept_methods(looking):
        model = build(spec, Placement(kernels=False))
        output = model.apply({"params": parameters}, tokens, **inputs, intermediates=names)
    assert isinstance(output, Output)
    return Observed(output, tuple(calls))


def sublayer(
    spec: ModelSpec, call: LayerCall, name: str, level: Level
) -> Callable[[Any, Float[Array, "B T D"], Own], Float[Array, "B T D"]]:
    """Returns a sublayer by itself: a function of the layer's parameters, an input and its `own`.

    At the level "stream" it maps the stream before to the stream after:
    `norm_out(stream_scale x + branch_scale norm_branch(F(norm_in(x))))`; side by side, sublayers
    have one such map, which is the layer's. At the level "branch" it is F alone, from what
    `{name}/input` holds to `{name}/output`.

    Args:
        spec: The model, with looped layers.
        call: What one of its layers was given; others with the same `windowed`, `shared` and tree
            of parameters may use the function too.
        name: "attention", "cross_attention" or "ffn"; "layer" is the whole layer.
        level: See above; a whole layer has no branch.
    """
    block = Block(spec, call.part, call.windowed, is_first=call.layer == 0)

    def alone(next_call: Any, args: Any, kwargs: Any, context: Any):
        if name != "layer" and context.method_name == Block.wired.__name__:
            which, branch, x, *_ = args
            if which != name:
                return x
            if level == "branch":
                return branch(x)
        if level == "branch" and context.method_name == Block.wired_together.__name__:
            branches, x, *_ = args
            return branches[name](x)
        return next_call(*args, **kwargs)

    def function(parameters: Any, x: Float[Array, "B T D"], own: Own) -> Float[Array, "B T D"]:
        with nn.intercept_methods(alone):
            out: Any = block.apply({"params": parameters}, x, call.shared, own)
        return out[0]

    return function
