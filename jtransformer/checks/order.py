"""Positions: what the order of tokens does, and what it must not do."""

import jax.numpy as jnp
import numpy as np

from jtransformer.checks.law import Law
from jtransformer.checks.report import Finding, NotApplicable
from jtransformer.checks.subject import Subject, on_host
from jtransformer.checks.tolerance import distance

GROUP = "positions"
UNIT = "of the logits' size"
SHIFT = 17
"""By how much all positions are moved; no multiple of what any ladder turns by."""


def relativity(subject: Subject) -> Finding | NotApplicable:
    """Moves all positions by the same number."""
    if subject.positions == "absolute":
        return NotApplicable("positions are absolute: a shift is felt")
    assert subject.with_positions is not None
    tokens = jnp.asarray(subject.tokens(31))
    here = np.broadcast_to(np.arange(subject.length, dtype=np.int32), tokens.shape)
    before, after = (
        on_host(subject.with_positions(tokens, jnp.asarray(at))) for at in (here, here + SHIFT)
    )
    detail = f"all positions moved by {SHIFT}"
    return Finding(distance(after, before), UNIT, subject.rounding.limit(), detail=detail)


def permutation(subject: Subject) -> Finding:
    """Gives the tokens in another order.

    Without positions and with full visibility the logits follow; else the order must be felt.
    """
    tokens, T = subject.tokens(32), subject.length
    order = np.roll(np.arange(T)[::-1], 1)
    full = bool(subject.reach.all()) and not subject.causal
    turned, there = subject.logits(tokens[:, order]), subject.logits(tokens)[:, order]
    figure, limit = distance(turned, there), subject.rounding.limit()
    if subject.positions == "none" and full:
        detail = "no positions, all visible: logits follow their tokens"
        return Finding(figure, UNIT, limit, detail=detail)
    detail = "order must be felt: by " + ("positions" if full else "the mask")
    return Finding(figure, UNIT, limit, at_least=True, detail=detail)


LAWS = (
    Law(GROUP, "differences of positions alone", ("with_positions", "positions"), relativity),
    Law(GROUP, "order of tokens", ("positions",), permutation),
)
