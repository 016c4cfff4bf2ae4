"""Hypotheses about positions: pairing, direction, offset, layout."""

import dataclasses

import jax.numpy as jnp

from jtransformer.diff import hooks
from jtransformer.diff.hypotheses.kinds import Found, Hypothesis, of_changes, stacks
from jtransformer.diff.ours import Ours
from jtransformer.spec import DotProduct, Learned, NoScaling, Rope, Sinusoidal

TURNED = "attention/query_turned"
SHIFTS = (1, -1, 2, -2)
BASES = (10_000.0, 500_000.0, 1_000_000.0)


def rope_pairing(ours: Ours) -> Found:
    """Yields the other pairing of channels."""
    rope = ours.spec.position
    if isinstance(rope, Rope):
        other = "interleaved" if rope.pairing == "half" else "half"
        changed = dataclasses.replace(rope, pairing=other)
        yield from of_changes(
            "rope pairing", TURNED, ours, {f"with {other} pairing": {"position": changed}}
        )


def rotation(ours: Ours) -> Found:
    """Yields the other direction, other bases and other shares of the channels."""
    rope = ours.spec.position
    if not isinstance(rope, Rope):
        return
    changed = ours.but(hooks=(*ours.hooks, hooks.positions_times(-1)))
    yield Hypothesis("rotation direction", "with the opposite rotation", TURNED, changed)
    others = {f"with a base of {base:g}": dataclasses.replace(rope, theta=base) for base in BASES}
    others |= {
        f"with a rotary fraction of {share:g}": dataclasses.replace(rope, rotary_fraction=share)
        for share in (1.0, 0.5, 0.25)
    }
    others["without scaling of positions"] = dataclasses.replace(rope, scaling=NoScaling())
    fields = {words: {"position": other} for words, other in others.items()}
    yield from of_changes("rotation", TURNED, ours, fields)


def offset(ours: Ours) -> Found:
    """Yields positions that count from elsewhere, and queries that are ahead of their keys."""
    position = ours.spec.position
    kind = "off-by-one positions"
    if isinstance(position, Rope):
        for shift in SHIFTS:
            words = f"with positions that begin at {shift}"
            yield Hypothesis(kind, words, TURNED, ours.but(position_shift=shift))
        if isinstance(ours.spec.attention, DotProduct):
            for which, other in (("query", "keys"), ("key", "queries")):
                for by, word in ((1, "ahead of"), (-1, "behind")):
                    hook = hooks.turned_further(ours.spec, which, by)
                    named = "queries" if which == "query" else "keys"
                    words = f"with {named} one position {word} the {other}"
                    changed = ours.but(hooks=(*ours.hooks, hook))
                    yield Hypothesis(kind, words, f"attention/{which}_turned", changed)
    elif isinstance(position, Sinusoidal):
        for shift in SHIFTS:
            words = f"with positions that begin at {shift}"
            yield Hypothesis(kind, words, "embedded", ours.but(position_shift=shift))
    elif isinstance(position, Learned):
        for shift in SHIFTS:
            words = f"with positions that begin at {position.first + shift}"
            yield Hypothesis(kind, words, "embedded", _rows_moved(ours, shift))


def _rows_moved(ours: Ours, shift: int) -> Ours:
    """Returns a model whose tables of positions are read some rows further on."""

    def moved(tree: dict) -> dict:
        found = dict(tree)
        for name, branch in tree.items():
            if name in ("encoder", "decoder"):
                found[name] = moved(branch)
            elif name == "position":
                rows = branch["table"]
                at = jnp.clip(jnp.arange(len(rows)) + shift, 0, len(rows) - 1)
                found[name] = {"table": rows[at]}
        return found

    assert any("position" in stack for stack in stacks(ours))
    return ours.but(variables={"params": moved(ours.variables["params"])})


def sinusoid_layout(ours: Ours) -> Found:
    """Yields the other layouts of sines and cosines."""
    if isinstance(ours.spec.position, Sinusoidal):
        layouts = {
            "with sines and cosines interleaved": "interleaved",
            "with sines and cosines concatenated": "concatenated",
            "with sines and cosines split, of the paper's frequencies": "split",
        }
        fields = {
            words: {"position": Sinusoidal(layout=layout)}  # pyright: ignore[reportArgumentType]
            for words, layout in layouts.items()
        }
        yield from of_changes("sinusoid layout", "embedded", ours, fields)
