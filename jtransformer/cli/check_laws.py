"""Which laws a model can be judged by, what each is given, and why others do not apply."""

import math
import tempfile
from pathlib import Path
from typing import Any

from jtransformer.checks import Decoding, NormPart, Source, stacked
from jtransformer.cli import check_trees as trees
from jtransformer.cli.check_model import ROWS, Calls, Judged
from jtransformer.cli.check_parts import functional_parts
from jtransformer.spec import (
    Alibi,
    Classifier,
    DotProduct,
    DynamicTanh,
    Embedder,
    Encoder,
    LatentAttention,
    LayerNorm,
    Learned,
    LinearAttention,
    MaskedLM,
    ModelSpec,
    NoPosition,
    PrefixDecoder,
    RMSNorm,
    Sinusoidal,
    TokenHead,
)

BYTES_IN_DOUBLE = 48
"""Bytes per parameter that differences in double precision take: six trees of them."""
NOTHING = "the model has none"
ABSOLUTE = (Learned, Sinusoidal)

Given = dict[str, Any]


def arguments(judged: Judged, calls: Calls, available: int) -> tuple[Given, dict[str, str]]:
    """Returns the arguments of `checks.run_all`, and why laws do not apply.

    Args:
        judged: What is judged.
        calls: Its functions.
        available: Bytes of memory that are free.
    """
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
        "lookup": lambda parameters, tokens: parameters["embedding"]["table"][tokens],
        "with_embeddings": calls.of_rows,
        "init": calls.init,
        "save_and_restore": save_and_restore,
        "expected_shapes": trees.expected_shapes(spec),
        "width": spec.width,
        "parts": functional_parts(),
    }
    for section in (_stacks, _decoding, _losses, _heads, _norms):
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
    from jtransformer import functional as F

    return F.token_positions(valid)


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


def _losses(judged: Judged, calls: Calls) -> tuple[Given, dict[str, str]]:
    spec, run = judged.model, judged.run
    given, reasons = {}, {}
    if isinstance(spec.head, TokenHead):
        given["initial"] = calls.initial
    else:
        why = "the head does not score tokens"
        reasons |= {"loss at the initial values": why, "shift of the labels": why}
    if isinstance(judged.examples, str):
        reasons["labels of the data"] = judged.examples
    else:
        given["examples"] = judged.examples
    if "shift of the labels" not in reasons:
        own = isinstance(spec.stack, Encoder) or (
            run is not None and isinstance(run.objective, MaskedLM)
        )
        given |= _loss(judged, calls, 0 if own else 1)
    return given, reasons


def _loss(judged: Judged, calls: Calls, places: int) -> Given:
    """Returns the loss of raw ids: the run's own program, or the plain loss of a model alone."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jtransformer import functional as F
    from jtransformer.data import Batch
    from jtransformer.data.objectives import after_prefix, shift

    T, program = judged.length, None
    if judged.run is not None:
        from jtransformer.training import Program

        program = Program(judged.run)

    def sums(logits: Any, labels: Any, weights: Any) -> Any:
        found = F.cross_entropy(logits, labels, weights)
        return found.nll_sum, found.weight_sum

    compiled = jax.jit(sums)

    def batch_of(ids: Any) -> Batch:
        ids = np.asarray(ids)
        if places == 0:
            return Batch(ids, ids, np.ones(ids.shape, np.float32))
        # No row is asked for the first token of the next.
        asked = np.ones(ids.shape, bool)
        asked[:, 0] = False
        index = np.arange(len(ids))[:, None] * T + np.arange(T)
        tokens, labels, weights = shift(ids.ravel(), asked.ravel(), index)
        if calls.prefix:
            weights = after_prefix(weights, np.full(len(ids), calls.prefix))
        return Batch(tokens, labels, weights)

    def loss(ids: Any) -> Any:
        batch = batch_of(ids)
        if program is not None:
            given = {n: np.asarray(x) for n, x in calls.needed(len(batch.tokens)).items()}
            nll, weight = program.evaluate(calls.parameters, batch._replace(**given))
        else:
            logits = calls.apply(jnp.asarray(batch.tokens))
            nll, weight = compiled(logits, jnp.asarray(batch.labels), jnp.asarray(batch.weights))
        return nll / weight

    scored = np.arange(T) >= max(0, calls.prefix - 1)
    return {"loss": loss, "loss_shift": places, "scored": scored}


def _heads(judged: Judged, calls: Calls) -> tuple[Given, dict[str, str]]:
    spec, reasons = judged.model, {}
    given: Given = {
        "heads": spec.K,
        "permute_heads": lambda parameters, order: trees.permuted(spec, parameters, order),
    }
    off = isinstance(spec.attention, DotProduct) and spec.attention.heads_off
    if isinstance(spec.position, Alibi):
        reasons["order of heads"] = "each head has a fixed slope of its own"
    elif off:
        reasons["order of heads"] = f"heads {off} are off, by their numbers"
    elif isinstance(spec.attention, LatentAttention) and spec.K != spec.heads:
        reasons["order of heads"] = "latent attention has no groups of heads"
    counts = trees.counts_by_heads(spec, calls.shapes)
    if len(counts) > 1:
        given["counts_by_heads"] = counts
    else:
        reasons["count by heads"] = "no other number of heads divides the width into such heads"
    return given, reasons


def _norms(judged: Judged, calls: Calls) -> tuple[Given, dict[str, str]]:
    spec, given, reasons = judged.model, {}, {}
    if isinstance(spec.norm, LayerNorm | RMSNorm):
        given["norm"] = norm_part(spec, judged.seed)
    else:
        why = f"norm.kind {spec.norm.kind!r} is neither layer_norm nor rms_norm"
        reasons |= {"definition of the norm": why, "Jacobian of the norm": why}
    law = "norm before the head"
    if not spec.has_final_norm:
        reasons[law] = "the stack ends without a norm of its own"
    elif isinstance(spec.norm, DynamicTanh):
        reasons[law] = "a tanh feels the size of the stream"
    elif spec.stream_scale == 0:
        reasons[law] = "there is no stream from the embeddings to the head"
    else:
        given["readout"] = calls.readout
    return given, reasons


def norm_part(spec: ModelSpec, seed: int) -> NormPart:
    """Returns the model's norm with a scale and a bias that are drawn."""
    import functools

    import jax
    import jax.numpy as jnp
    import numpy as np

    from jtransformer import functional as F

    norm = spec.norm
    assert isinstance(norm, LayerNorm | RMSNorm)
    generator, shape = np.random.default_rng(seed), spec.width
    scale = jnp.asarray(generator.uniform(0.5, 1.5, shape), jnp.float32)
    bias = None
    if isinstance(norm, LayerNorm):
        if norm.bias:
            bias = jnp.asarray(generator.normal(size=shape), jnp.float32)
        apply = functools.partial(F.layer_norm, scale=scale, bias=bias, epsilon=norm.epsilon)
    else:
        # What is stored is the scale itself, or what is added to 1.
        offset = 1.0 if norm.unit_offset else 0.0
        apply = functools.partial(
            F.rms_norm, scale=scale - offset, epsilon=norm.epsilon, scale_offset=offset
        )
    return NormPart(
        apply=jax.jit(apply),
        kind="layer_norm" if isinstance(norm, LayerNorm) else "rms_norm",
        width=spec.width,
        epsilon=norm.epsilon,
        scale=scale,
        bias=bias,
    )


def save_and_restore(parameters: Any) -> Any:
    """Saves parameters as a run does, and reads them back."""
    import jax

    from jtransformer import records
    from jtransformer.training import Checkpoints

    with tempfile.TemporaryDirectory() as directory:
        files = records.RunFiles(Path(directory))
        with Checkpoints(files, "0" * 64) as checkpoints:
            checkpoints.save(0, parameters, 0.0)
            restored = checkpoints.restore(0, jax.eval_shape(lambda: parameters))
    return jax.tree.map(jax.numpy.asarray, restored)
