"""The loss: where it starts, and which token a position is asked for."""

import math

import jax.numpy as jnp
import numpy as np

from jtransformer.checks.law import Law
from jtransformer.checks.report import Finding, NotApplicable
from jtransformer.checks.subject import Subject, on_host
from jtransformer.checks.tolerance import exact, size

GROUP = "loss"
READ = 4
"""Ids 0 … 3 alone are read where the loss at the start is measured: what the stream carries of a
token's own row makes its logit an outlier where the head is tied."""
UNSETTLED = 0.25
"""Standard error, in nats, beyond which a mean of exponentials says nothing."""


def at_start(subject: Subject) -> Finding | NotApplicable:
    """Compares the loss at the initial values with ln V + variance / 2.

    Labels are drawn uniformly from the ids that are not read, which leaves their mean: the loss is
    ln V plus the logarithm of the mean of exp(logit - mean logit). For V independent normal logits
    that is variance / 2, with the standard error sqrt((exp(variance) - 1) / V). Positions share
    the head and so do not narrow it; four such errors are allowed.
    """
    assert subject.initial is not None
    V = subject.vocabulary
    if V <= 2 * READ:
        return NotApplicable(f"{V} token ids are too few for a mean over them")
    tokens = subject.tokens(41) % READ
    logits = exact(subject.initial(jnp.asarray(tokens)))[:, :, READ:]
    centred = logits - logits.mean(axis=-1, keepdims=True)
    top = centred.max(axis=-1, keepdims=True)
    raised = top[..., 0] + np.log(np.exp(centred - top).mean(axis=-1))
    variance = float(np.square(centred).mean())
    loss, expected = math.log(V) + float(raised.mean()), math.log(V) + variance / 2
    shown = (
        f"loss {loss:.4f}, ln V + variance / 2 = {expected:.4f}, ln V = {math.log(V):.4f}, "
        f"standard deviation of the logits {math.sqrt(variance):.3g}"
    )
    error = math.sqrt(math.expm1(min(variance, 600.0)) / (V - READ))
    if math.isfinite(variance) and error > UNSETTLED:
        return NotApplicable(
            f"{shown}: logits spread too far for a mean of their exponentials over {V} ids"
        )
    limit = 4 * error + subject.rounding.limit() * max(1.0, math.sqrt(variance))
    return Finding(abs(loss - expected), "nats from ln V + variance / 2", limit, detail=shown)


def mean_nll(logits: np.ndarray, ids: np.ndarray, shift: int, scored: np.ndarray) -> float:
    """Returns the mean negative log-likelihood of ids so many places on, in nats."""
    T = ids.shape[1]
    z = exact(logits)[:, : T - shift]
    top = z.max(axis=-1, keepdims=True)
    log_sum = top[..., 0] + np.log(np.exp(z - top).sum(axis=-1))
    asked = np.take_along_axis(z, ids[:, shift:, None], axis=-1)[..., 0]
    where = scored[:, : T - shift]
    return float((log_sum - asked)[where].mean()) if where.any() else math.nan


def label_shift(subject: Subject) -> Finding:
    """Compares the loss of raw ids with that of the logits and the ids so many places on."""
    assert subject.loss is not None
    ids = subject.tokens(42)
    logits, given = subject.logits(ids), subject.scored
    scored = np.broadcast_to(True if given is None else np.asarray(given, bool), ids.shape)
    found = float(on_host(subject.loss(jnp.asarray(ids))))
    expected = mean_nll(logits, ids, subject.loss_shift, scored)
    limit = subject.rounding.limit() * max(1.0, size(logits))
    detail = f"loss {found:.6f}, of labels {subject.loss_shift} on {expected:.6f}"
    if not abs(found - expected) <= limit:
        others = {
            shift: mean_nll(logits, ids, shift, scored)
            for shift in range(4)
            if shift != subject.loss_shift
        }
        fits = [shift for shift, nll in others.items() if abs(found - nll) <= limit]
        detail += f"; it is that of labels {fits[0]} on" if fits else "; no shift explains it"
    return Finding(abs(found - expected), "nats", limit, detail=detail)


def labels_of_data(subject: Subject) -> Finding | NotApplicable:
    """Counts labels of a batch that are not the token after their position."""
    assert subject.examples is not None
    tokens, labels, weights = map(np.asarray, subject.examples)
    scored = weights[:, :-1] > 0
    if not scored.any():
        return NotApplicable("the batch scores no position whose next token is in its row")
    wrong = (labels[:, :-1] != tokens[:, 1:]) & scored
    detail = f"{int(scored.sum())} labels of a batch"
    return Finding(float(wrong.sum()), "labels that are not the next token", 0.0, detail=detail)


LAWS = (
    Law(GROUP, "loss at the initial values", ("initial",), at_start),
    Law(GROUP, "shift of the labels", ("loss",), label_shift),
    Law(GROUP, "labels of the data", ("examples",), labels_of_data),
)
