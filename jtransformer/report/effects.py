"""Main effects and interactions in words, by rule, and as tables."""

from jtransformer.report import numbers, style
from jtransformer.report.effects_figures import interaction, main_effects
from jtransformer.report.section import Section, Table
from jtransformer.report.summary import Column
from jtransformer.stats import LEVEL, Analysis, Factorial, Term

_MOST_NAMED = 8
"""How many names a sentence lists."""
_MOST_PAIRS = 6
"""How many pairs of factors are all drawn; of more, those that interact."""


def section(found: Factorial | None, analysis: Analysis, theme: style.Theme) -> Section | None:
    """Says which factors move the loss and which depend on each other; None of what is no grid."""
    if found is None:
        return None
    unit = analysis.data["loss_unit"]
    terms = list(found.fit.terms) if found.fit else []
    effects = [term for term in terms if term.effects]
    tested = [term for term in terms if term.p is not None]
    pairs = [term for term in terms if len(term.factors) == 2 and term.means]
    if len(pairs) > _MOST_PAIRS:
        pairs = [term for term in pairs if _is_told(term)]
    figures = [main_effects(effects, unit, theme)] if effects else []
    return Section(
        name="effects",
        title="Which factor does it, and do they interact?",
        paragraphs=[
            *_findings(found, analysis),
            *_gaps(found, analysis),
            *_method(found, analysis),
        ],
        tables=([_terms_table(found)] if tested else [])
        + ([_effects_table(effects, unit)] if effects else []),
        figures=figures + [interaction(term, found, unit, theme) for term in pairs],
    )


def _findings(found: Factorial, analysis: Analysis) -> list[str]:
    fit = found.fit
    if fit is None or not fit.terms:
        return ["Nothing can be said of the factors: no two levels of any have a loss yet."]
    tested = [term for term in fit.terms if term.p is not None]
    if not tested:
        why = "one seed gives" if len(analysis.seeds) == 1 else "the runs give"
        return [f"For no factor is anything claimed: {why} no interval."]
    interactions = [term for term in tested if len(term.factors) > 1]
    told = [term for term in interactions if _is_told(term)]
    untold = [term for term in interactions if not _is_told(term)]
    dependent = {factor for term in told for factor in term.factors}
    text = [
        _main(term, found, term.factors[0] in dependent, analysis.data["loss_unit"])
        for term in tested
        if len(term.factors) == 1
    ]
    text += [f"{_test(term, found)}: {_dependence(term)}.{_over(term, found)}" for term in told]
    if untold:
        tests = "; ".join(_test(term, found) + _over(term, found) for term in untold[:_MOST_NAMED])
        if (rest := len(untold) - _MOST_NAMED) > 0:
            tests += f"; and {rest} more in the table"
        text.append(f"No interaction can be told, which does not show that there is none: {tests}.")
    if beyond := [term.name for term in fit.terms if term.p is None]:
        text.append(f"Cannot be estimated for want of cells: {_listed(beyond)}.")
    return text


def _main(term: Term, found: Factorial, is_dependent: bool, unit: str) -> str:
    """Says of a factor whether its levels differ, and by how much."""
    levels = [level for (level,) in term.effects]
    if term.difference is not None:
        difference = numbers.difference_with_interval(term.difference)
        figures = f"{levels[1]} minus {levels[0]} is {difference} {unit}"
    else:
        ranked = sorted(term.effects.items(), key=lambda item: item[1].value)
        parts = [f"{cell[0]} {numbers.difference_with_interval(e)}" for cell, e in ranked]
        figures = f"against the mean of all levels, {numbers.names(parts)} {unit}"
    word = "its levels differ" if _is_told(term) else "no effect can be told"
    text = f"{_test(term, found)}: {word}; {figures}.{_over(term, found)}"
    if is_dependent:
        text += " That is an average: its effect depends on the level of another factor."
    (factor,) = [one for one in found.factors if one.label == term.name]
    if len(factor.settings) > 1:
        text += (
            f" {numbers.names(factor.settings)} are set together: a joint change of several "
            "settings cannot be put down to one."
        )
    return text


def _dependence(term: Term) -> str:
    *others, last = term.factors
    if len(others) == 1:
        return f"the effect of {others[0]} depends on {last}, and the other way round"
    return f"how {numbers.names(others)} depend on each other depends on {last}"


def _test(term: Term, found: Factorial) -> str:
    """Writes the F test of a term that has one."""
    if found.fit is None:
        return term.name
    df = f"{term.df}, {found.fit.degrees_of_freedom}"
    p = f"{numbers.p_value(term.p_holm)} (Holm, {found.fit.family} terms)"
    return f"{term.name}, F({df}) = {term.f:.2f}, p = {p}"


def _over(term: Term, found: Factorial) -> str:
    """Says over which part of the grid a term was estimated, where it is not all of it."""
    if term.p is not None and not term.effects:
        return " (That part of it which the cells with a loss still show.)"
    if term.over is None:
        return ""
    others = ", ".join(one.label for one in found.factors if one.label not in term.factors)
    places = "; ".join(", ".join(cell) for cell in term.over)
    return f" (Estimated where {others} = {places}: elsewhere a level has no loss.)"


def _gaps(found: Factorial, analysis: Analysis) -> list[str]:
    """Says what is missing from the grid, and what should not be compared in it."""
    text = []
    lost = [
        f"{level} of {factor.label}"
        for factor in found.factors
        for level in factor.levels
        if found.fit and level not in found.fit.levels[factor.label]
    ]
    if lost:
        text.append(f"Nothing is said of {_listed(lost)}, where no arm has a loss.")
    if found.absent:
        reasons = [f"{arm} {reason}" for arm, reason in found.absent.items()]
        text.append(f"Not in the grid, and neither averaged over nor guessed: {_listed(reasons)}.")
    if found.gaps:
        lacking = [f"{arm} ({', '.join(map(str, gap))})" for arm, gap in found.gaps.items()]
        text.append(
            f"Seeds are missing of {_listed(lacking)}: least squares compare arms on the seeds "
            "that they share."
        )
    unfair = [
        f"{arm.name} ({', '.join(arm.objections)})" for arm in analysis.arms if arm.objections
    ]
    if unfair:
        text.append(f"Not a fair comparison, and still in the model: {_listed(unfair)}.")
    if found.provisional:
        text.append(f"Provisional, since not finished: {_listed(list(found.provisional))}.")
    return text


def _method(found: Factorial, analysis: Analysis) -> list[str]:
    fit, unit = found.fit, analysis.data["loss_unit"]
    at = "" if analysis.scale is None else " at this scale"
    if fit is None or fit.residual_sd is None:
        return []
    return [
        "The model is cell of the grid + seed + noise, each arm at its own chosen setting: "
        f"{fit.observations} runs, residual sd {numbers.nll(fit.residual_sd)} {unit} on "
        f"{fit.degrees_of_freedom} degrees of freedom. A level is averaged over the levels of the "
        "other factors with equal weights, and the F tests (type III) are about these averages. "
        f"p is Holm-adjusted over all {fit.family} terms of the grid{at}; intervals are of 95 %, "
        "unadjusted."
    ]


def _terms_table(found: Factorial) -> Table:
    terms = found.fit.terms if found.fit else ()
    columns = {
        "term": [term.name for term in terms],
        "finding": [_finding(term) for term in terms],
        "df": [str(term.df) for term in terms],
        "F": [numbers.NOTHING if term.f is None else f"{term.f:.2f}" for term in terms],
        "p, raw": [numbers.p_value(term.p) for term in terms],
        "p, Holm": [numbers.p_value(term.p_holm) for term in terms],
    }
    return Table(
        name="effects_terms",
        caption="Type III F tests of every main effect and interaction, seeds as blocks; p by Holm "
        f"over the {found.fit.family if found.fit else 0} terms of the grid.",
        columns=[Column(heading, cells) for heading, cells in columns.items()],
        text=("term", "finding"),
    )


def _effects_table(terms: list[Term], unit: str) -> Table:
    # Cells multiply with every factor; the finding as JSON has all of them.
    listed = [term for term in terms if len(term.factors) < 3 or _is_told(term)]
    left_out = (
        ""
        if len(listed) == len(terms)
        else (
            " Interactions of three or more factors are listed where they are told; --json has all."
        )
    )
    rows = [(term, cell, estimate) for term in listed for cell, estimate in term.effects.items()]
    columns = {
        "term": [term.name for term, _, _ in rows],
        "level": [", ".join(cell) for _, cell, _ in rows],
        f"mean ({unit})": [numbers.nll(term.means[cell]) for term, cell, _ in rows],
        f"effect ({unit})": [numbers.difference_with_interval(e) for _, _, e in rows],
        "p, raw": [numbers.p_value(estimate.p) for _, _, estimate in rows],
    }
    return Table(
        name="effects_levels",
        caption="Effects that sum to zero over the levels of each factor: of a level, its mean "
        "minus the mean of all levels; of a cell of an interaction, what its main effects (and "
        "lower interactions) leave. ± is half of a 95 % interval, unadjusted; negative is a lower "
        f"loss.{left_out}",
        columns=[Column(heading, cells) for heading, cells in columns.items()],
        text=("term", "level"),
    )


def _finding(term: Term) -> str:
    if term.p is None:
        return "cannot be estimated"
    if _is_told(term):
        return "levels differ" if len(term.factors) == 1 else "depend on each other"
    return f"no {'effect' if len(term.factors) == 1 else 'interaction'} can be told"


def _is_told(term: Term) -> bool:
    return term.p_holm is not None and term.p_holm <= LEVEL


def _listed(items: list[str]) -> str:
    rest = len(items) - _MOST_NAMED
    if rest <= 0:
        return numbers.names(items)
    return f"{', '.join(items[:_MOST_NAMED])} and {rest} more"
