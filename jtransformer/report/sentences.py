"""Sentences of the page, by rule from the analysis."""

import re

from jtransformer.report import equality, judging, numbers
from jtransformer.stats import Analysis, ArmAnalysis, bits, exact_rate, is_told


def scale(analysis: Analysis) -> str:
    """Names a scale and what it sets."""
    size = analysis.scales[analysis.scale or ""]
    parts = [f"{path.rsplit('.', 1)[-1]} {numbers.setting(value)}" for path, value in size.items()]
    return f"Scale {analysis.scale}: {', '.join(parts) or 'as in get_config()'}"


def answer(analysis: Analysis) -> str:
    """Says in one sentence what came out."""
    runs = analysis.runs
    if not runs.finished:
        return f"No run has finished yet (0 of {runs.planned}), so there is nothing to say."
    others = [arm for arm in analysis.arms if arm.name != analysis.baseline]
    if not others:
        return "The sweep has one arm, so there is nothing to compare."
    clauses = [
        _direction(others, "better", analysis),
        _direction(others, "worse", analysis),
        _equivalent(others, analysis),
        _untold(others, analysis),
        _diverging(analysis.arms),
        *_unfair(others),
        *_uncompared(others, analysis),
    ]
    text = "; ".join(clause for clause in clauses if clause)
    prefix = "" if runs.complete else f"provisional, {runs.finished} of {runs.planned} runs: "
    text = prefix + text
    # A name is written as it is; only a word of ours gets a capital.
    named = any(re.match(rf"{re.escape(arm.name)}(?!\w)", text) for arm in analysis.arms)
    return (text if named else text[0].upper() + text[1:]) + "."


def caveats(analysis: Analysis) -> list[str]:
    """Lists what a reader must know before the answer is believed."""
    unequal = equality.inequality(analysis)
    found = [*([] if unequal is None else [unequal]), *judging.changes(analysis)]
    at_edge = [arm.name for arm in analysis.arms if arm.mean and arm.choice and arm.choice.edges]
    if at_edge and analysis.runs.complete:
        found.append(
            f"The best tuned value of {numbers.names(at_edge)} lies at the edge of its "
            f"{'draws' if analysis.drawn else 'grid'}: a better one may lie beyond, and a "
            "difference may be one of tuning."
        )
    if analysis.runs.diverged:
        found.append(
            f"{analysis.runs.diverged} of {analysis.runs.planned} runs diverged. A setting with a "
            "diverged run is chosen only where every setting has one, and survivors are not "
            "averaged."
        )
    if analysis.runs.failed:
        found.append(
            f"Runs that failed, by an error and not by divergence: {analysis.runs.failed}. The "
            "same command repeats them."
        )
    if analysis.fit and not analysis.fit.balanced:
        found.append(
            "The arm + seed model is unbalanced: some arms lack seeds, and least squares compares "
            "arms on the seeds they share."
        )
    return found


def compressor(analysis: Analysis) -> str | None:
    """Says how far the best arm is from counting bytes and from a compressor."""
    figures = [arm for arm in analysis.arms if arm.mean]
    if not figures:
        return None
    best = min(figures, key=lambda arm: arm.mean.value if arm.mean else 0.0)
    assert best.mean is not None
    loss, data = best.mean.value, analysis.data
    unit = data["loss_unit"]
    per = unit.removeprefix("nats/")
    begin = (
        f"On the same validation part the best arm, {best.name}, reaches {loss:.4f} {unit} "
        f"({bits(loss):.4f} bits/{per}): "
    )
    names = {"unigram": "the unigram entropy", "bigram": "a bigram model", "xz": "what xz -9 needs"}
    parts = [
        f"{_away(loss - data[f'{key}_nll'])} {name} ({data[f'{key}_nll']:.4f})"
        for key, name in names.items()
        if data[f"{key}_nll"] is not None
    ]
    return begin + numbers.names(parts) + "."


def tuning(analysis: Analysis) -> list[str]:
    """Says how tuned settings were found, where that is no grid of declared values."""
    notes, search = [], analysis.search
    if analysis.drawn:
        how = "at random" if search["strategy"] == "random" else "from a scrambled Halton sequence"
        notes.append(
            f"The tuned settings were drawn {how}, {search['trials']} for every arm and the same "
            "for all; an arm takes of each draw the settings that it has."
        )
    if search.get("rungs"):
        lengths = [
            f"{rung.settings} for {numbers.count(rung.steps)} steps" for rung in analysis.rungs
        ]
        notes.append(
            f"Tuned by successive halving, with as many settings in every arm: "
            f"{numbers.names(lengths)}. Which go on is chosen on validation. Every run starts anew "
            "and has its schedule to itself; figures are those of the last rung alone."
        )
    for stage in analysis.stages:
        for path, values in stage.get("added", {}).items():
            notes.append(
                f"The values of {path} were widened by "
                f"{numbers.names([numbers.setting(value) for value in values])}, for all arms "
                f"alike, because the best one of {numbers.names(stage['because'][path])} lay at "
                "the edge."
            )
    return notes


def statistics(analysis: Analysis) -> list[str]:
    """Explains the table's figures, one statement each."""
    notes = [
        "A run's figure is the mean negative log-likelihood of its last step over all that is "
        f"asked of the validation split, in {analysis.data['loss_unit']}; lower is better.",
        "Each arm is shown at the tuned setting with the lowest mean validation loss over seeds. "
        "The test split took no part in that choice and is shown for the chosen settings alone.",
        "A run counts as diverged if its loss or gradient is not finite, or if it ends above both "
        "a uniform guess (ln V) and its own untrained loss; such a run is never averaged away.",
        "± after a loss is half of the 95 % t interval over the arm's own seeds; it includes what "
        "the seeds have in common and is wider than that of a difference.",
        *tuning(analysis),
    ]
    fit = analysis.fit
    if fit is None or fit.residual_sd is None:
        return notes
    notes.append(
        "A difference is arm minus baseline (negative: lower loss, better) from the model "
        f"loss = arm + seed + noise over {len(fit.arms)} arms and {fit.observations} runs, fitted "
        f"by least squares: residual sd {numbers.nll(fit.residual_sd)} "
        f"{analysis.data['loss_unit']} on {fit.degrees_of_freedom} degrees of freedom. Its 95 % "
        f"interval is {judging.interval(analysis)}."
    )
    notes += judging.rule(analysis)
    notes.append(
        "Smallest resolvable difference: the true difference found with 80 % power by a two-sided "
        f"test at level 0.05 / {max(fit.comparisons, 1)}, the strictest that the correction sets. "
        "It is se · d, with se = residual sd · √(2 / seeds) in a balanced sweep and d the "
        "noncentrality at which P(T > t(1 − level / 2, df)) = 0.8 for noncentral t."
    )
    notes.append(
        "The effect size is the difference divided by the residual sd, with an interval by "
        "noncentral t. The paired t of each arm against the baseline is a check: it uses no other "
        "arm, so it has fewer degrees of freedom."
    )
    return notes


def _direction(arms: list[ArmAnalysis], word: str, analysis: Analysis) -> str:
    found = [arm for arm in arms if arm.verdict.word == word and arm.comparison]
    if not found:
        return ""
    unit = analysis.data["loss_unit"]
    parts = [
        f"{arm.name} ({numbers.difference_with_interval(analysis.difference(arm))} {unit})"
        for arm in found
    ]
    verb = "is" if len(found) == 1 else "are"
    return f"{numbers.names(parts)} {verb} {word} than {analysis.baseline}"


def _equivalent(arms: list[ArmAnalysis], analysis: Analysis) -> str:
    found = [arm for arm in arms if arm.verdict.word == "equivalent within margin"]
    if not found:
        return ""
    unit = analysis.data["loss_unit"]
    parts = []
    for arm in found:
        shown = analysis.difference(arm)
        text = f"{numbers.difference_with_interval(shown)} {unit}"
        if shown and arm.comparison and is_told(arm.comparison):
            text += f", {'better' if shown.value < 0 else 'worse'} by less than the margin"
        parts.append(f"{arm.name} ({text})")
    verb = "is" if len(found) == 1 else "are"
    return (
        f"{numbers.names(parts)} {verb} equivalent to {analysis.baseline} within the margin of "
        f"{analysis.rule.margin:g} {unit}"
    )


def _untold(arms: list[ArmAnalysis], analysis: Analysis) -> str:
    found = [arm for arm in arms if arm.verdict.word == "cannot tell"]
    if not found:
        return ""
    resolvable = max(a.comparison.resolvable or 0.0 for a in found if a.comparison)
    return (
        f"for {numbers.names([arm.name for arm in found])} {len(analysis.seeds)} seeds cannot tell "
        f"(a difference under {numbers.nll(resolvable)} {analysis.data['loss_unit']} would often "
        "be missed)"
    )


def _diverging(arms: tuple[ArmAnalysis, ...]) -> str:
    rates: dict[tuple[int, int], list[str]] = {}
    for arm in arms:
        runs = arm.choice.runs if arm.choice else None
        if arm.verdict.word != "incomplete" and runs and runs.diverged:
            rates.setdefault((runs.diverged, runs.planned), []).append(arm.name)
    clauses = []
    for (k, n), named in rates.items():
        rate, verb = exact_rate(k, n), "diverges" if len(named) == 1 else "diverge"
        where = "at the best setting" if len(named) == 1 else "each, at their best settings"
        clauses.append(
            f"{numbers.names(named)} {verb} in {k} of {n} runs {where} (95 %: "
            f"{100 * rate.low:.0f} to {100 * rate.high:.0f} %)"
        )
    return "; ".join(clauses)


def _unfair(arms: list[ArmAnalysis]) -> list[str]:
    named: dict[tuple[str, ...], list[str]] = {}
    for arm in arms:
        if arm.verdict.word == "unfair comparison":
            named.setdefault(arm.objections, []).append(arm.name)
    return [
        f"nothing is claimed of {numbers.names(names)}, an unfair comparison ({'; '.join(why)})"
        for why, names in named.items()
    ]


def _uncompared(arms: list[ArmAnalysis], analysis: Analysis) -> list[str]:
    def having(word: str) -> list[str]:
        return [arm.name for arm in arms if arm.verdict.word == word]

    clauses = []
    if unsure := having("no interval"):
        why = "one seed gives" if len(analysis.seeds) == 1 else "the runs give"
        clauses.append(f"for {numbers.names(unsure)} {why} no interval, so nothing is claimed")
    if lost := having("not compared"):
        verb = "is" if len(lost) == 1 else "are"
        clauses.append(f"{numbers.names(lost)} {verb} not compared with {analysis.baseline}")
    if waiting := having("incomplete"):
        clauses.append(f"not yet judged: {numbers.names(waiting)}")
    return clauses


def _away(distance: float) -> str:
    return f"{abs(distance):.4f} {'below' if distance < 0 else 'above'}"
