"""Values on the way to the logits, returned by name to who asks for them.

Names are paths: `embedded`, `layer_0/attention/weights`, `layer_0/stream`, `final_norm`, and with
`encoder/` or `decoder/` before them where there are two stacks; `logits` comes last. A request may
be a pattern of `fnmatch`, such as `layer_*/stream`, where a star stands for slashes too.

Inside `attention/` and `cross_attention/`, in this order: `input`, behind the norm; `query`, `key`
and `value`, projected, `B T N H`; `query_normed` and `key_normed`; `query_turned` and `key_turned`,
by rotary positions; `scores` `B N T S`, scaled, capped and with their bias, before any mask;
`weights`, before any dropout; `mixed`, what the heads read, `B T N Hv`; `output`, the branch; and
`stream`, behind the sum. Keys and values are those of the tokens of the call, scores and weights
are over all slots of a cache. With latent attention `key` and `value` are made of the latent for
each head, and `query_turned` and `key_turned` are the rotary channels alone.

Inside `ffn/`: `input`; `gate` and `up`, or `hidden` where there is no gate, before the activation;
`activation`, what it gave, before any dropout; `output`; and `stream`.
"""

import fnmatch
from collections.abc import Iterator, Sequence

from jtransformer.modules.inputs import Call
from jtransformer.modules.parts import Part, parts_of
from jtransformer.spec import (
    DotProduct,
    Embedder,
    LinearAttention,
    ModelSpec,
    Rope,
    Shaw,
    nearest,
)

SELF, CROSS = "attention", "cross_attention"
LOGITS = "logits"


def names(spec: ModelSpec, part: Part, *, projects_memory: bool = True) -> Iterator[str]:
    """Yields the names of a stack, in the order in which the values come to be.

    Args:
        spec: The model.
        part: The stack.
        projects_memory: Whether keys and values of a memory are computed; else a cache has them.
    """
    prefix = f"{part.scope}/" if part.scope else ""
    yield f"{prefix}embedded"
    for layer in range(part.layers):
        for local in layer_names(spec, part, projects_memory=projects_memory):
            yield f"{prefix}layer_{layer}/{local}"
    if spec.has_final_norm:
        yield f"{prefix}final_norm"


def layer_names(spec: ModelSpec, part: Part, *, projects_memory: bool = True) -> Iterator[str]:
    """Yields the names inside one layer; the arguments are those of `names`."""
    end = ("output", "stream") if spec.sublayers == "sequential" else ("output",)
    for attention in (SELF, CROSS) if part.cross else (SELF,):
        has_keys = attention == SELF or projects_memory
        inside = _attention_names(spec, is_cross=attention == CROSS, has_keys=has_keys)
        yield from (f"{attention}/{name}" for name in ("input", *inside, "mixed", *end))
    hidden = ("gate", "up") if spec.gated else ("hidden",)
    yield from (f"ffn/{name}" for name in ("input", *hidden, "activation", *end))
    yield "stream"


def _attention_names(spec: ModelSpec, *, is_cross: bool, has_keys: bool) -> Iterator[str]:
    """Yields what attention forms of queries and keys, and the values."""
    both = ("query", "key") if has_keys else ("query",)
    yield from both
    if has_keys:
        yield "value"
    if not why_no_norms(spec):
        yield from (f"{name}_normed" for name in both)
    if not is_cross and not why_no_turn(spec):
        yield from (f"{name}_turned" for name in both)
    if is_cross or not why_no_weights(spec):
        yield from ("scores", "weights")


def why_no_weights(spec: ModelSpec) -> str:
    """Says why self-attention has no weights to return; empty where it has."""
    if isinstance(spec.attention, LinearAttention):
        return "linear attention has no weights"
    if isinstance(spec.position, Shaw):
        return "attention with Shaw's relative positions returns no weights"
    return ""


def why_no_norms(spec: ModelSpec) -> str:
    """Says why queries and keys have no norms; empty where they have."""
    attention = spec.attention
    if isinstance(attention, DotProduct) and attention.query_key_norm != "none":
        return ""
    return "queries and keys have no norm"


def why_no_turn(spec: ModelSpec) -> str:
    """Says why positions do not turn queries and keys of self-attention; empty where they do."""
    turns = isinstance(spec.position, Rope)
    return "" if turns else f"position.kind {spec.position.kind!r} turns no queries and keys"


def _why_not(spec: ModelSpec, pattern: str, *, projects_memory: bool) -> str:
    """Says why a pattern that ends with the name of a value matches none; empty if unknown."""
    name = pattern.rpartition("/")[2].lstrip("*?")
    if name in ("scores", "weights"):
        return why_no_weights(spec)
    if name in ("query_normed", "key_normed") and why_no_norms(spec):
        return why_no_norms(spec)
    if name in ("query_turned", "key_turned"):
        return why_no_turn(spec) or ("cross-attention has no positions" if CROSS in pattern else "")
    if CROSS in pattern and name in ("key", "key_normed", "value") and not projects_memory:
        return "the cache has the keys and values of the memory"
    if name in ("gate", "up") and not spec.gated:
        return f"ffn {spec.ffn!r} has no gate"
    if name == "hidden" and spec.gated:
        return f"ffn {spec.ffn!r} has a gate and an up"
    return "the head has no scores" if name == LOGITS else ""


def all_names(spec: ModelSpec, *, reads_source: bool = True) -> list[str]:
    """Returns the names of a model, in the order in which the values come to be.

    Args:
        spec: The model.
        reads_source: Whether the call runs the encoder, if there is one; else a cache has what
            was read of it.
    """
    encoder, main = parts_of(spec)
    known = [*names(spec, encoder)] if encoder is not None and reads_source else []
    known += names(spec, main, projects_memory=reads_source)
    return known if isinstance(spec.head, Embedder) else [*known, LOGITS]


def wanted(spec: ModelSpec, patterns: Sequence[str], call: Call) -> tuple[str, ...]:
    """Returns the names that the patterns match, in the order in which the values come to be.

    Args:
        spec: The model.
        patterns: Names or patterns of them.
        call: The call; an encoder that it does not run has no values, and a memory whose keys and
            values are in a cache has none of them.

    Raises:
        ValueError: If a pattern matches nothing; the nearest name is offered.
    """
    if isinstance(patterns, str):
        raise ValueError(
            f"intermediates must be a sequence of names, got {patterns!r}; write ({patterns!r},)."
        )
    if not patterns:
        return ()
    reads_source = call.source_shape is not None
    known = all_names(spec, reads_source=reads_source)
    for pattern in patterns:
        if fnmatch.filter(known, pattern):
            continue
        if why := _why_not(spec, pattern, projects_memory=reads_source):
            raise ValueError(
                f"intermediates: {pattern!r} matches nothing, because {why}; leave it out."
            )
        raise ValueError(f"intermediates: {pattern!r} matches nothing; {nearest(pattern, known)}.")
    return tuple(
        name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    )


def within(names: frozenset[str], prefix: str) -> frozenset[str]:
    """Returns what is left of the names that begin with a prefix, without it."""
    return frozenset(name.removeprefix(prefix) for name in names if name.startswith(prefix))
