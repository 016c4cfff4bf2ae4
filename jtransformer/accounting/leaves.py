"""Every parameter of a model, by path and shape, from its spec alone.

This is the tree that `jtransformer.modules` makes, written down a second time on purpose: the
tests hold the two against each other, for looped and for stacked layers.
"""

from collections.abc import Iterator
from typing import NamedTuple

from jtransformer.accounting.stacks import StackView, stacks_of
from jtransformer.spec import (
    Classifier,
    DotProduct,
    DynamicTanh,
    Embedder,
    Encoder,
    EncoderDecoder,
    FixedScale,
    LatentAttention,
    LayerNorm,
    LayerScale,
    Learned,
    ModelSpec,
    RelativeBias,
    ScaleNorm,
    Shaw,
    T5Bias,
    Tagger,
    TokenHead,
)

Shape = tuple[int, ...]
ANY_LAYER = "layer_*"
"""Stands for the name of each layer of a stack whose layers are looped."""

FIRST_NORM = "attention_norm_in/"
"""The norm that the first layer of a stack lacks where the spec says so."""


class Leaf(NamedTuple):
    """A parameter, or one of the same shape in every layer.

    Attributes:
        path: Names down to it, joined by slashes; `ANY_LAYER` among them where it has copies.
        shape: Its shape; layers that are stacked come first.
        component: Field of `Parameters` under which it is counted.
        copies: How many of them there are.
        first: The first layer that has it, where it has copies; all later ones have it too.
    """

    path: str
    shape: Shape
    component: str
    copies: int = 1
    first: int = 0


def leaves(model: ModelSpec) -> tuple[Leaf, ...]:
    """Lists the parameters of a model."""
    found = [*_embeddings(model)]
    for stack in stacks_of(model):
        found += [leaf._replace(path=stack.prefix + leaf.path) for leaf in _stack(model, stack)]
    return (*found, *_head(model))


def _embeddings(model: ModelSpec) -> Iterator[Leaf]:
    D, stack = model.width, model.stack
    yield Leaf("embedding/table", (model.vocabulary, D), "embedding")
    if isinstance(stack, EncoderDecoder) and not stack.share_embedding:
        yield Leaf("source_embedding/table", (model.source_vocabulary or 0, D), "embedding")
    if isinstance(stack, Encoder) and stack.token_types:
        yield Leaf("token_type/table", (stack.token_types, D), "embedding")


def _stack(model: ModelSpec, stack: StackView) -> Iterator[Leaf]:
    """Lists the parameters of a stack; each has tables of positions of its own."""
    N, position = model.heads, model.position
    if isinstance(position, Learned):
        rows = position.first + position.max_length
        yield Leaf("position/table", (rows, model.width), "position")
    if isinstance(position, T5Bias):
        yield Leaf("position_bias/table", (position.buckets, N), "position")
    if isinstance(position, RelativeBias):
        yield Leaf("position_bias/table", (2 * position.max_distance + 1, N), "position")
    if model.embedding_norm:
        yield from _norm(model, "embedding_norm")
    for leaf in _layer(model, stack):
        if model.scan_layers:
            yield Leaf(f"layers/{leaf.path}", (stack.layers, *leaf.shape), leaf.component)
        else:
            first = 1 if not model.first_norm and leaf.path.startswith(FIRST_NORM) else 0
            copies = stack.layers - first
            if copies:
                yield leaf._replace(path=f"{ANY_LAYER}/{leaf.path}", copies=copies, first=first)
    if model.has_final_norm:
        yield from _norm(model, "final_norm")


def _layer(model: ModelSpec, stack: StackView) -> Iterator[Leaf]:
    yield from _attention(model)
    yield from _sublayer(model, "attention")
    if stack.reads_memory:
        yield from _cross_attention(model)
        yield from _sublayer(model, "cross_attention")
        if isinstance(model.stack, EncoderDecoder) and model.stack.normalize_memory:
            yield from _norm(model, "memory_norm")
    yield from _feed_forward(model)
    yield from _sublayer(model, "ffn")


def _sublayer(model: ModelSpec, name: str) -> Iterator[Leaf]:
    """Lists the norms of a sublayer and the scale of its branch."""
    shared = {
        "sequential": (),
        "parallel": ("norm_out",),
        "parallel_one_norm": ("norm_in", "norm_out"),
    }[model.sublayers]
    for slot in model.norm_slots:
        # Norms that sublayers share are named after the first of them.
        if name == "attention" or slot not in shared:
            yield from _norm(model, f"{name}_{slot}")
    if not isinstance(model.branch_scale, FixedScale):
        shape = (model.width,) if isinstance(model.branch_scale, LayerScale) else ()
        yield Leaf(f"{name}_branch_scale/scale", shape, "branch_scales")


def _norm(model: ModelSpec, path: str) -> Iterator[Leaf]:
    norm, D = model.norm, (model.width,)
    if isinstance(norm, DynamicTanh):
        yield Leaf(f"{path}/alpha", (), "norms")
    yield Leaf(f"{path}/scale", () if isinstance(norm, ScaleNorm) else D, "norms")
    if isinstance(norm, DynamicTanh) or (isinstance(norm, LayerNorm) and norm.bias):
        yield Leaf(f"{path}/bias", D, "norms")


def _kernel(path: str, shape: Shape, component: str, *, bias: Shape | None) -> Iterator[Leaf]:
    yield Leaf(f"{path}/kernel", shape, component)
    if bias is not None:
        yield Leaf(f"{path}/bias", bias, component)


def _attention(model: ModelSpec) -> Iterator[Leaf]:
    attention = model.attention
    if isinstance(attention, LatentAttention):
        yield from _latent_attention(model, attention)
    else:
        yield from _projections(model, "attention", Hv=model.Hv)
    position = model.position
    if isinstance(position, Shaw):
        rows = 2 * position.max_distance + 1
        yield Leaf("attention/key_distance/table", (rows, model.H), "position")
        if position.values:
            yield Leaf("attention/value_distance/table", (rows, model.Hv), "position")


def _projections(model: ModelSpec, name: str, *, Hv: int) -> Iterator[Leaf]:
    """Lists the four matrices of attention by dot products, and the norms of its heads."""
    D, N, K, H = model.width, model.heads, model.K, model.H
    for part, (heads, width) in {"query": (N, H), "key": (K, H), "value": (K, Hv)}.items():
        bias = (heads, width) if model.qkv_bias else None
        yield from _kernel(f"{name}/{part}", (D, heads, width), name, bias=bias)
    yield from _out(model, name, Hv=Hv)
    attention = model.attention
    if isinstance(attention, DotProduct) and attention.query_key_norm != "none":
        whole = attention.query_key_norm == "width"
        yield Leaf(f"{name}/query_norm/scale", (N, H) if whole else (H,), name)
        yield Leaf(f"{name}/key_norm/scale", (K, H) if whole else (H,), name)


def _out(model: ModelSpec, name: str, *, Hv: int) -> Iterator[Leaf]:
    bias = (model.width,) if model.attention_out_bias else None
    yield from _kernel(f"{name}/out", (model.heads, Hv, model.width), name, bias=bias)


def _latent_attention(model: ModelSpec, attention: LatentAttention) -> Iterator[Leaf]:
    D, N, C, Hr = model.width, model.heads, attention.latent_width, attention.rotary_width
    shapes: dict[str, Shape] = {"query": (D, N, model.H), "latent": (D, C)}
    if Hr:
        shapes |= {"query_rotary": (D, N, Hr), "key_rotary": (D, Hr)}
    for part, shape in shapes.items():
        bias = shape[1:] if model.qkv_bias else None
        yield from _kernel(f"attention/{part}", shape, "attention", bias=bias)
    yield Leaf("attention/latent_norm/scale", (C,), "attention")
    # What leads from the latent to the heads has no biases.
    for part, width in {"key": model.H, "value": model.Hv}.items():
        yield Leaf(f"attention/{part}/kernel", (C, N, width), "attention")
    yield from _out(model, "attention", Hv=model.Hv)


def _cross_attention(model: ModelSpec) -> Iterator[Leaf]:
    yield from _projections(model, "cross_attention", Hv=model.H)


def _feed_forward(model: ModelSpec) -> Iterator[Leaf]:
    D, F = model.width, model.ffn_width
    inputs, output = (("gate", "up"), "down") if model.gated else (("in",), "out")
    for part in inputs:
        yield from _kernel(f"ffn/{part}", (D, F), "ffn", bias=(F,) if model.ffn_bias else None)
    yield from _kernel(f"ffn/{output}", (F, D), "ffn", bias=(D,) if model.ffn_bias else None)


def _head(model: ModelSpec) -> Iterator[Leaf]:
    D, head = model.width, model.head
    if isinstance(model.stack, Encoder) and model.stack.pooler:
        yield from _kernel("pooler", (D, D), "head", bias=(D,))
    if isinstance(head, TokenHead):
        V = model.vocabulary
        if head.transform:
            bias = (D,) if head.transform_bias else None
            yield from _kernel("head_transform", (D, D), "head", bias=bias)
            for leaf in _norm(model, "head_norm"):
                yield leaf._replace(component="head")
        if not head.tied:
            yield Leaf("head/kernel", (D, V), "head")
        if head.bias:
            yield Leaf("head/bias", (V,), "head")
    elif isinstance(head, Classifier | Tagger):
        yield from _kernel("head", (D, head.classes), "head", bias=(head.classes,))
    elif isinstance(head, Embedder) and head.embedding_width:
        yield Leaf("head/kernel", (D, head.embedding_width), "head")
