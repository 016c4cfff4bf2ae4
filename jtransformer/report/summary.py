"""The table of arms: one structure for the terminal, `results.md` and the page."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jtransformer.report import judging, numbers
from jtransformer.stats import (
    MOST_SEEDS,
    Analysis,
    ArmAnalysis,
    Comparison,
    EffectSize,
    Estimate,
    SeedsNeeded,
    bits,
)

Cell = Callable[[ArmAnalysis], str]


class Column(NamedTuple):
    """A heading and one cell per arm, in the order of the arms."""

    heading: str
    cells: list[str]


COLUMNS = (
    "arm",
    "verdict",
    "difference",
    "p",
    "validation",
    "bits",
    "test",
    "nuisance",
    "parameters",
    "mismatch",
    "flops",
)
"""Everything, the answer first: on a phone only the left of a table is seen."""
BRIEF = ("arm", "parameters", "mismatch", "nuisance", "validation", "difference", "p", "verdict")
"""What fits a terminal."""


def summary_table(analysis: Analysis, columns: Sequence[str] = BRIEF) -> list[Column]:
    """Tabulates the arms as text.

    Args:
        analysis: The sweep's result.
        columns: Which columns, of `COLUMNS`; "nuisance" gives one per nuisance factor.

    Returns:
        Columns, left to right. "±" is half of the 95 % interval, and a negative difference is a
        lower loss.

    Raises:
        ValueError: If a column is unknown.
    """
    known = _columns(analysis)
    table = []
    for name in columns:
        if name == "nuisance":
            table.extend(_nuisance_columns(analysis))
        elif name in known:
            heading, cell = known[name]
            table.append(Column(heading, [cell(arm) for arm in analysis.arms]))
        else:
            raise ValueError(f"no column is named {name!r}; use {', '.join(COLUMNS)}.")
    return table


def check_table(analysis: Analysis) -> list[Column]:
    """Tabulates how each difference came about, the checks and the test split beside it.

    Every ± is half of a 95 % interval, and every interval is unadjusted but the simultaneous one.
    """
    compared = [(arm, arm.comparison) for arm in analysis.arms if arm.comparison is not None]
    difference = numbers.difference_with_interval
    cells: dict[str, Callable[[Comparison], str]] = {
        "difference, arm + seed model (± unadjusted)": lambda c: difference(c.model),
        "df": lambda c: _df(c.model),
        "p, raw": lambda c: numbers.p_value(c.model.p),
        f"p, {judging.correction(analysis)}": lambda c: numbers.p_value(c.p_adjusted),
        "simultaneous interval": lambda c: numbers.interval(_ends(c.simultaneous)),
        "effect size (interval unadjusted)": lambda c: _effect_size(c.effect_size),
        "smallest resolvable": lambda c: numbers.nll(c.resolvable),
        "seeds needed": lambda c: _seeds(c.need),
        "difference, paired t (± unadjusted)": lambda c: difference(c.paired),
        "df, paired": lambda c: _df(c.paired),
        "p, paired (raw)": lambda c: numbers.p_value(c.paired.p if c.paired else None),
        "difference on test (± unadjusted)": lambda c: difference(c.test),
    }
    if analysis.rule.margin is not None:
        heading = f"p, equivalent within {analysis.rule.margin:g} ({judging.correction(analysis)})"
        cells[heading] = lambda c: numbers.p_value(c.p_equivalent)
    if any(c.bootstrap for _, c in compared):
        cells["bootstrap interval, paired (BCa, unadjusted)"] = lambda c: numbers.interval(
            c.bootstrap
        )
    if any(c.p_sign_flip is not None for _, c in compared):
        cells["p, sign-flip (raw)"] = lambda c: numbers.p_value(c.p_sign_flip)
    return [
        Column("arm", [arm.name for arm, _ in compared]),
        *(Column(heading, [cell(c) for _, c in compared]) for heading, cell in cells.items()),
    ]


def _columns(analysis: Analysis) -> dict[str, tuple[str, Cell]]:
    unit = analysis.data["loss_unit"]
    per_bit = f"bits/{unit.removeprefix('nats/')}"
    return {
        "arm": ("arm", lambda arm: arm.name),
        "parameters": ("parameters", lambda arm: numbers.count(arm.parameters)),
        "mismatch": ("mismatch", lambda arm: numbers.percent(arm.residual)),
        "flops": ("training FLOPs/token", lambda arm: numbers.count(arm.training_flops_per_token)),
        "validation": (f"validation NLL ({unit})", _validation),
        "bits": (per_bit, lambda arm: numbers.nll(bits(arm.mean.value) if arm.mean else None)),
        "test": (f"test NLL ({unit})", _test),
        "difference": (
            f"difference ({unit}; ± {analysis.rule.intervals})",
            lambda arm: numbers.difference_with_interval(analysis.difference(arm)),
        ),
        "p": (f"p ({judging.correction(analysis)})", _p_adjusted),
        "verdict": ("verdict", lambda arm: arm.verdict.text),
    }


def _nuisance_columns(analysis: Analysis) -> list[Column]:
    choices = [arm.choice.nuisance if arm.choice else {} for arm in analysis.arms]
    factors = list(dict.fromkeys(factor for choice in choices for factor in choice))
    return [
        Column(
            numbers.words(factor),
            [numbers.setting(c[factor]) if factor in c else numbers.NOTHING for c in choices],
        )
        for factor in factors
    ]


def _validation(arm: ArmAnalysis) -> str:
    if arm.choice and arm.choice.runs.diverged:
        return f"{arm.choice.runs.diverged} of {arm.choice.runs.planned} diverged"
    return numbers.nll_with_interval(arm.mean)


def _test(arm: ArmAnalysis) -> str:
    return numbers.nll(arm.test_mean.value if arm.test_mean else None)


def _p_adjusted(arm: ArmAnalysis) -> str:
    return numbers.p_value(arm.comparison.p_adjusted if arm.comparison else None)


def _ends(estimate: Estimate) -> tuple[float, float] | None:
    return None if estimate.low is None or estimate.high is None else (estimate.low, estimate.high)


def _effect_size(size: EffectSize | None) -> str:
    if size is None:
        return numbers.NOTHING
    value, low, high = (numbers.signed(f"{x:+.2f}") for x in (size.value, size.low, size.high))
    return f"{value} ({low} to {high})"


def _seeds(need: SeedsNeeded | None) -> str:
    if need is None:
        return numbers.NOTHING
    seeds = f"more than {MOST_SEEDS:,}" if need.seeds is None else str(need.seeds)
    return f"{seeds} ({need.of})"


def _df(estimate: Estimate | None) -> str:
    if estimate is None or estimate.degrees_of_freedom is None:
        return numbers.NOTHING
    return str(estimate.degrees_of_freedom)
