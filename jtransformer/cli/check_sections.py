"""What the laws of losses, heads, norms and saving are given by `jtransformer check`."""

import tempfile
from pathlib import Path
from typing import Any

from jtransformer.checks import NormPart
from jtransformer.cli import check_trees as trees
from jtransformer.cli.check_model import Calls, Given, Judged
from jtransformer.spec import (
    Alibi,
    DotProduct,
    DynamicTanh,
    Encoder,
    LatentAttention,
    LayerNorm,
    MaskedLM,
    ModelSpec,
    RMSNorm,
    TokenHead,
)


def losses(judged: Judged, calls: Calls) -> tuple[Given, dict[str, str]]:
    """Returns what the laws of the loss are given: logits at the start, the loss, labels."""
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


def heads(judged: Judged, calls: Calls) -> tuple[Given, dict[str, str]]:
    """Returns what the laws of heads are given: another order of them, counts for other numbers."""
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


def norms(judged: Judged, calls: Calls) -> tuple[Given, dict[str, str]]:
    """Returns what the laws of norms are given: the model's norm, and the way to the head."""
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
