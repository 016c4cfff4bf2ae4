"""Operations of one attention sublayer, for one sequence.

A product of [m, k] and [k, n] counts 2mkn, here as everywhere in the accounting.
"""

import math
from typing import NamedTuple

from jtransformer.accounting.leaves import ANY_LAYER, leaves
from jtransformer.accounting.stacks import StackView, windows_of
from jtransformer.spec import LatentAttention, LinearAttention, ModelSpec, Shaw

CHUNK = 64
"""Tokens that causal linear attention reads at once; inside a chunk it forms all pairs."""


class Scores(NamedTuple):
    """Operations of scores and of the reads they weigh.

    Attributes:
        computed: As the program does it: hidden scores are computed and masked.
        visible: What the visible pairs of query and key need.
    """

    computed: int
    visible: int


def visible_pairs(length: int, window: int | None, *, causal: bool) -> int:
    """Counts the pairs of query and key in a sequence that see each other.

    A causal query at position p sees min(p + 1, window) keys. Without causality a window reaches
    as far to both sides: |distance| < window.
    """
    reach = length if window is None else min(window, length)
    # The keys at a distance of 0, 1, … reach - 1 before each query.
    before = reach * length - reach * (reach - 1) // 2
    return before if causal else 2 * before - length


def self_scores(model: ModelSpec, stack: StackView, *, length: int) -> Scores:
    """Counts scores and reads of all layers of a stack, over a sequence of `length` tokens."""
    if isinstance(model.attention, LinearAttention):
        return _linear_scores(model, stack, length)
    per_pair, per_query = pair_cost(model), query_cost(model)
    pairs = [
        visible_pairs(length, window, causal=stack.causal) for window in windows_of(model, stack)
    ]
    fixed = stack.layers * length * per_query
    return Scores(
        computed=stack.layers * length**2 * per_pair + fixed,
        visible=sum(pairs) * per_pair + fixed,
    )


def pair_cost(model: ModelSpec) -> int:
    """Operations of one query and one key in one layer: the score and the read.

    Latent attention reads the latent itself where that is narrower than a key and a value: its
    queries then go through the matrix of the keys, and what they read through that of the values,
    which costs as much as to form keys and values (DeepSeek-AI 2024, sec. 2.1).
    """
    attention, widths = model.attention, model.H + model.Hv
    if isinstance(attention, LatentAttention):
        widths = min(widths, 2 * attention.latent_width) + (attention.rotary_width or 0)
    return 2 * model.heads * widths


def query_cost(model: ModelSpec) -> int:
    """Operations of one query that do not depend on how many keys it reads: Shaw's rows."""
    position = model.position
    if not isinstance(position, Shaw):
        return 0
    rows = 2 * position.max_distance + 1
    return 2 * model.heads * rows * (model.H + (model.Hv if position.values else 0))


def _linear_scores(model: ModelSpec, stack: StackView, length: int) -> Scores:
    """Counts the products of features: pairs inside a chunk, and a state between chunks."""
    N, K, H, Hv = model.heads, model.K, model.H, model.Hv
    state = 2 * N * H * (Hv + 1)
    update = 2 * K * H * Hv
    if not stack.causal:
        both = stack.layers * length * (state + update)
        return Scores(both, both)
    size = min(CHUNK, length)
    chunks = -(-length // size)
    rest = length - (chunks - 1) * size
    pairs = 2 * N * (H + Hv)
    visible = (chunks - 1) * visible_pairs(size, None, causal=True)
    visible += visible_pairs(rest, None, causal=True)
    return Scores(
        computed=stack.layers * chunks * size * (size * pairs + state + update),
        visible=stack.layers * (visible * pairs + length * (state + update)),
    )


def memory_scores(model: ModelSpec, stack: StackView, *, keys: int) -> int:
    """Counts scores and reads of one query in the cross-attention of all layers."""
    if not stack.reads_memory:
        return 0
    return stack.layers * keys * 4 * model.heads * model.H


def step_scores(model: ModelSpec, stack: StackView, *, length: int) -> int:
    """Counts scores and reads of the last of `length` tokens, the others in a cache."""
    attention = model.attention
    if isinstance(attention, LinearAttention):
        return _linear_scores(model, stack, 1).computed
    if isinstance(attention, LatentAttention):
        # Keys and values of all tokens are formed again, or the latents read as they are.
        C, widths = attention.latent_width, model.H + model.Hv
        once = C * widths
        read = min(length * (once + widths), once + length * 2 * C) - once
        read += length * (attention.rotary_width or 0)
        return stack.layers * 2 * model.heads * read
    keys = sum(min(length, window or length) for window in windows_of(model, stack))
    return keys * pair_cost(model) + stack.layers * query_cost(model)


def layer_entries(model: ModelSpec, stack: StackView, part: str) -> int:
    """Counts the entries of the kernels of one part of the layers, over a stack.

    Args:
        model: The model.
        stack: One of its stacks.
        part: Path inside a layer, such as "ffn" or "attention/query".
    """
    place = "layers" if model.scan_layers else ANY_LAYER
    return kernel_entries(model, f"{stack.prefix}{place}/{part}/")


def kernel_entries(model: ModelSpec, prefix: str) -> int:
    """Counts the entries of the kernels whose path begins so."""
    return sum(
        leaf.copies * math.prod(leaf.shape)
        for leaf in leaves(model)
        if leaf.path.startswith(prefix) and leaf.path.endswith("/kernel")
    )
