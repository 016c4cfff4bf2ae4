"""All laws, one after the other, on any model that can be called."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.checks import (
    blocks,
    decoding,
    derivatives,
    isolation,
    keeping,
    losses,
    norms,
    order,
    parameters,
    reach,
    worked,
)
from jtransformer.checks.compiling import PRECISION
from jtransformer.checks.parts import Parts
from jtransformer.checks.report import NotApplicable, Report, Row, row
from jtransformer.checks.subject import Decoding, NormPart, Source, Subject
from jtransformer.checks.tolerance import Rounding

LAWS = (
    *reach.LAWS,
    *isolation.LAWS,
    *decoding.LAWS,
    *order.LAWS,
    *losses.LAWS,
    *parameters.LAWS,
    *derivatives.LAWS,
    *norms.LAWS,
    *keeping.LAWS,
    *worked.LAWS,
    *blocks.LAWS,
)
"""Every law, in the order in which they are judged."""
NAMES = tuple(law.name for law in LAWS)
"""The names of the laws, in the order in which they are judged."""
SHORTEST, FEWEST = 4, 2
"""Tokens and rows without which some law has nothing to compare."""


def judge(
    subject: Subject,
    reasons: Mapping[str, str],
    laws: Collection[str],
    told: Callable[[Row], None] | None = None,
) -> Report:
    """Judges a subject.

    Args:
        subject: The model.
        reasons: Why a law does not apply, by its name.
        laws: The names of those that it is judged by.
        told: Called with each row as soon as it is there.
    """
    rows = []
    with jax.default_matmul_precision(PRECISION):
        for law in LAWS:
            if law.name not in laws:
                continue
            begin = time.perf_counter()
            missing = [name for name in law.needs if getattr(subject, name) is None]
            if law.name in reasons:
                found = NotApplicable(reasons[law.name])
            elif missing:
                found = NotApplicable(f"{' and '.join(missing)} not given")
            else:
                found = law.check(subject)
            rows.append(row(law.group, law.name, found, time.perf_counter() - begin))
            if told is not None:
                told(rows[-1])
    return Report(tuple(rows))


def run_all(
    apply: Callable[..., Any],
    *,
    vocabulary: int,
    length: int,
    causal: bool = True,
    reach: Any = None,
    prefix: int = 0,
    rows: int = 2,
    seed: int = 0,
    dtype: Any = jnp.float32,
    depth: int = 24,
    terms: int = 1024,
    with_valid: Callable[..., Any] | None = None,
    with_segments: Callable[..., Any] | None = None,
    with_prefix: Callable[..., Any] | None = None,
    prefix_reach: Callable[[int], Any] | None = None,
    with_positions: Callable[..., Any] | None = None,
    positions: Literal["none", "relative", "absolute"] | None = None,
    source: Source | None = None,
    decoding: Decoding | Mapping[str, Decoding] | None = None,
    again: Callable[..., Any] | None = None,
    initial: Callable[..., Any] | None = None,
    loss: Callable[..., Any] | None = None,
    loss_shift: int = 1,
    scored: Any = None,
    examples: tuple[Any, Any, Any] | None = None,
    parameters: Any = None,
    model: Callable[..., Any] | None = None,
    double: Callable[..., Any] | None = None,
    without_gradient: Mapping[str, str] | None = None,
    expected_shapes: Mapping[str, tuple[int, ...]] | None = None,
    counts_by_heads: Mapping[int, int] | None = None,
    permute_heads: Callable[..., Any] | None = None,
    heads: int | None = None,
    lookup: Callable[..., Any] | None = None,
    with_embeddings: Callable[..., Any] | None = None,
    tied_table: Callable[..., Any] | None = None,
    save_and_restore: Callable[..., Any] | None = None,
    init: Callable[..., Any] | None = None,
    width: int | None = None,
    readout: Callable[..., Any] | None = None,
    norm: NormPart | None = None,
    parts: Parts | None = None,
    reasons: Mapping[str, str] | None = None,
    laws: Collection[str] | None = None,
    told: Callable[[Row], None] | None = None,
) -> Report:
    """Judges a model, of whatever library, by every law that can be judged.

    The first three arguments are enough for a model that can be called; each further one lets
    more laws be judged, and a row says what its law was not given. Functions are called as they
    are: compile them, with parameters as an argument. Whatever is random is drawn from `seed`.

    Args:
        apply: `tokens -> logits`, int32 `B T` to `B T V`, in evaluation.
        vocabulary: Number of token ids.
        length: Tokens of a row, at least 4.
        causal: Whether a token sees itself and what is before it only.
        reach: Which input (second axis) reaches which output, bool `T T`; see `stacked`. None is
            the lower triangle, or everything where the model is not causal.
        prefix: Tokens at the start that see one another in `apply`; a prompt is not cut there.
        rows: Rows of a batch, at least 2.
        seed: Of the tokens and of all else that is drawn.
        dtype: The coarsest type in which a part of the model is computed; with `depth` and
            `terms` it says how far two programs may differ, see `jtransformer.checks.tolerance`.
        depth: Sublayers, one behind the other.
        terms: Products of the longest sum.
        with_valid: `(tokens, valid) -> logits`; valid bool `B T`, False at padding.
        with_segments: `(tokens, segments) -> logits`; segments int32 `B T`, one per document.
        with_prefix: `(tokens, prefix) -> logits`; an int32 scalar, tokens of the prefix.
        prefix_reach: `prefix -> reach` behind it; None is the triangle and the prefix's square.
        with_positions: `(tokens, positions) -> logits`; positions int32 `B T`.
        positions: Whether tokens have none, known by their differences or each by itself.
        source: What another stack reads.
        decoding: Decoding with a cache, or several ways of it by name.
        again: `apply`, compiled another time.
        initial: `apply` with initial values, for the loss at the start.
        loss: `ids -> mean negative log-likelihood` of ids `B T`, whose shift is its own.
        loss_shift: How many places on the label of a position stands: 1 for the next token.
        scored: Positions that the loss scores, bool `T` or `B T`; None is all that have a label.
        examples: Tokens, labels and weights `B T` as training reads them, asked for next tokens.
        parameters: The parameters.
        model: `(parameters, tokens) -> outputs`: logits, or a tuple that begins with them. All of
            it can be derived, and computed in float64 where parameters are.
        double: The same where `model` has parts in narrower types whatever it is given.
        without_gradient: Reasons by patterns of paths: parameters that rightly get none.
        expected_shapes: Shape of every parameter by its path, joined by slashes.
        counts_by_heads: Number of parameters by number of heads, the width of all being the same.
        permute_heads: `(parameters, order) -> parameters` with the heads in another order.
        heads: Heads, or groups of them, that `permute_heads` puts in order.
        lookup: `(parameters, tokens) -> rows`, the embeddings `B T D`.
        with_embeddings: `(parameters, rows) -> logits`, the model on what was looked up.
        tied_table: `parameters -> table`, the array `V D` that is both lookup and head.
        save_and_restore: `parameters -> parameters`, by way of a disk.
        init: `seed -> parameters`.
        width: Width of the stream.
        readout: `stream -> logits`: the norm before the head, and the head.
        norm: A norm of the model with its definition.
        parts: Parts of the model, for figures worked out by hand.
        reasons: Why laws do not apply, by their names.
        laws: Names of the laws to judge by; None is all.
        told: Called with each row as soon as it is there.

    Raises:
        ValueError: If an argument has no meaning.
    """
    given = dict(locals())
    for name in ("reasons", "laws", "told", "dtype", "depth", "terms"):
        given.pop(name)
    known, chosen = dict(reasons or {}), NAMES if laws is None else tuple(laws)
    _check({"length": length, "rows": rows, "vocabulary": vocabulary})
    _check_names(reasons=known, laws=chosen)
    given["reach"] = _reach(reach, length, causal)
    given["without_gradient"] = without_gradient or {}
    if isinstance(decoding, Decoding):
        given["decoding"] = {"cache": decoding}
    subject = Subject(rounding=Rounding(dtype, depth, terms), **given)
    return judge(subject, known, chosen, told)


def _check(sizes: Mapping[str, int]) -> None:
    for name, least in (("length", SHORTEST), ("rows", FEWEST), ("vocabulary", FEWEST)):
        if sizes[name] < least:
            raise ValueError(f"{name} must be at least {least}, got {name}={sizes[name]}.")


def _check_names(**given: Collection[str]) -> None:
    for argument, names in given.items():
        for name in names:
            if name not in NAMES:
                raise ValueError(
                    f"{argument} names {name!r}, which is no law; the laws are {', '.join(NAMES)}."
                )


def _reach(reach: Any, length: int, causal: bool) -> np.ndarray:
    if reach is None:
        return np.tri(length, dtype=bool) if causal else np.ones((length, length), bool)
    found = np.asarray(reach)
    if found.shape != (length, length) or found.dtype != bool:
        raise ValueError(
            f"reach must be bool of shape ({length}, {length}) for length={length}, got "
            f"{found.dtype} of shape {found.shape}; make it with checks.stacked."
        )
    return found
