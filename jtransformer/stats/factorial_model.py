"""The model of a factorial in blocks: losses by cell and seed in, tests of every term out.

`y[cell, seed] = cell mean + seed effect + noise` is the arm + seed model with the arms as cells of
a grid, so noise and degrees of freedom are those that the arms are judged by. Main effects and
interactions are contrasts of the cell means that sum to zero: a level is averaged over the levels
of the other factors with equal weights, and its effect is the distance from the mean of all levels.

F tests are of type III: their hypothesis is about equally weighted cell means however many seeds a
cell has, so each tests the very figures that are shown with their intervals. Type II tests a main
effect as if there were no interaction, with weights that follow from which seeds happen to be
missing. With every seed in every cell all types are the same.

Where an arm has no loss, a term is estimated over those combinations of the other factors' levels
at which all of its own cells are there (a type IV hypothesis, and the combinations are named). The
interaction of all factors is tested on the contrasts that the cells still show. What is left is
not estimated: nothing is assumed to be zero in order to fill a cell.

Sources: Montgomery, Design and Analysis of Experiments, 10th ed., sec. 5.6 (factorials in blocks);
Yates 1934, J. Amer. Statist. Assoc. 29, 51-66 (equally weighted means); Milliken and Johnson,
Analysis of Messy Data, vol. 1, 2nd ed. (types III and IV, missing cells).
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from statsmodels.regression.linear_model import OLS

from jtransformer.stats.additive import ROUNDING
from jtransformer.stats.estimates import Estimate
from jtransformer.stats.families import adjust

Cell = tuple[str, ...]
"""A level of each factor."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Term:
    """A main effect or an interaction.

    Attributes:
        factors: One of a main effect, more of an interaction.
        df: Degrees of freedom of its test; fewer than the grid has where cells are missing, and 0
            where it cannot be estimated.
        f: Type III F; None without noise to judge by.
        p: Its raw p.
        p_holm: Adjusted over all terms of the grid; see `holm_over_terms`.
        over: The combinations of the other factors' levels that it is averaged over; None for all.
        means: Mean loss of each of its cells over these, at the average seed.
        effects: Estimates by cell that sum to zero over the levels of each factor; empty where
            cells are missing.
        difference: Of a factor with two levels, the second minus the first.
    """

    factors: tuple[str, ...]
    df: int
    f: float | None = None
    p: float | None = None
    p_holm: float | None = None
    over: tuple[Cell, ...] | None = None
    means: dict[Cell, float] = dataclasses.field(default_factory=dict)
    effects: dict[Cell, Estimate] = dataclasses.field(default_factory=dict)
    difference: Estimate | None = None

    @property
    def name(self) -> str:
        return " × ".join(self.factors)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactorialFit:
    """What the cells of a grid say about its factors.

    Attributes:
        levels: Of each factor, those with a loss.
        terms: Main effects first, then interactions of two, and so on; none of a factor with one
            level.
        family: How many terms the whole grid has: Holm's family.
        unconnected: Cells left out because they share no seed with the others, even through
            others: they differ from them by seeds as well.
        observations: Losses in the model.
        degrees_of_freedom: Of the residuals.
        residual_sd: None without residual degrees of freedom.
    """

    levels: dict[str, tuple[str, ...]]
    terms: tuple[Term, ...]
    family: int
    unconnected: tuple[Cell, ...]
    observations: int
    degrees_of_freedom: int
    residual_sd: float | None


def fit_factorial(
    losses: Mapping[Cell, Mapping[int, float]], factors: Mapping[str, Sequence[str]]
) -> FactorialFit:
    """Fits cell + seed by ordinary least squares and tests every main effect and interaction.

    Seeds and cells may be missing. Without residual degrees of freedom, or where the residuals are
    rounding alone, there are estimates without intervals and no tests.

    Args:
        losses: Nats by cell and seed; every cell that is there has a loss.
        factors: The levels of each factor, in the order of the cells' parts.
    """
    held = _connected(losses)
    levels = {
        name: tuple(level for level in every if any(cell[index] == level for cell in held))
        for index, (name, every) in enumerate(factors.items())
    }
    cells = [cell for cell in itertools.product(*levels.values()) if cell in held]
    model, observations = _least_squares({cell: held[cell] for cell in cells})
    df = observations - len(model.params)
    sd = math.sqrt(model.ssr / df) if df > 0 else None
    noisy = sd is not None and sd > ROUNDING * np.abs(model.model.endog).max()
    varying = [index for index, name in enumerate(levels) if len(levels[name]) > 1]
    fitted = _Fitted(model, cells, list(levels.values()), df if noisy else None)
    terms = [
        _term(fitted, tuple(factors), which)
        for size in range(1, len(varying) + 1)
        for which in itertools.combinations(varying, size)
    ]
    return FactorialFit(
        levels=levels,
        terms=tuple(terms),
        family=2 ** len(factors) - 1,
        unconnected=tuple(cell for cell in losses if cell not in held),
        observations=observations,
        degrees_of_freedom=df,
        residual_sd=sd,
    )


def holm_over_terms(fit: FactorialFit) -> FactorialFit:
    """Adjusts the p of every term by Holm, over all terms that the whole grid has."""
    raw = {term.name: term.p for term in fit.terms if term.p is not None}
    found = adjust(raw, fit.family, "holm")
    terms = (dataclasses.replace(term, p_holm=found.get(term.name)) for term in fit.terms)
    return dataclasses.replace(fit, terms=tuple(terms))


def _connected(losses: Mapping[Cell, Mapping[int, float]]) -> Mapping[Cell, Mapping[int, float]]:
    """Keeps the most cells that share seeds with each other, directly or through others."""
    groups: list[tuple[set[Cell], set[int]]] = []
    for cell, by_seed in losses.items():
        cells, seeds = {cell}, set(by_seed)
        apart = []
        for other in groups:
            if other[1] & seeds:
                cells, seeds = cells | other[0], seeds | other[1]
            else:
                apart.append(other)
        groups = [*apart, (cells, seeds)]
    kept = max(groups, key=lambda group: len(group[0]))[0]
    return {cell: by_seed for cell, by_seed in losses.items() if cell in kept}


def _least_squares(losses: Mapping[Cell, Mapping[int, float]]) -> tuple[Any, int]:
    """Fits a mean for each cell, at the average seed, and an effect for each seed but the last."""
    seeds = sorted({seed for by_seed in losses.values() for seed in by_seed})
    rows = [(cell, seed) for cell in losses for seed in losses[cell]]
    # Seed effects sum to zero, so that a cell's parameter is its mean over all seeds of the model.
    coded = np.vstack([np.eye(len(seeds) - 1), -np.ones(len(seeds) - 1)])
    design = np.array(
        [[*(c == cell for c in losses), *coded[seeds.index(seed)]] for cell, seed in rows], float
    )
    return OLS(np.array([losses[cell][seed] for cell, seed in rows]), design).fit(), len(rows)


class _Fitted(NamedTuple):
    """The model, the cells that its first parameters are of, and what noise there is.

    `df` is None where nothing can be tested.
    """

    model: Any
    cells: list[Cell]
    levels: list[tuple[str, ...]]
    df: int | None

    def estimates(self, contrasts: np.ndarray) -> list[Estimate]:
        """Estimates contrasts of the cells, one per row."""
        full = self._padded(contrasts)
        if self.df is None:
            return [Estimate(value=float(value)) for value in full @ self.model.params]
        test = self.model.t_test(full)
        columns = (np.ravel(test.effect), np.ravel(test.sd), test.conf_int(), np.ravel(test.pvalue))
        return [
            Estimate(
                value=float(value),
                standard_error=float(error),
                low=float(low),
                high=float(high),
                degrees_of_freedom=self.df,
                p=float(p),
            )
            for value, error, (low, high), p in zip(*columns, strict=True)
        ]

    def tested(self, contrasts: np.ndarray) -> tuple[float | None, float | None]:
        """Tests that all of these contrasts are zero: F and its p, None where nothing can be."""
        if self.df is None or not len(contrasts):
            return None, None
        test = self.model.f_test(self._padded(contrasts))
        return float(np.squeeze(test.fvalue)), float(test.pvalue)

    def _padded(self, contrasts: np.ndarray) -> np.ndarray:
        seeds = len(self.model.params) - len(self.cells)
        return np.pad(contrasts, ((0, 0), (0, seeds)))


def _term(fitted: _Fitted, names: tuple[str, ...], which: tuple[int, ...]) -> Term:
    factors = tuple(names[index] for index in which)
    own = list(itertools.product(*(fitted.levels[index] for index in which)))
    strata: dict[Cell, dict[Cell, int]] = {}
    for column, cell in enumerate(fitted.cells):
        rest = tuple(level for index, level in enumerate(cell) if index not in which)
        strata.setdefault(rest, {})[tuple(cell[index] for index in which)] = column
    whole = {rest: columns for rest, columns in strata.items() if len(columns) == len(own)}
    sizes = [len(fitted.levels[index]) for index in which]
    contrasts = functools.reduce(np.kron, [np.eye(n - 1, n) - np.eye(n)[-1] for n in sizes])
    if not whole:
        shown = _shown(fitted, factors, own, strata, contrasts)
        return Term(factors=factors, df=0) if shown is None else shown
    means = np.zeros((len(own), len(fitted.cells)))
    for columns in whole.values():
        for row, part in enumerate(own):
            means[row, columns[part]] = 1 / len(whole)
    centred = functools.reduce(np.kron, [np.eye(n) - 1 / n for n in sizes])
    halves = fitted.estimates(means[1:2] - means[0:1])[0] if sizes == [2] else None
    f, p = fitted.tested(contrasts @ means)
    return Term(
        factors=factors,
        df=len(contrasts),
        f=f,
        p=p,
        over=None if len(whole) == _combinations(fitted, which) else tuple(whole),
        means=_values(fitted, own, means),
        effects=dict(zip(own, fitted.estimates(centred @ means), strict=True)),
        difference=halves,
    )


def _shown(
    fitted: _Fitted,
    factors: tuple[str, ...],
    own: list[Cell],
    strata: dict[Cell, dict[Cell, int]],
    contrasts: np.ndarray,
) -> Term | None:
    """Tests an interaction of all factors on the contrasts of it that avoid the missing cells."""
    if len(strata) > 1:
        return None
    (columns,) = strata.values()
    absent = [row for row, part in enumerate(own) if part not in columns]
    present = [row for row, part in enumerate(own) if part in columns]
    avoiding = scipy.linalg.null_space(contrasts[:, absent].T).T @ contrasts[:, present]
    means = np.eye(len(fitted.cells))[[columns[own[row]] for row in present]]
    f, p = fitted.tested(avoiding @ means)
    return Term(
        factors=factors,
        df=len(avoiding),
        f=f,
        p=p,
        means=_values(fitted, [own[row] for row in present], means),
    )


def _combinations(fitted: _Fitted, which: tuple[int, ...]) -> int:
    """Counts the combinations of the other factors' levels."""
    return math.prod(len(own) for i, own in enumerate(fitted.levels) if i not in which)


def _values(fitted: _Fitted, own: Sequence[Cell], means: np.ndarray) -> dict[Cell, float]:
    values = means @ fitted.model.params[: len(fitted.cells)]
    return {part: float(value) for part, value in zip(own, values, strict=True)}
