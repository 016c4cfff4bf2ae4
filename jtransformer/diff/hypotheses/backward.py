"""Hypotheses about the way back alone: other labels, and gradients that are stopped.

They change no place before the loss, and are tried where all values agree and gradients do not.
"""

from typing import Any

from jax import Array, lax

from jtransformer.diff import hooks
from jtransformer.diff.hypotheses.ends import label_shift
from jtransformer.diff.hypotheses.kinds import Found, Hypothesis
from jtransformer.diff.ours import Hook, Ours

KIND = "stopped gradient"


def of_gradients(ours: Ours) -> Found:
    """Yields every hypothesis that a model allows."""
    yield from label_shift(ours)
    stopped = {
        "the lookup of the embeddings": hooks.after(("Transformer",), "scaled", _stopped),
        "queries and keys": _projected("query", "key"),
        "the values of attention": _projected("value"),
        "the feed-forward network": hooks.before(("FeedForward",), "__call__", _first_stopped),
        "attention": hooks.before(hooks.ATTENTION, "__call__", _first_stopped),
    }
    for named, hook in stopped.items():
        words = f"with no gradient through {named}"
        yield Hypothesis(KIND, words, "", ours.but(hooks=(*ours.hooks, hook)))


def _stopped(module: Any, args: tuple, out: Array) -> Array:
    del module, args
    return lax.stop_gradient(out)


def _first_stopped(module: Any, args: tuple) -> tuple:
    del module
    return (lax.stop_gradient(args[0]), *args[1:])


def _projected(*names: str) -> Hook:
    def edit(module: Any, args: tuple, heads: Array) -> Array:
        del module
        return lax.stop_gradient(heads) if args[1] in names else heads

    return hooks.after(hooks.ATTENTION, "project", edit)
