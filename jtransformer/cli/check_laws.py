"""Which laws a model can be judged by, what each is given, and why others do not apply."""

import math
from typing import Any

from jtransformer.checks import Decoding, Source, stacked
from jtransformer.cli import check_sections as sections
from jtransformer.cli import check_trees as trees
from jtransformer.cli.check_model import ROWS, Calls, Given, Judged
from jtransformer.cli.check_parts import functional_parts
from jtransformer.spec import (
    Classifier,
    Embedder,
    Encoder,
    Learned,
    LinearAttention,
    ModelSpec,
    NoPosition,
    PrefixDecoder,
    Sinusoidal,
)

BYTES_IN_DOUBLE = 48
"""Bytes per parameter that differences in double precision take: six trees of them."""
ABSOLUTE = (Learned, Sinusoidal)


def arguments(judged: Judged, calls: Calls, available: int) -> tuple[Given, dict[str, str]]:
    """Returns the arguments of `checks.run_all`, and why laws do not apply.

    Args:
        judged: What is judged.
        calls: Its functions.
        available: Bytes of memory that are free.
    """
    import jax

    spec, reasons = judged.model, {}
    given: Given = {
        "apply": calls.apply,
        "again": calls.again,
        "vocabulary": spec.vocabulary,
        "length": judged.length,
        "causal": spec.causal,
        "reach": reach(calls),
        "prefix": calls.prefix,
        "rows": ROWS,
        "seed": judged.seed,
        **_rounding(spec),
        "parameters": calls.parameters,
        "model": calls.outputs,
        "double": calls.outputs_double,
        "with_valid": lambda tokens, valid: calls.changed(
            tokens, valid=valid, positions=_counted(valid)
        ),
        "positions": _positions(spec),
        "with_positions": lambda tokens, at: calls.changed(tokens, positions=at),
        "lookup": jax.jit(lambda parameters, tokens: parameters["embedding"]["table"][tokens]),
        "with_embeddings": calls.of_rows,
        "init": calls.init,
        "save_and_restore": sections.save_and_restore,
        "expected_shapes": trees.expected_shapes(spec),
        "width": spec.width,
        "parts": functional_parts(),
    }
    for section in (_stacks, _decoding, sections.losses, sections.heads, sections.norms):
        own, why = section(judged, calls)
        given |= own
        reasons |= why
    if calls.is_tied:
        given["tied_table"] = lambda parameters: parameters["embedding"]["table"]
    else:
        why = "the head has a matrix of its own, or none"
        reasons |= {"gradient of a tied table": why, "sharing after restoring": why}
    needed = BYTES_IN_DOUBLE * sum(math.prod(s) for s in given["expected_shapes"].values())
    if needed > available:
        reasons["gradients by differences"] = (
            f"too costly here: needs {needed / 1e9:.0f} GB, {available / 1e9:.0f} GB are free"
        )
    return given, reasons


def _rounding(spec: ModelSpec) -> Given:
    layers, branches = spec.layers, 2
    if spec.has_encoder:
        # Deepest is the way through the encoder and all of the decoder.
        layers, branches = spec.layers, 3
    depth = branches * layers + 2 * getattr(spec.stack, "encoder_layers", 0)
    parts = spec.precision
    kinds = (parts.stream, parts.attention, parts.ffn, parts.head)
    terms = max(spec.width, spec.ffn_width, spec.heads * spec.Hv)
    dtype = "bfloat16" if "bfloat16" in kinds else "float32"
    return {"dtype": dtype, "depth": depth, "terms": terms}


def _counted(valid: Any) -> Any:
    """Counts the real tokens of each row."""
    import jax

    from jtransformer import functional as F

    return jax.jit(F.token_positions)(valid)


def _positions(spec: ModelSpec) -> str:
    if isinstance(spec.position, NoPosition):
        return "none"
    return "absolute" if isinstance(spec.position, ABSOLUTE) else "relative"


def masks(calls: Calls, prefix: int) -> list[Any]:
    """Returns what a position may see in each layer, bool `T T`, from positions alone."""
    import numpy as np

    spec, T = calls.spec, calls.length
    i, j = np.arange(T)[:, None], np.arange(T)[None]
    sees = (j <= i) | ((i < prefix) & (j < prefix)) if spec.causal else np.ones((T, T), bool)
    found = []
    for layer in range(spec.layers):
        window = calls.window_of(layer)
        found.append(sees if window is None else sees & (np.abs(i - j) < window))
    return found


def reach(calls: Calls, prefix: int | None = None) -> Any:
    """Returns which input reaches which output through all layers."""
    return stacked(masks(calls, calls.prefix if prefix is None else prefix))


def _stacks(judged: Judged, calls: Calls) -> tuple[Given, dict[str, str]]:
    """Sources, prefixes, documents: what a stack reads besides."""
    import jax.numpy as jnp
    import numpy as np

    spec, given, reasons = judged.model, {}, {}
    tokens = np.random.default_rng(judged.seed).integers(
        spec.vocabulary, size=(ROWS, judged.length)
    )
    fixed = jnp.asarray(tokens, jnp.int32)
    if spec.has_encoder:
        given["source"] = Source(
            apply=lambda source: calls.changed(fixed, source=source),
            length=calls.source_length,
            vocabulary=spec.source_vocabulary or spec.vocabulary,
            with_valid=lambda source, valid: calls.changed(
                fixed, source=source, source_valid=valid, source_positions=_counted(valid)
            ),
            with_embeddings=calls.of_source_rows,
        )
        # A window of the encoder shortens what a target reads of no source token: it reads all.
    else:
        why = "the model reads no source"
        for law in (
            "source by perturbation", "source by gradient", "padding of the source is invisible",
        ):  # fmt: skip
            reasons[law] = why
    if isinstance(spec.stack, PrefixDecoder):
        given["with_prefix"] = lambda tokens, prefix: calls.changed(
            tokens, prefix_length=jnp.full(ROWS, prefix, jnp.int32)
        )
        given["prefix_reach"] = lambda prefix: reach(calls, prefix)
        reasons["documents of a row"] = "a prefix stands at the start of its row, one per row"
    else:
        reasons["prefix"] = "the model has no prefix whose tokens see one another"
        if calls.takes_segments:
            given["with_segments"] = lambda tokens, segments: _packed(calls, tokens, segments)
        elif isinstance(spec.attention, LinearAttention):
            reasons["documents of a row"] = "linear attention has one state for a whole row"
        else:
            reasons["documents of a row"] = "the head has one answer for a whole row"
    return given, reasons


def _packed(calls: Calls, tokens: Any, segments: Any) -> Any:
    changes = {"segments": segments}
    if calls.spec.has_encoder:
        import jax.numpy as jnp

        S = calls.source_length
        halves = jnp.where(jnp.arange(S) < S // 2, 1, 2)
        changes["source_segments"] = jnp.broadcast_to(halves, (ROWS, S)).astype(jnp.int32)
    return calls.changed(tokens, **changes)


def _decoding(judged: Judged, calls: Calls) -> tuple[Given, dict[str, str]]:
    spec, T = judged.model, judged.length
    if isinstance(spec.stack, Encoder):
        return {}, {"cached decoding": "an encoder reads all tokens at once"}
    if isinstance(spec.head, Classifier | Embedder):
        return {}, {"cached decoding": "the head pools all tokens of a row"}
    found = {
        "a cache of all tokens": Decoding(
            calls.empty_cache, calls.step, calls.first_step, ragged=True
        )
    }
    windows = [calls.window_of(layer) for layer in range(spec.layers)]
    near = [window for window in windows if window is not None and window + 1 < T]
    rings = near if len(near) == len(windows) or not spec.scan_layers else []
    if rings and calls.prefix <= 1:
        found["a ring as large as the window"] = Decoding(
            lambda rows, capacity: calls.empty_cache(rows, capacity, chunk=1),
            calls.step,
            calls.first_step,
            most=1,
        )
    return {"decoding": found}, {}
