"""Tries hypotheses against the first difference, and says which of them explains it.

A hypothesis is claimed only if, with it, the place that differed agrees within tolerance, no place
before it departs, and the difference has become several times smaller, so that a tolerance that
grew with a coarser type claims nothing by itself. Among those that are claimed, the best are the
ones with which most of the rest agrees too, then those that leave least; what leaves as little is
named beside them. The best is then taken as given, and the next difference is looked at.
"""

import collections
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jtransformer.diff.comparing import Comparison, Row, compare, measured
from jtransformer.diff.hypotheses import Hypothesis, of_layer, of_model
from jtransformer.diff.inputs import Inputs
from jtransformer.diff.ours import Ours
from jtransformer.diff.places import is_before, place_of
from jtransformer.diff.relations import relations
from jtransformer.diff.traces import ROUNDOFF, Trace

SMALLER = 4.0
"""By how many times a difference must fall for a hypothesis to be claimed."""
NEARER = 10.0
"""By how many times it must fall to be mentioned where nothing explains it."""
ALIKE = 3.0
"""What is left of a difference by two hypotheses within this factor of each other is alike."""
ROUNDS = 4
"""Most differences that are explained one after the other."""
PAIRS = 64
"""Most pairs of hypotheses that are tried where none alone explains a place."""


class Trial(NamedTuple):
    """What is left of a difference with one hypothesis.

    Attributes:
        kind: What the hypothesis is about.
        words: The hypothesis, as a part of a sentence.
        before: The place as it was.
        after: The same place with the hypothesis.
        next_first: The first place that then differs; None if everything agrees.
        changed: Our model with the hypothesis; None for a relation of two arrays.
        comparison: The comparison with it; None for a relation.
    """

    kind: str
    words: str
    before: Row
    after: Row
    next_first: str | None
    changed: Ours | None = None
    comparison: Comparison | None = None

    @property
    def sentence(self) -> str:
        """What the trial says."""
        at = self.before.name
        gap = "" if np.isnan(self.before.largest) else f" from {self.before.largest:.2g}"
        said = f"{self.words} the difference at {at} falls{gap} to {self.after.largest:.2g}"
        if self.changed is None:
            return said
        if self.next_first is None:
            return f"{said}, and everything agrees"
        return f"{said}; the next difference is at {self.next_first}"


class Round(NamedTuple):
    """What explains one difference.

    Attributes:
        first: The place that differs.
        best: The hypotheses that explain it best, alike in what they leave; the first one is
            taken as given in the next round. Empty if none explains it.
        others: Further hypotheses that explain this place, the best first.
        nearer: Hypotheses that make the difference much smaller, where none explains it.
        tried: How many were tried.
    """

    first: Row
    best: tuple[Trial, ...]
    others: tuple[Trial, ...]
    nearer: tuple[Trial, ...]
    tried: int


def explain(side: Ours, other: Trace, comparison: Comparison, inputs: Inputs) -> tuple[Round, ...]:
    """Looks for what explains the differences between a model of ours and another side.

    Args:
        side: The model of ours.
        other: What the other side did.
        comparison: The comparison of the two.
        inputs: What both were given.

    Returns:
        A round for each difference, until all is explained or nothing explains the next one.
    """
    rounds: list[Round] = []
    while comparison.first is not None and len(rounds) < ROUNDS:
        found = _round(side, comparison, other, inputs)
        rounds.append(found)
        if not found.best or found.best[0].comparison is None:
            break
        adopted = found.best[0]
        assert adopted.changed is not None
        side, comparison = adopted.changed, found.best[0].comparison
    return tuple(rounds)


def _round(side: Ours, comparison: Comparison, other: Trace, inputs: Inputs) -> Round:
    first = comparison.first
    assert first is not None
    trials: list[Trial] = []
    claimed: list[Trial] = []
    for hypotheses in _candidates(side, comparison):
        trials += _tried(hypotheses, comparison, other, inputs)
        claimed = [trial for trial in trials if falls(trial) and not _departs(trial)]
        if claimed:
            break
    best, others = ranked(claimed, other.computed)
    nearer = [t for t in trials if t.after.rms * NEARER <= first.rms and not _departs(t)]
    nearer = [] if claimed else sorted(nearer, key=lambda trial: trial.after.rms)
    return Round(first, best, others, tuple(nearer[:3]), len(trials))


def _candidates(side: Ours, comparison: Comparison) -> Iterator[list[Hypothesis]]:
    """Yields the hypotheses that may explain the first difference, the likeliest together first."""
    first = comparison.first
    assert first is not None
    known = {row.name for row in comparison.rows}
    likely: list[Hypothesis] = []
    unlikely: list[Hypothesis] = []
    for hypothesis in of_model(side):
        begin = _beginnings(hypothesis, side)
        if begin and all(is_before(first.name, name) for name in begin):
            continue
        # What changes a place that agrees explains little, unless it hardly changes that place,
        # as another epsilon may in a first layer.
        agrees = begin and all(name in known and is_before(name, first.name) for name in begin)
        (unlikely if agrees else likely).append(hypothesis)
    yield likely
    layer = place_of(first.name).layer
    if layer is not None and side.spec.layers > 1:
        yield list(of_layer(side, layer))
    yield unlikely
    yield list(itertools.islice(_pairs(likely, place_of(first.name).local), PAIRS))


def _pairs(hypotheses: list[Hypothesis], local: str) -> Iterator[Hypothesis]:
    """Yields two changes at once, of different kinds, both of which begin at the place itself.

    Of two differences at one place neither makes it agree; elsewhere one shows after the other.
    """
    here = [one for one in hypotheses if one.starts == local]
    counts = collections.Counter(one.kind for one in here)
    # Kinds with one form come first: they have the fewest pairs.
    kinds = sorted(counts, key=lambda kind: counts[kind])
    for one in sorted(here, key=lambda one: kinds.index(one.kind)):
        later = kinds[kinds.index(one.kind) + 1 :]
        for other in of_model(one.changed):
            if other.starts == local and other.kind in later:
                kind, words = f"{one.kind} and {other.kind}", f"{one.words} and {other.words}"
                yield Hypothesis(kind, words, local, other.changed)


def _tried(
    hypotheses: list[Hypothesis], comparison: Comparison, other: Trace, inputs: Inputs
) -> list[Trial]:
    """Returns what is left of the first difference with each hypothesis."""
    first = comparison.first
    assert first is not None
    trials = []
    for hypothesis in hypotheses:
        try:
            trace = hypothesis.changed.trace(inputs)
        except ValueError:
            # The changed model refuses these inputs, such as positions beyond a table.
            continue
        found = compare(trace, other, inputs)
        after = [row for row in found.rows if row.name == first.name]
        if after:
            following = None if found.first is None else found.first.name
            words, changed = hypothesis.words, hypothesis.changed
            trials.append(Trial(hypothesis.kind, words, first, after[0], following, changed, found))
    return trials


def _beginnings(hypothesis: Hypothesis, side: Ours) -> list[str]:
    """Returns the first place that a hypothesis changes, in each stack; none if it may be any."""
    starts = hypothesis.starts
    if starts in ("", "logits", "loss"):
        return [starts] if starts else []
    scopes = ["encoder/", "decoder/"] if side.spec.has_encoder else [""]
    if starts in ("embedded", "final_norm"):
        return [f"{scope}{starts}" for scope in scopes]
    layer = 0 if hypothesis.layer is None else hypothesis.layer
    return [f"{scope}layer_{layer}/{starts}" for scope in scopes]


def _place(comparison: Comparison, name: str | None) -> int:
    """Returns how many places agree before one that differs; all of them for None."""
    names = [row.name for row in comparison.rows]
    return len(names) if name is None else names.index(name)


def _departs(trial: Trial) -> bool:
    """Whether a place before the one in question differs with the hypothesis."""
    assert trial.comparison is not None
    following = _place(trial.comparison, trial.next_first)
    return following < _place(trial.comparison, trial.before.name)


def falls(trial: Trial) -> bool:
    """Whether the place agrees with a hypothesis, by which the difference falls far enough."""
    # What could not be measured before, such as NaN, is explained by any number.
    far = np.isnan(trial.before.rms) or trial.after.rms * SMALLER <= trial.before.rms
    return bool(far) and not trial.after.beyond


def ranked(claimed: list[Trial], computed: str) -> tuple[tuple[Trial, ...], tuple[Trial, ...]]:
    """Sorts hypotheses that explain a place.

    Args:
        claimed: The trials.
        computed: The type that the other side was computed in.

    Returns:
        Those that explain most and leave least, and the others.
    """

    def reach(trial: Trial) -> int:
        assert trial.comparison is not None
        return _place(trial.comparison, trial.next_first)

    rows = sorted(claimed, key=lambda trial: (-reach(trial), trial.after.rms))
    return _alike(rows, [row for row in rows if reach(row) == reach(rows[0])], computed)


def _alike(
    rows: list[Trial], candidates: list[Trial], computed: str
) -> tuple[tuple[Trial, ...], tuple[Trial, ...]]:
    """Parts sorted trials in those that leave as little as the best one, and the others."""
    if not rows:
        return (), ()
    alike = max(ALIKE * rows[0].after.rms, 2 * ROUNDOFF[computed])
    count = sum(row.after.rms <= alike for row in candidates)
    return tuple(rows[:count]), tuple(rows[count:])


def relate(a: Trace, b: Trace, comparison: Comparison) -> Round | None:
    """Looks for a relation between two arrays at the first place that differs.

    Args:
        a: One side.
        b: The other side.
        comparison: The comparison of the two.

    Returns:
        What explains that place; None if nothing differs.
    """
    first = comparison.first
    if first is None:
        return None
    left, right = (side.values[first.name] for side in (a, b))
    return related(first, left, right, b.computed)


def related(first: Row, left: np.ndarray, right: np.ndarray, computed: str) -> Round:
    """Looks for a relation between two arrays.

    Args:
        first: How they differ.
        left: The values of one side.
        right: Those of the other side.
        computed: The type that the other side was computed in.
    """
    trials = []
    for relation in relations(left, right):
        row = measured(first.name, relation.left, relation.right, first.tolerance)
        trials.append(Trial("relation", relation.words, first, row, first.name))
    claimed = sorted((t for t in trials if falls(t)), key=lambda trial: trial.after.rms)
    best, others = _alike(claimed, claimed, computed)
    near = [t for t in trials if t.after.rms * NEARER <= first.rms]
    nearer = () if claimed else tuple(sorted(near, key=lambda trial: trial.after.rms)[:3])
    return Round(first, best, others, nearer, len(trials))
