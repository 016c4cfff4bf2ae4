"""Tests for the model of a factorial: textbook, closed forms, missing cells, simulated truth."""

import itertools

import numpy as np
import pandas
import pytest
import scipy.stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from jtransformer.stats import fit_factorial, holm_over_terms

THREE = {"a": ("a0", "a1"), "b": ("b0", "b1", "b2"), "c": ("c0", "c1")}


def grid_losses(factors, seeds, seed=5, effect=None):
    """Draws a full grid of losses; `effect` gives the mean of a cell."""
    generator = np.random.default_rng(seed)
    shared = generator.normal(0, 0.05, seeds)
    return {
        cell: {
            s: float(2 + (effect(cell) if effect else 0) + shared[s] + generator.normal(0, 0.01))
            for s in range(seeds)
        }
        for cell in itertools.product(*factors.values())
    }


def term(fit, name):
    (found,) = [one for one in fit.terms if one.name == name]
    return found


# Radar targets on a screen: intensity at detection by ground clutter and filter, operators as
# blocks. Montgomery, Design and Analysis of Experiments, example 5.6 of the 8th ed., and its
# analysis of variance: F 15.13, 96.19 and 3.48 on 15 degrees of freedom, error mean square 11.09.
# The sums of squares behind them (335.58, 1066.67, 77.08) follow from the data by hand.
RADAR = {
    ("low", "1"): (90, 96, 100, 92),
    ("low", "2"): (86, 84, 92, 81),
    ("medium", "1"): (102, 106, 105, 96),
    ("medium", "2"): (87, 90, 97, 80),
    ("high", "1"): (114, 112, 108, 98),
    ("high", "2"): (93, 91, 95, 83),
}


def test_the_textbooks_factorial_in_blocks():
    losses = {cell: dict(enumerate(map(float, row))) for cell, row in RADAR.items()}
    factors = {"clutter": ("low", "medium", "high"), "filter": ("1", "2")}
    fit = fit_factorial(losses, factors)
    assert [(t.name, t.df) for t in fit.terms] == [
        ("clutter", 2),
        ("filter", 1),
        ("clutter × filter", 2),
    ]
    np.testing.assert_allclose([t.f for t in fit.terms], [15.13, 96.19, 3.48], atol=0.005)
    for name in ("clutter", "clutter × filter"):
        # With two degrees of freedom above, the tail of F has a closed form.
        tail = (1 + 2 * term(fit, name).f / 15) ** (-15 / 2)
        np.testing.assert_allclose(term(fit, name).p, tail, rtol=1e-9)
    assert (fit.degrees_of_freedom, fit.observations, fit.family) == (15, 24, 3)
    np.testing.assert_allclose(fit.residual_sd**2, 11.09, atol=0.005)


def closed_form(table, axes):
    """Balanced sums of squares and effects of the term on `axes`; the last axis is the seed."""
    count = table.ndim - 1
    means = table.mean(axis=-1)
    others = tuple(axis for axis in range(count) if axis not in axes)
    effects = np.zeros([table.shape[axis] for axis in axes])
    # Inclusion and exclusion over the margins: the part that no lower term has.
    for size in range(len(axes) + 1):
        for kept in itertools.combinations(axes, size):
            gone = tuple(axis for axis in range(count) if axis not in kept)
            margin = means.mean(axis=gone, keepdims=True)
            shape = [margin.shape[axis] for axis in axes]
            effects = effects + (-1) ** (len(axes) - size) * margin.reshape(shape)
    copies = np.prod([table.shape[axis] for axis in others]) * table.shape[-1]
    return effects, float(copies * (effects**2).sum())


def test_a_balanced_grid_equals_the_closed_form():
    losses = grid_losses(THREE, 4)
    fit = fit_factorial(losses, THREE)
    shape = [len(levels) for levels in THREE.values()]
    table = np.array([list(by_seed.values()) for by_seed in losses.values()]).reshape(*shape, 4)
    cells = table.reshape(-1, 4)
    rest = cells - cells.mean(1, keepdims=True) - cells.mean(0) + cells.mean()
    df = (len(cells) - 1) * 3
    square = (rest**2).sum() / df
    assert fit.degrees_of_freedom == df and len(fit.terms) == fit.family == 7
    for axes in (axes for n in (1, 2, 3) for axes in itertools.combinations(range(3), n)):
        found = term(fit, " × ".join("abc"[axis] for axis in axes))
        effects, squares = closed_form(table, axes)
        own = int(np.prod([shape[axis] - 1 for axis in axes]))
        assert found.df == own and found.over is None
        rest_of = tuple(axis for axis in range(4) if axis not in axes)
        np.testing.assert_allclose(list(found.means.values()), table.mean(axis=rest_of).ravel())
        f = squares / own / square
        np.testing.assert_allclose(found.f, f, rtol=1e-9)
        np.testing.assert_allclose(found.p, scipy.stats.f.sf(f, own, df), rtol=1e-9)
        got = list(found.effects.values())
        np.testing.assert_allclose([e.value for e in got], effects.ravel(), atol=1e-9)
        # A contrast's variance is the error's times the sum of its squared weights per run.
        share = np.prod([(shape[axis] - 1) / shape[axis] for axis in axes])
        copies = table.size / np.prod([shape[axis] for axis in axes])
        error = np.sqrt(square * share / copies)
        np.testing.assert_allclose([e.standard_error for e in got], error, rtol=1e-9)
        half = scipy.stats.t.isf(0.025, df) * error
        np.testing.assert_allclose([e.high - e.value for e in got], half, rtol=1e-9)
    difference = term(fit, "a").difference
    np.testing.assert_allclose(difference.value, table[1].mean() - table[0].mean(), atol=1e-9)
    np.testing.assert_allclose(difference.p, term(fit, "a").p, rtol=1e-9)
    assert term(fit, "b").difference is None and term(fit, "a × c").difference is None


def unbalanced():
    losses = grid_losses(THREE, 4, effect=lambda cell: 0.02 * (cell[0] == "a1"))
    for cell, seed in ((("a0", "b1", "c0"), 2), (("a1", "b1", "c0"), 0), (("a1", "b2", "c1"), 3)):
        del losses[cell][seed]
    return losses


def test_missing_seeds_are_tested_as_type_three():
    """Against statsmodels' own analysis of variance, by formula, and against NumPy's residuals."""
    losses = unbalanced()
    fit = fit_factorial(losses, THREE)
    rows = [(*cell, seed, y) for cell, by_seed in losses.items() for seed, y in by_seed.items()]
    data = pandas.DataFrame(rows, columns=pandas.Index([*"abc", "seed", "y"]))
    formula = "y ~ C(a, Sum) * C(b, Sum) * C(c, Sum) + C(seed, Sum)"
    expected = anova_lm(ols(formula, data).fit(), typ=3)
    coded = {name: np.eye(len(own))[:, :-1] - np.eye(len(own))[:, -1:] for name, own in
             [*THREE.items(), ("seed", "0123")]}  # fmt: skip
    columns = {name: coded[name][data[name].map(list(levels).index)] for name, levels in
               [*THREE.items(), ("seed", (0, 1, 2, 3))]}  # fmt: skip
    parts = {"seed": columns["seed"]}
    for found in fit.terms:
        product = np.ones((len(data), 1))
        for name in found.factors:
            product = (product[:, :, None] * columns[name][:, None, :]).reshape(len(data), -1)
        parts[found.name] = product

    def residual(without=None):
        design = np.hstack(
            [np.ones((len(data), 1)), *(p for n, p in parts.items() if n != without)]
        )
        solved = np.linalg.lstsq(design, data["y"].to_numpy(), rcond=None)[0]
        return float(((data["y"].to_numpy() - design @ solved) ** 2).sum())

    whole, df = residual(), fit.degrees_of_freedom
    assert df == len(data) - 12 - 3
    for found in fit.terms:
        row = expected.loc[":".join(f"C({name}, Sum)" for name in found.factors)]
        np.testing.assert_allclose([found.f, found.p], [row["F"], row["PR(>F)"]], rtol=1e-7)
        f = (residual(found.name) - whole) / found.df / (whole / df)
        np.testing.assert_allclose(found.f, f, rtol=1e-9)


def test_a_constant_per_seed_changes_no_test():
    losses = unbalanced()
    moved = {
        cell: {s: y + (0.3, -1, 7, 0.1)[s] for s, y in by.items()} for cell, by in losses.items()
    }
    for before, after in zip(
        *(fit_factorial(x, THREE).terms for x in (losses, moved)), strict=True
    ):
        np.testing.assert_allclose([before.f, before.p], [after.f, after.p], rtol=1e-6)


TWO = {"norm": ("pre", "post"), "ffn": ("relu", "gelu", "swiglu")}


def without(losses, *cells):
    return {cell: by_seed for cell, by_seed in losses.items() if cell not in cells}


def test_a_missing_cell_is_not_guessed():
    losses = without(grid_losses(TWO, 3), ("post", "swiglu"))
    fit = fit_factorial(losses, TWO)
    mean = {cell: np.mean(list(by_seed.values())) for cell, by_seed in losses.items()}
    norm, ffn, both = fit.terms
    # Norm is averaged over the families that both places have, and the families where all are.
    assert norm.over == (("relu",), ("gelu",)) and ffn.over == (("pre",),)
    expected = np.mean([mean["post", f] - mean["pre", f] for f in ("relu", "gelu")])
    np.testing.assert_allclose(norm.difference.value, expected, atol=1e-12)
    pre = np.array([mean["pre", f] for f in TWO["ffn"]])
    got = [estimate.value for estimate in ffn.effects.values()]
    np.testing.assert_allclose(got, pre - pre.mean(), atol=1e-12)
    # What the interaction still shows is one contrast, of the four cells that make a rectangle.
    assert (norm.df, ffn.df, both.df, both.effects) == (1, 2, 1, {})
    contrast = (
        mean["pre", "relu"] - mean["pre", "gelu"] - mean["post", "relu"] + mean["post", "gelu"]
    )
    error = fit.residual_sd * np.sqrt(4 / 3)
    np.testing.assert_allclose(both.f, (contrast / error) ** 2, rtol=1e-9)
    assert fit.degrees_of_freedom == (5 - 1) * (3 - 1)
    assert set(both.means) == set(losses)


def test_what_the_cells_do_not_show_is_not_estimated():
    square = {"a": ("0", "1"), "b": ("0", "1")}
    losses = without(grid_losses(square, 3), ("1", "1"))
    a, b, both = fit_factorial(losses, square).terms
    assert (a.over, b.over) == ((("0",),), (("0",),))
    assert (both.df, both.p) == (0, None) and not both.effects
    diagonal = without(losses, ("0", "0"))
    terms = fit_factorial(diagonal, square).terms
    assert [(t.df, t.p, t.effects) for t in terms] == [(0, None, {})] * 3


def test_a_level_without_losses_leaves_the_grid_of_the_others():
    losses = without(grid_losses(TWO, 3), ("pre", "swiglu"), ("post", "swiglu"))
    fit = fit_factorial(losses, TWO)
    assert fit.levels == {"norm": ("pre", "post"), "ffn": ("relu", "gelu")}
    assert [(t.df, t.over) for t in fit.terms] == [(1, None)] * 3
    lost = without(grid_losses(TWO, 3), *itertools.product(["post"], TWO["ffn"]))
    fit = fit_factorial(lost, TWO)
    # The family is that of the whole grid: it does not follow from what came out.
    assert [t.name for t in fit.terms] == ["ffn"] and fit.family == 3
    np.testing.assert_allclose(holm_over_terms(fit).terms[0].p_holm, min(1, 3 * fit.terms[0].p))


def test_three_factors_name_the_combinations_that_are_left():
    losses = without(grid_losses(THREE, 3), ("a1", "b2", "c1"))
    terms = {t.name: t for t in fit_factorial(losses, THREE).terms}
    assert terms["a"].over == tuple(x for x in itertools.product(THREE["b"], THREE["c"])
                                    if x != ("b2", "c1"))  # fmt: skip
    assert terms["a × b"].over == (("c0",),) and terms["b × c"].over == (("a0",),)
    assert terms["a × b × c"].df == 1
    # A combination of which no cell is left is one that the mean is not over.
    holes = without(losses, ("a0", "b2", "c1"))
    assert ("b2", "c1") not in {t.name: t for t in fit_factorial(holes, THREE).terms}["a"].over


def test_one_seed_and_no_noise_give_figures_alone():
    for losses in (grid_losses(TWO, 1), {c: {0: 2.0, 1: 2.1} for c in grid_losses(TWO, 1)}):
        fit = fit_factorial(losses, TWO)
        for found in fit.terms:
            assert found.f is found.p is None and found.df > 0
            assert all(e.low is None and e.p is None for e in found.effects.values())


def test_cells_of_other_seeds_are_no_part_of_the_grid():
    losses = grid_losses(TWO, 3)
    losses["post", "swiglu"] = {7: 1.0, 8: 1.1}
    fit = fit_factorial(losses, TWO)
    assert fit.unconnected == (("post", "swiglu"),) and fit.observations == 15
    chained = {cell: {s: y for s, y in by.items() if (s < 2) == (cell[0] == "pre") or s == 1}
               for cell, by in grid_losses(TWO, 3).items()}  # fmt: skip
    assert fit_factorial(chained, TWO).unconnected == ()


MORE_SEEDS = [(3, ((0, 1), (4, 2))), (5, ()), (10, ((0, 1), (4, 2)))]


@pytest.mark.parametrize(
    "seeds, holes",
    [(3, ()), *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE_SEEDS)],
)
def test_intervals_cover_and_false_findings_are_rare(seeds, holes):
    """No effect at all: of 2,000 sweeps, 5 % of each interval and of all tests may miss."""
    generator = np.random.default_rng(11)
    cells, sweeps = list(itertools.product(*TWO.values())), 2000
    missed, false = np.zeros(11), 0
    for _ in range(sweeps):
        y = 2 + generator.normal(0, 0.03, seeds) + generator.normal(0, 0.005, (6, seeds))
        losses = {c: {s: float(y[i, s]) for s in range(seeds) if (i, s) not in holes}
                  for i, c in enumerate(cells)}  # fmt: skip
        fit = fit_factorial(losses, TWO)
        found = [e for t in fit.terms for e in t.effects.values()]
        missed += [not e.low <= 0 <= e.high for e in found]
        # Holm finds something exactly when its first step does; statsmodels' is slow to call.
        false += 3 * min(t.p for t in fit.terms) <= 0.05
    covered = 1 - missed / sweeps
    assert covered.min() > 0.93 and covered.max() < 0.97
    assert false / sweeps < 0.063


def test_a_real_interaction_is_found_and_an_additive_grid_has_none():
    generator = np.random.default_rng(12)
    counts = np.zeros((2, 3))
    for which, extra in enumerate((0.0, 0.06)):
        for _ in range(60):

            def effect(cell, extra=extra):
                return 0.03 * (cell[0] == "post") + extra * (cell == ("post", "swiglu"))

            losses = grid_losses(TWO, 3, seed=int(generator.integers(1e6)), effect=effect)
            counts[which] += [3 * t.p <= 0.05 for t in fit_factorial(losses, TWO).terms]
    additive, joint = counts / 60
    assert additive[0] > 0.95 and additive[2] < 0.1 and joint[2] > 0.9


def test_p_values_are_adjusted_over_the_terms_of_the_whole_grid():
    fit = holm_over_terms(fit_factorial(grid_losses(TWO, 3), TWO))
    order = np.argsort([t.p for t in fit.terms])
    steps = np.maximum.accumulate([min(1, (3 - i) * fit.terms[n].p) for i, n in enumerate(order)])
    np.testing.assert_allclose([fit.terms[n].p_holm for n in order], steps, rtol=1e-12)
