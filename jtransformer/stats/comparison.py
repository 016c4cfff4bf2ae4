"""One arm against the baseline: all that is estimated and tested of their difference."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jtransformer.records import VerdictRule
from jtransformer.stats.equivalence import p_equivalent
from jtransformer.stats.estimates import Comparison, Estimate, ModelFit, SeedsNeeded
from jtransformer.stats.families import adjust, simultaneous
from jtransformer.stats.paired import bootstrap, effect_size, paired_t, sign_flip
from jtransformer.stats.power import resolvable_difference, seeds_needed


class Family(NamedTuple):
    """What the comparisons of a sweep have in common, at all of its scales.

    Attributes:
        rule: By which they are judged.
        comparisons: How many there are.
        differs: Adjusted p of a difference, by arm.
        equivalent: Adjusted p of two one-sided tests, by arm; empty without a margin.
    """

    rule: VerdictRule
    comparisons: int
    differs: dict[str, float]
    equivalent: dict[str, float]


def family(differences: Mapping[str, Estimate], comparisons: int, rule: VerdictRule) -> Family:
    """Adjusts the p values of all comparisons together.

    Differences and equivalences are two families: an arm that differs is wrongly told from one
    that does not, or one that matters from one that does not, each with the chance that the rule's
    correction allows.

    Args:
        differences: To the baseline, by arm.
        comparisons: How many were planned.
        rule: Names the correction and the margin.
    """
    differs = {name: d.p for name, d in differences.items() if d.p is not None}
    within = {}
    if rule.margin is not None:
        tested = {name: p_equivalent(differences[name], rule.margin) for name in differs}
        within = {name: p for name, p in tested.items() if p is not None}
    differs, within = (adjust(p, comparisons, rule.correction) for p in (differs, within))
    return Family(rule, comparisons, differs, within)


def compare(
    arm: str,
    difference: Estimate,
    by_seed: dict[int, float],
    *,
    test: Estimate | None,
    fit: ModelFit,
    among: Family,
) -> Comparison:
    """Gathers what is known of an arm's difference.

    Args:
        arm: Its name.
        difference: That of the arm + seed model.
        by_seed: The paired differences.
        test: The model's difference on the test split, where it may be looked at.
        fit: The model.
        among: The family that it belongs to.
    """
    seeds = list(by_seed.values())
    low, high = simultaneous(difference, among.comparisons) or (None, None)
    return Comparison(
        model=difference,
        paired=paired_t(seeds) if seeds else None,
        by_seed=by_seed,
        test=test,
        p_adjusted=among.differs.get(arm),
        resolvable=_resolvable(difference, fit),
        simultaneous=dataclasses.replace(difference, low=low, high=high),
        effect_size=effect_size(difference, fit.residual_sd) if fit.residual_sd else None,
        # Anew for every arm, so that no arm's interval depends on which others there are.
        bootstrap=bootstrap(seeds, np.random.default_rng(0)),
        p_sign_flip=sign_flip(seeds),
        p_equivalent=among.equivalent.get(arm),
        need=_need(difference, fit, among.rule.margin),
    )


def _resolvable(difference: Estimate, fit: ModelFit) -> float | None:
    if difference.standard_error is None:
        return None
    return resolvable_difference(difference.standard_error, fit.degrees_of_freedom, fit.comparisons)


def _need(difference: Estimate, fit: ModelFit, margin: float | None) -> SeedsNeeded | None:
    """Says how many seeds would resolve the margin or, where these do already, the difference."""
    resolvable = _resolvable(difference, fit)
    if resolvable is None or fit.residual_sd is None:
        return None
    of, size = "observed difference", abs(difference.value)
    if margin is not None and margin < resolvable:
        of, size = "margin", margin
    seeds = seeds_needed(
        difference=size,
        residual_sd=fit.residual_sd,
        arms=len(fit.arms),
        comparisons=fit.comparisons,
    )
    return SeedsNeeded(seeds=seeds, difference=size, of=of)
