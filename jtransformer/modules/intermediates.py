"""Values on the way to the logits, returned by name to who asks for them.

Names are paths: `embedded`, `layer_0/attention/weights`, `layer_0/stream`, `final_norm`, and with
`encoder/` or `decoder/` before them where there are two stacks. A request may be a pattern of
`fnmatch`, such as `layer_*/stream`, where a star stands for slashes too.
"""

import fnmatch
from collections.abc import Iterator, Sequence

from jtransformer.modules.inputs import Call
from jtransformer.modules.parts import Part, parts_of
from jtransformer.spec import LinearAttention, ModelSpec, Shaw, nearest


def names(spec: ModelSpec, part: Part) -> Iterator[str]:
    """Yields the names of a stack, in the order in which the values come to be."""
    prefix = f"{part.scope}/" if part.scope else ""
    yield f"{prefix}embedded"
    for layer in range(part.layers):
        for local in layer_names(spec, part):
            yield f"{prefix}layer_{layer}/{local}"
    if spec.has_final_norm:
        yield f"{prefix}final_norm"


def layer_names(spec: ModelSpec, part: Part) -> Iterator[str]:
    """Yields the names inside one layer."""
    in_order = spec.sublayers == "sequential"
    for attention in ("attention", "cross_attention") if part.cross else ("attention",):
        yield f"{attention}/input"
        if attention == "cross_attention" or not why_no_weights(spec):
            yield f"{attention}/weights"
        yield f"{attention}/output"
        if in_order:
            yield f"{attention}/stream"
    yield from ("ffn/input", "ffn/activation", "ffn/output")
    if in_order:
        yield "ffn/stream"
    yield "stream"


def why_no_weights(spec: ModelSpec) -> str:
    """Says why self-attention has no weights to return; empty where it has."""
    if isinstance(spec.attention, LinearAttention):
        return "linear attention has no weights"
    if isinstance(spec.position, Shaw):
        return "attention with Shaw's relative positions returns no weights"
    return ""


def wanted(spec: ModelSpec, patterns: Sequence[str], call: Call) -> tuple[str, ...]:
    """Returns the names that the patterns match, in the order in which the values come to be.

    Args:
        spec: The model.
        patterns: Names or patterns of them.
        call: The call; an encoder that it does not run has no values.

    Raises:
        ValueError: If a pattern matches nothing; the nearest name is offered.
    """
    if isinstance(patterns, str):
        raise ValueError(
            f"intermediates must be a sequence of names, got {patterns!r}; write ({patterns!r},)."
        )
    if not patterns:
        return ()
    encoder, main = parts_of(spec)
    known = [*names(spec, encoder)] if encoder is not None and call.source_shape else []
    known += names(spec, main)
    for pattern in patterns:
        if fnmatch.filter(known, pattern):
            continue
        if pattern.endswith("weights") and why_no_weights(spec):
            raise ValueError(f"intermediates: {pattern!r} matches nothing, because "
                             f"{why_no_weights(spec)}; leave it out.")  # fmt: skip
        raise ValueError(f"intermediates: {pattern!r} matches nothing; {nearest(pattern, known)}.")
    return tuple(
        name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    )


def within(names: frozenset[str], prefix: str) -> frozenset[str]:
    """Returns what is left of the names that begin with a prefix, without it."""
    return frozenset(name.removeprefix(prefix) for name in names if name.startswith(prefix))
