"""Keeping: what is saved comes back, and what is done again gives the same bits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.checks.derivatives import TIED
from jtransformer.checks.law import Law
from jtransformer.checks.mixtures import logits_of
from jtransformer.checks.parameters import paths_of
from jtransformer.checks.report import Finding
from jtransformer.checks.subject import Subject, on_host

GROUP = "keeping"


def bits_apart(a: Any, b: Any) -> int:
    """Counts numbers that differ between two trees; all of them where the trees do."""
    left, right = paths_of(a), paths_of(b)
    apart = 0
    for path in {**left, **right}:
        if path not in left or path not in right:
            apart += int(np.size({**left, **right}[path]))
            continue
        x, y = (np.asarray(jax.device_get(tree[path])) for tree in (left, right))
        if x.shape != y.shape or x.dtype != y.dtype:
            apart += max(x.size, y.size)
        else:
            # What is no number equals nothing, itself included.
            apart += int((x != y).sum())
    return apart


def saved(subject: Subject) -> Finding:
    """Saves and restores the parameters; numbers, logits and first greedy token must be the same.

    Tables of positions that are saved are among them, and what is fixed is in the model itself.
    """
    assert subject.model is not None and subject.save_and_restore is not None
    restored = subject.save_and_restore(subject.parameters)
    tokens = jnp.asarray(subject.tokens(71))
    before, after = (
        on_host(logits_of(subject.model(p, tokens))) for p in (subject.parameters, restored)
    )
    numbers, logits = bits_apart(subject.parameters, restored), bits_apart(before, after)
    first = int((before.argmax(-1) != after.argmax(-1)).sum())
    detail = f"{numbers} parameters, {logits} logits, {first} greedy tokens differ"
    return Finding(float(numbers + logits + first), "numbers that differ", 0.0, detail=detail)


def sharing(subject: Subject) -> Finding:
    """Restores a tied model and moves its table: lookup and head must both follow.

    Counted are tokens whose logit, by the head, and rows whose logits, by the lookup, stay.
    """
    model, tied_table = subject.model, subject.tied_table
    assert subject.save_and_restore and model is not None and tied_table is not None
    restored = subject.save_and_restore(subject.parameters)
    table = tied_table(restored)
    where = [
        path for path, leaf in paths_of(restored).items() if leaf is table
    ]  # The one leaf that is the table.
    if len(where) != 1:
        detail = f"the table is {len(where)} leaves of what was restored"
        return Finding(np.inf, "tables", 0.0, detail=detail)
    ids = subject.tokens(72) % max(1, subject.vocabulary // 2)
    unread = subject.vocabulary - 1
    before = on_host(logits_of(model(restored, jnp.asarray(ids))))

    if not np.isfinite(before).all():
        return Finding(np.nan, "logits that a moved table leaves", 0.0)
    # No constant: a norm without bias leaves states that have none.
    by = subject.generator(74).normal(size=np.shape(table)[-1])

    def moved(row: int) -> np.ndarray:
        def changed(path: Any, leaf: Any) -> Any:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            return leaf.at[row].add(jnp.asarray(by, leaf.dtype)) if name == where[0] else leaf

        parameters = jax.tree_util.tree_map_with_path(changed, jax.tree.map(jnp.asarray, restored))
        return on_host(logits_of(model(parameters, jnp.asarray(ids))))

    by_head = moved(unread)[..., unread] != before[..., unread]
    read = int(ids[0, 0])
    others = np.arange(before.shape[-1]) != read
    by_lookup = (moved(read) != before)[0, 0, others]
    stay = int((~by_head).sum()) + int(not by_lookup.any())
    return Finding(float(stay), "logits that a moved table leaves", 0.0)


def repeated(subject: Subject) -> Finding:
    """Computes the same again: logits, initial values, and logits of a program made anew."""
    tokens = subject.tokens(73)
    first = subject.logits(tokens)
    apart = {"logits": bits_apart(first, subject.logits(tokens))}
    if subject.init is not None:
        apart["initial values"] = bits_apart(subject.init(subject.seed), subject.init(subject.seed))
    if subject.again is not None:
        second = on_host(subject.again(jnp.asarray(tokens)))
        apart["logits of a program compiled again"] = bits_apart(first, second)
    detail = ", ".join(f"{count} {name}" for name, count in apart.items())
    return Finding(float(sum(apart.values())), "numbers that differ", 0.0, detail=detail)


LAWS = (
    Law(GROUP, "save and restore", ("parameters", "model", "save_and_restore"), saved),
    Law(GROUP, "sharing after restoring", (*TIED, "save_and_restore"), sharing),
    Law(GROUP, "same bits again", (), repeated),
)
