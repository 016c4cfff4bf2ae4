"""The tables of the fairness audit."""

from collections.abc import Callable

from jtransformer.report import equality, numbers
from jtransformer.report.section import Table
from jtransformer.report.summary import Column
from jtransformer.stats import (
    ABSENT,
    Analysis,
    ArmAnalysis,
    ArmAudit,
    Audit,
    Change,
    Check,
    EnvironmentValue,
)

_COSTS = {
    "parameters": "parameters",
    "non_embedding_parameters": "between embeddings and head",
    "training_flops": "training FLOPs/token",
    "inference_flops": "inference FLOPs/token",
    "kv_bytes": "KV bytes/token",
}
_ADDED = {"label_smoothing": "label smoothing", "z_loss": "z-loss"}


def added(arm: ArmAudit) -> str:
    """Names what an arm minimises beside the plain loss; empty for nothing."""
    parts = [f"{_ADDED[name]} {numbers.setting(value)}" for name, value in arm.added.items()]
    return numbers.names(parts)


def pairing(found: Audit, analysis: Analysis) -> Table:
    """Tabulates what an arm changes, and what its runs share with the baseline's."""
    arms = list(zip(found.arms, analysis.arms, strict=True))
    unequal = [
        [False, arm.joint, bool(arm.batches.unequal), bool(arm.values.unequal), False,
         bool(arm.stopped)]
        for arm, _ in arms
    ]  # fmt: skip
    return Table(
        name="audit_pairing",
        caption="What each arm changes, and what its runs have in common with those of "
        f"{analysis.baseline} at the same seed (those of {analysis.baseline} with one another).",
        columns=[
            Column("arm", [arm.name for arm, _ in arms]),
            Column("changed", [_changes(arm) for arm, _ in arms]),
            Column("runs with equal batches", [_equal(arm.batches) for arm, _ in arms]),
            Column("equal initial values", [_equal(arm.values) for arm, _ in arms]),
            Column("added to the loss", [added(a) or numbers.NOTHING for a, _ in arms]),
            Column("ended early", [f"{len(a.stopped)} of {b.runs.finished}" for a, b in arms]),
        ],
        text=("arm", "changed", "added to the loss"),
        marks=unequal if any(map(any, unequal)) else None,
    )


def _changes(arm: ArmAudit) -> str:
    if not arm.changes:
        return numbers.NOTHING
    text = ", ".join(_change(change) for change in arm.changes)
    return f"joint change: {text}" if arm.joint else text


def _change(change: Change) -> str:
    parts = change.path.split(".")
    name = parts[-2] if parts[-1] == "kind" and len(parts) > 1 else parts[-1]
    value = numbers.setting(change.own)
    if change.part and change.baseline == ABSENT:
        return f"({name} = {value})"
    text = f"{name} {numbers.setting(change.baseline)} → {value}"
    return f"({text})" if change.part else text


def _equal(check: Check) -> str:
    if not check.compared:
        return "none to compare"
    return f"{check.compared - check.unequal:,} of {check.compared:,}"


def starts(found: Audit) -> Table:
    """Tabulates what each arm has taken over; what is less than elsewhere is marked."""
    shares = [_share(arm) for arm in found.arms]
    marks = [[False, False, False, share < max(shares), False] for share in shares]
    return Table(
        name="audit_starts",
        caption="What the runs of each arm start with from elsewhere: parameters, and their "
        "numbers. All others are drawn.",
        columns=[
            Column("arm", [arm.name for arm in found.arms]),
            Column(
                "from",
                [arm.start["directory"] if arm.start else numbers.NOTHING for arm in found.arms],
            ),
            Column("parameters", [_part(arm, "parameters") for arm in found.arms]),
            Column("numbers", [_part(arm, "numbers") for arm in found.arms]),
            Column(
                "hash",
                [arm.start["sha256"][:8] if arm.start else numbers.NOTHING for arm in found.arms],
            ),
        ],
        text=("arm", "from", "hash"),
        marks=marks if any(map(any, marks)) else None,
    )


def _share(arm: ArmAudit) -> float:
    return arm.start["numbers"]["taken"] / arm.start["numbers"]["all"] if arm.start else 0.0


def _part(arm: ArmAudit, what: str) -> str:
    if arm.start is None:
        return numbers.NOTHING
    found = arm.start[what]
    return f"{numbers.count(found['taken'])} of {numbers.count(found['all'])}"


def costs(found: Audit) -> Table:
    """Tabulates sizes, operations, memory, budget and times."""

    def steps(arm: ArmAudit) -> str:
        return _listed([one for one, _ in arm.budgets])

    def tokens(arm: ArmAudit) -> str:
        return _listed([one for _, one in arm.budgets])

    return Table(
        name="audit_costs",
        caption="What each arm has and takes. Steps and tokens are those of a run at the chosen "
        "setting; FLOPs are counted for the model, times are of the clock.",
        columns=[
            Column("arm", [arm.name for arm in found.arms]),
            *(
                Column(heading, [_quantity(arm.quantities.get(name)) for arm in found.arms])
                for name, heading in _COSTS.items()
                if any(arm.quantities.get(name) is not None for arm in found.arms)
            ),
            Column("steps", [steps(arm) for arm in found.arms]),
            Column("tokens", [tokens(arm) for arm in found.arms]),
            Column("wall time (s)", [_timing(arm, 0) for arm in found.arms]),
            Column("tokens/s", [_timing(arm, 1) for arm in found.arms]),
        ],
    )


def _listed(values: list[int]) -> str:
    return ", ".join(numbers.count(value) for value in dict.fromkeys(values)) or numbers.NOTHING


def _quantity(value: float | None) -> str:
    return numbers.NOTHING if value is None else f"{value:,.0f}"


def _timing(arm: ArmAudit, part: int) -> str:
    return numbers.NOTHING if arm.timing is None else f"{arm.timing[part]:,.4g}"


def mismatches(analysis: Analysis) -> Table:
    """Tabulates how far every arm is from the baseline; what is beyond the tolerance is marked."""
    return Table(
        name="audit_mismatches",
        caption=equality.caption(analysis),
        columns=equality.mismatch_table(analysis),
        marks=equality.marks(analysis),
    )


def components(analysis: Analysis) -> Table:
    """Tabulates parameters by component, and what was solved for."""
    names = list(dict.fromkeys(name for arm in analysis.arms for name in arm.components))
    return Table(
        name="audit_components",
        caption="Parameters by component, exact.",
        columns=[
            _column("arm", analysis, lambda arm: arm.name),
            *(_component(name, analysis) for name in names),
            _column("total", analysis, lambda arm: numbers.count(arm.parameters)),
            _column("solved for", analysis, _solved),
        ],
        text=("arm", "solved for"),
    )


def _component(name: str, analysis: Analysis) -> Column:
    return _column(
        name.replace("_", " "), analysis, lambda arm: numbers.count(arm.components.get(name, 0))
    )


def _column(heading: str, analysis: Analysis, cell: Callable[[ArmAnalysis], str]) -> Column:
    return Column(heading, [cell(arm) for arm in analysis.arms])


def _solved(arm: ArmAnalysis) -> str:
    parts = [f"{path.rsplit('.', 1)[-1]} = {value}" for path, value in arm.matched.items()]
    return ", ".join(parts) or numbers.NOTHING


def tuning(analysis: Analysis) -> Table:
    """Tabulates tuning trials, how runs ended, and choices at an edge."""
    edges = [
        ", ".join(numbers.words(edge.factor) for edge in arm.choice.edges) if arm.choice else ""
        for arm in analysis.arms
    ]
    counts = ("planned", "finished", "diverged", "failed")
    return Table(
        name="audit_tuning",
        caption="Tuning trials and how the runs ended.",
        columns=[
            _column("arm", analysis, lambda arm: arm.name),
            _column("settings tried", analysis, lambda arm: str(arm.settings)),
            *(
                Column(
                    "runs" if name == "planned" else name,
                    [str(getattr(arm.runs, name)) for arm in analysis.arms],
                )
                for name in counts
            ),
            Column("best at the edge", [edge or numbers.NOTHING for edge in edges]),
        ],
        text=("arm", "best at the edge"),
        marks=[[False] * 6 + [bool(edge)] for edge in edges] if any(edges) else None,
    )


def environment(found: Audit) -> Table:
    """Tabulates the values that differ between runs, and whose they are."""
    return Table(
        name="audit_environment",
        caption="What differs between the environments of the runs, and whose runs have it.",
        columns=[
            Column("what", [one.name for one in found.environment]),
            Column("value", [one.value for one in found.environment]),
            Column("runs", [_holders(one) for one in found.environment]),
        ],
        text=("what", "value", "runs"),
    )


def _holders(one: EnvironmentValue) -> str:
    return ", ".join(
        f"all of {arm}" if count == one.of[arm] else f"{count} of {one.of[arm]} of {arm}"
        for arm, count in one.runs.items()
    )
