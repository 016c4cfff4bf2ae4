"""Parameters: which there are, that each of them learns, and how heads lie in them."""

import fnmatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.checks.law import Law
from jtransformer.checks.mixtures import logits_of, mixture
from jtransformer.checks.report import Finding, NotApplicable
from jtransformer.checks.subject import Subject
from jtransformer.checks.tolerance import distance

GROUP = "parameters"
SHOWN = 4
"""Names that a row lists."""


def paths_of(tree: Any) -> dict[str, Any]:
    """Returns the leaves of a tree by their paths, joined by slashes."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def listed(names: list[str]) -> str:
    """Names the first few."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def tree(subject: Subject) -> Finding:
    """Compares paths and shapes with those that the formula gives."""
    assert subject.expected_shapes is not None
    found = {path: tuple(np.shape(leaf)) for path, leaf in paths_of(subject.parameters).items()}
    expected = {path: tuple(shape) for path, shape in subject.expected_shapes.items()}
    wrong = [path for path in {**found, **expected} if found.get(path) != expected.get(path)]
    total = sum(int(np.prod(shape)) for shape in found.values())
    detail = f"{total:,} parameters in {len(found)} arrays"
    if wrong:
        detail += f"; {listed(wrong)}"
    return Finding(float(len(wrong)), "arrays that differ from the formula", 0.0, detail=detail)


def gradients(subject: Subject) -> Finding:
    """Derives a random mixture of all outputs by every parameter."""
    assert subject.model is not None
    tokens = jnp.asarray(subject.tokens(52))
    weights = mixture(subject.generator(51), subject.model, subject.parameters, tokens)
    slopes = subject.slopes(weights, subject.parameters, tokens)
    sizes = {
        path: float(np.abs(np.asarray(jax.device_get(leaf), np.float64)).max(initial=0.0))
        for path, leaf in paths_of(slopes).items()
    }
    reasons = subject.without_gradient
    still = [path for path, size in sizes.items() if not (np.isfinite(size) and size > 0)]
    excused = [p for p in still if any(fnmatch.fnmatchcase(p, pattern) for pattern in reasons)]
    wrong = [path for path in still if path not in excused]
    detail = listed(wrong)
    if excused:
        why = "; ".join(dict.fromkeys(reasons.values()))
        detail += f"{'; ' if wrong else ''}left out: {listed(excused)} ({why})"
    return Finding(float(len(wrong)), "arrays without a gradient", 0.0, detail=detail)


def counts(subject: Subject) -> Finding:
    """Compares the number of parameters for several numbers of heads of one width in all."""
    assert subject.counts_by_heads is not None
    found = {heads: int(count) for heads, count in subject.counts_by_heads.items()}
    detail = ", ".join(f"{count:,} with {heads}" for heads, count in found.items())
    return Finding(
        float(max(found.values()) - min(found.values())), "parameters", 0.0, detail=detail
    )


def head_layout(subject: Subject) -> Finding | NotApplicable:
    """Gives the heads another order in all parameters, which must change nothing.

    A wrong reshape of heads mixes channels that the parameters keep apart.
    """
    assert subject.model is not None and subject.permute_heads is not None and subject.heads
    if subject.heads < 2:
        return NotApplicable("there is one head alone")
    order = np.roll(np.arange(subject.heads), 1)
    turned = subject.permute_heads(subject.parameters, order)
    tokens = jnp.asarray(subject.tokens(53))
    before, after = (
        logits_of(subject.model(parameters, tokens)) for parameters in (subject.parameters, turned)
    )
    same = all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(subject.parameters), jax.tree.leaves(turned), strict=True)
    )
    if same:
        return NotApplicable("permute_heads changes no parameter")
    figure = distance(after, before)
    return Finding(figure, "of the logits' size", subject.rounding.limit())


LAWS = (
    Law(GROUP, "tree of parameters", ("parameters", "expected_shapes"), tree),
    Law(GROUP, "every parameter learns", ("parameters", "model"), gradients),
    Law(GROUP, "count by heads", ("counts_by_heads",), counts),
    Law(GROUP, "order of heads", ("parameters", "model", "permute_heads", "heads"), head_layout),
)
