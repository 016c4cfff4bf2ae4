"""The fairness audit: one sentence by rule, and the tables that it rests on."""

from jtransformer.records import taken_sentence, unequal_starts
from jtransformer.report import audit_tables, equality, numbers
from jtransformer.report.section import Section
from jtransformer.stats import Analysis, Audit

FAIR = "Nothing found that would make the comparison unfair"


def section(found: Audit, analysis: Analysis) -> Section:
    """Writes the section; every page has one."""
    return Section(
        name="audit",
        title="Was the comparison fair?",
        paragraphs=[
            summary(found, analysis),
            *_checked(found, analysis),
            *_started(found),
            *_joint(found),
            *_environment(found),
            *_budget(found),
            equality.rule(analysis),
            *_loss(found, analysis),
            *_timed(found, analysis),
        ],
        tables=[
            audit_tables.pairing(found, analysis),
            *([audit_tables.starts(found)] if any(arm.start for arm in found.arms) else []),
            audit_tables.costs(found),
            audit_tables.mismatches(analysis),
            audit_tables.components(analysis),
            audit_tables.tuning(analysis),
            *([audit_tables.environment(found)] if found.environment else []),
        ],
        figures=[],
    )


def summary(found: Audit, analysis: Analysis) -> str:
    """Says in one sentence what was found that speaks against the comparison."""
    runs = found.fairness.runs
    if not runs:
        return "Nothing could be checked yet: no run has finished."
    if len(analysis.arms) < 2:
        return "There is one arm, so there is no comparison that could be unfair."
    reasons = findings(found, analysis)
    begin = (
        "" if analysis.runs.complete else f"So far, over {runs} of {analysis.runs.planned} runs: "
    )
    if not reasons:
        text = FAIR if not begin else FAIR[0].lower() + FAIR[1:]
        return f"{begin}{text}."
    text = "what may make the comparison unfair: "
    return f"{begin or 'Found '}{text}{'; '.join(reasons)}."


def findings(found: Audit, analysis: Analysis) -> list[str]:
    """Lists what speaks against the comparison, as clauses."""
    clauses = [f"{arm.name}: {reason}" for arm in analysis.arms for reason in arm.objections]
    clauses += [
        f"{arm.name} is off by {numbers.percent(arm.residual)} in "
        f"{equality.WORDS[equality.matched_quantity(analysis) or 'parameters']}"
        for arm in analysis.arms
        if equality.is_unequal(analysis, arm.residual)
    ]
    clauses += [
        f"{arm}: its runs and those of {analysis.baseline} have no {numbers.names(list(names))} in "
        "common"
        for arm, names in found.apart.items()
    ]
    clauses += [
        f"{arm.name}: its best {numbers.words(edge.factor)}, "
        f"{numbers.setting(edge.value)}, is the {edge.side} that was tried"
        for arm in analysis.arms
        if arm.choice and arm.runs.complete
        for edge in arm.choice.edges
    ]
    unequal = unequal_starts({arm.name: arm.start for arm in found.arms})
    clauses += [] if unequal is None else [unequal]
    stopped = [
        f"{arm.name} ({len(arm.stopped)} runs, after {_range(arm.stopped)} steps)"
        for arm in found.arms
        if arm.stopped
    ]
    if stopped:
        clauses.append(f"runs ended early: {numbers.names(stopped)}")
    return clauses


def _range(steps: tuple[int, ...]) -> str:
    ends = dict.fromkeys((numbers.count(steps[0]), numbers.count(steps[-1])))
    return " to ".join(ends)


def _checked(found: Audit, analysis: Analysis) -> list[str]:
    checked = found.fairness
    if not checked.runs:
        return []
    if checked.unequal_batches:
        seeds = ", ".join(map(str, checked.unequal_batches))
        batches = f"Batches differ between runs of seed {seeds}."
    elif checked.samplings > 1:
        batches = (
            f"Runs differ in data, objective, batch size or steps, in {checked.samplings} ways: "
            "for each seed, the first and the last batch are equal within each of them."
        )
    else:
        rung = " of the same rung" if analysis.rungs else ""
        batches = (
            "Same data in the same order: for each seed, the first and the last batch of all "
            f"{checked.runs} finished runs{rung} are equal."
        )
    if checked.unequal_values:
        values = (
            "Initial values differ although path, shape and initialiser are equal (seed: "
            f"parameter): {', '.join(checked.unequal_values)}."
        )
    else:
        values = (
            f"Same start: the {checked.shared_parameters} parameters that arms share by path, "
            "shape and initialiser have equal initial values, for each seed."
        )
    return [batches, values]


def _started(found: Audit) -> list[str]:
    """Says that runs continue the training of other parameters."""
    if not any(arm.start for arm in found.arms):
        return []
    listed = "; ".join(
        f"{arm.name} starts anew"
        if arm.start is None
        else f"{arm.name} has taken over {taken_sentence(arm.start)}"
        for arm in found.arms
    )
    return [
        f"Runs start with parameters that were trained before: {listed}. What is new is drawn; the "
        "steps, the rates and the state of the optimizer begin anew in every run."
    ]


def _joint(found: Audit) -> list[str]:
    joint = [arm.name for arm in found.arms if arm.joint]
    if not joint:
        return []
    verb = "is a joint change" if len(joint) == 1 else "are joint changes"
    return [
        f"{numbers.names(joint)} {verb}: more than one setting differs from the baseline, and the "
        "difference belongs to none of them alone."
    ]


def _environment(found: Audit) -> list[str]:
    if not found.fairness.runs:
        return []
    names = list(dict.fromkeys(one.name for one in found.environment))
    if not names:
        return ["All runs have the same versions and the same device."]
    return [
        f"Runs differ in their environment, in {numbers.names(names)}; the table below has the "
        "values and whose runs they are."
    ]


def _budget(found: Audit) -> list[str]:
    budgets = found.fairness.budgets
    if not budgets:
        return []
    listed = "; ".join(
        f"{numbers.count(steps)} steps, {numbers.count(tokens)} tokens" for steps, tokens in budgets
    )
    differ = " (budgets differ)" if len(budgets) > 1 else ""
    return [f"Budget of a finished run: {listed}{differ}."]


def _loss(found: Audit, analysis: Analysis) -> list[str]:
    """Says that smoothed and plain losses are kept apart."""
    added = [(arm.name, audit_tables.added(arm)) for arm in found.arms if arm.added]
    text = (
        "Every loss on this page, of train batches too, is the plain negative log-likelihood; what "
        "training adds to it is shown nowhere."
    )
    if not added:
        return [text]
    if len(added) == len(found.arms) and len({what for _, what in added}) == 1:
        return [f"{text} All arms minimise it with {added[0][1]}."]
    listed = "; ".join(f"{name} with {what}" for name, what in added)
    others = "" if len(added) == len(found.arms) else ", the other arms without"
    return [
        f"{text} It is minimised differently: {listed}{others}. An arm is judged by the plain "
        "loss, which is not the one that it minimised."
    ]


def _timed(found: Audit, analysis: Analysis) -> list[str]:
    if not found.fairness.runs:
        return []
    text = (
        "Wall time and tokens/s are medians over the runs at the chosen setting, and compared "
        "between runs of one kind of device, count and mode alone. Which host it was, and what "
        "else ran on it, is not recorded."
    )
    untimed = [arm.name for arm in found.arms if arm.timing is None and arm.budgets]
    if untimed:
        text += f" Not compared with {analysis.baseline}: {numbers.names(untimed)}."
    return [text]
