"""Best of grid and re-estimated, side by side: the table, the figure and what changes."""

from collections.abc import Callable

import pandas

from jtransformer.report import intervals, numbers, style
from jtransformer.report.section import Table
from jtransformer.report.summary import Column
from jtransformer.stats import Analysis, BothWays, Estimate, Reestimated

Arms = tuple[Reestimated, ...]


def paragraphs(arms: Arms, analysis: Analysis) -> list[str]:
    """Says what re-estimating is and what it changes."""
    texts = [
        "Each arm's setting is chosen on the same seeds whose losses are then shown, which "
        "flatters the arm. Re-estimated, each seed stands at the setting that the other seeds "
        "alone choose, on validation, for its test loss too. Optimism is the plain figure minus "
        "this one, negative where the plain one flatters; in a difference between arms that were "
        "tuned over equally many settings it cancels, on average. Where settings differ by about "
        "the noise the re-estimated mean errs the other way, for it chooses on one seed fewer; "
        "its interval is longer where the choice hangs on single seeds."
    ]
    if analysis.rungs:
        texts.append(
            "What went on to the last rung of the search was chosen on these seeds before; that is "
            "not undone here."
        )
    return [*texts, *_moved(arms, analysis), *_diverged(arms), *_changed(arms)]


def excludes_zero(estimate: Estimate | None) -> bool:
    """Says whether there is an interval and zero lies outside."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return False
    return estimate.low > 0 or estimate.high < 0


def table(arms: Arms, analysis: Analysis) -> Table:
    """Tabulates both ways for each arm, on validation and test."""

    def pair(
        heading: str,
        read: Callable[[Reestimated], BothWays | None],
        write: Callable[[Estimate | None], str],
    ) -> list[Column]:
        both = [read(arm) for arm in arms]
        return [
            Column(heading, [write(b.plain if b else None) for b in both]),
            Column(f"{heading}, re-estimated", [write(b.held_out if b else None) for b in both]),
        ]

    loss, signed = numbers.nll_with_interval, numbers.difference_with_interval
    return Table(
        name="reestimated",
        caption=f"Losses, and differences to {analysis.baseline} paired by seed, in "
        f"{analysis.data['loss_unit']}, at the chosen settings and re-estimated with each seed's "
        "setting chosen on the other seeds; ± is half of a 95 % interval (unadjusted).",
        columns=[
            Column("arm", [arm.name for arm in arms]),
            Column("settings", [str(arm.settings) for arm in arms]),
            *pair("validation", lambda arm: arm.validation, loss),
            Column("optimism", [_optimism(arm.validation) for arm in arms]),
            *pair("test", lambda arm: arm.test, loss),
            Column("test optimism", [_optimism(arm.test) for arm in arms]),
            *pair("difference", lambda arm: arm.difference, signed),
            *pair("difference on test", lambda arm: arm.test_difference, signed),
            Column("choice changes without", [_seeds(arm.moved) or "no seed" for arm in arms]),
        ],
        text=("arm", "choice changes without"),
    )


def figure(arms: Arms, analysis: Analysis, theme: style.Theme) -> style.Figure | None:
    """Draws the differences in both ways; None where there is none, or both are the same."""
    if not any(arm.moved for arm in arms):
        return None
    plain, held_out = [], []
    for arm in arms:
        both = arm.difference
        if both is not None and both.held_out is not None:
            plain.append(intervals.row(arm.name, "at the chosen setting", both.plain))
            held_out.append(intervals.row(arm.name, "re-estimated", both.held_out))
    if not plain:
        return None
    rows = intervals.Rows(
        title=f"difference to {analysis.baseline}, {analysis.data['loss_unit']}",
        format="+.4~g",
        arms=[row["arm"] for row in plain],
        analysis=analysis,
        theme=theme,
    )
    return style.Figure(
        name="reestimated",
        title="Differences, re-estimated",
        caption="Filled: the paired difference at the chosen settings. Open: re-estimated, each "
        "seed at the setting that the other seeds choose. Both with their 95 % intervals "
        "(unadjusted); negative is a lower loss, better. The two share most of their runs: that "
        "they agree is no second experiment.",
        spec=intervals.drawn(rows, [(plain, True, -8), (held_out, False, 8)]),
        table=pandas.DataFrame([*plain, *held_out]),
    )


def _moved(arms: Arms, analysis: Analysis) -> list[str]:
    moved = [arm for arm in arms if arm.moved]
    if not moved:
        return ["Whichever seed is left out, every arm keeps its setting, and no loss changes."]
    parts = [f"{arm.name} (without {_seeds(arm.moved)})" for arm in moved]
    found = [arm.validation.optimism for arm in moved if arm.validation is not None]
    sizes = [abs(optimism) for optimism in found if optimism is not None]
    moves = "its mean loss moves" if len(moved) == 1 else "mean losses move"
    most = " at most" if len(moved) > 1 else ""
    unit = analysis.data["loss_unit"]
    size = f"; {moves} by {numbers.nll(max(sizes))} {unit}{most}" if sizes else ""
    return [f"The choice changes for {numbers.names(parts)}{size}."]


def _diverged(arms: Arms) -> list[str]:
    return [
        f"{arm.name} has no re-estimated mean: at the setting chosen without it, "
        f"{_seeds(arm.diverged)} diverged."
        for arm in arms
        if arm.diverged
    ]


def _changed(arms: Arms) -> list[str]:
    """Says whose interval excludes zero in one of the two ways alone."""
    compared = [
        (arm.name, arm.difference)
        for arm in arms
        if arm.difference is not None
        and arm.difference.held_out is not None
        and arm.difference.held_out.low is not None
    ]
    lost, won = [], []
    for name, both in compared:
        before, after = excludes_zero(both.plain), excludes_zero(both.held_out)
        if before != after:
            (won if after else lost).append(name)
    texts = []
    if lost:
        texts.append(
            f"For {numbers.names(lost)} the interval of the paired difference excludes zero at the "
            "chosen settings and holds it re-estimated: that difference hangs on the choice."
        )
    if won:
        texts.append(
            f"For {numbers.names(won)} the interval of the paired difference excludes zero only "
            "re-estimated; the verdict, by the chosen settings, does not claim it."
        )
    if compared and not texts and any(arm.moved for arm in arms):
        texts.append("For no difference does that change whether its interval holds zero.")
    return texts


def _optimism(both: BothWays | None) -> str:
    return numbers.difference(both.optimism if both else None)


def _seeds(seeds: tuple[int, ...]) -> str:
    if not seeds:
        return ""
    return f"seed{'s' if len(seeds) > 1 else ''} {numbers.names([str(seed) for seed in seeds])}"
