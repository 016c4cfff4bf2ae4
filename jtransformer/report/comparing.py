"""Several work directories on one page: what they agree on, and whether their runs are pooled."""

from typing import Any

from jtransformer.report import judging, numbers, style
from jtransformer.report.section import Section, Table
from jtransformer.report.sentences import answer, caveats
from jtransformer.report.side_by_side import Shown, arms_table, forest, rows, shown
from jtransformer.report.summary import Column
from jtransformer.report.values import plain
from jtransformer.stats import Compared, Obstacle, Pool

_UNJUDGED = ("baseline", "incomplete", "no interval", "not compared", "unfair comparison")
_MOST_NAMED = 4
"""How many obstacles or contradictions a sentence lists."""


def sections(compared: Compared, theme: style.Theme) -> list[Section]:
    """Writes the page: the answer of each directory side by side, then what is pooled and why."""
    columns = shown(compared)
    figure = forest(columns, theme)
    first = Section(
        name="comparison",
        title="Does the answer hold?",
        paragraphs=[*_agreement(columns), *pooling(compared)],
        tables=[arms_table(columns)],
        figures=[figure] if figure else [],
    )
    return [first, *_pooled(columns, compared), _directories(columns), _environments(compared)]


def comparison_table(compared: Compared) -> list[Column]:
    """Tabulates the difference and the verdict of every arm in every directory, and pooled."""
    return arms_table(shown(compared)).columns


def comparison_values(compared: Compared) -> dict[str, Any]:
    """Lists every figure with all digits, what is pooled, and what is said of it."""
    return {
        "arms": plain(rows(compared)),
        "pooled": [list(pool.names) for pool in compared.pools],
        "said": pooling(compared),
    }


def pooling(compared: Compared) -> list[str]:
    """Says which directories are pooled, and of each other one why it is not."""
    first = next(iter(compared.analyses))
    pooled = [_put_together(pool, compared) for pool in compared.pools]
    apart = [
        f"{other} is not pooled with {first}, from which it differs in {_obstacles(found)}."
        for other, found in compared.obstacles.items()
        if found
    ]
    return pooled + apart


def _put_together(pool: Pool, compared: Compared) -> str:
    runs = sum(one.runs.planned for one in pool.analyses)
    seeds = set(pool.analyses[0].seeds)
    text = (
        f"{numbers.names(list(pool.names))} differ in nothing but their seeds, so their runs are "
        f"pooled and analysed as one sweep: {runs} runs, {len(seeds)} seeds, settings chosen over "
        "all."
    )
    if all(set(compared.analyses[name][0].seeds) == seeds for name in pool.names):
        text += " Each has all of these seeds already, so that pooling adds none."
    if pool.repeated:
        text += f" {pool.repeated} of the runs stand in several directories and count once."
    if pool.contradictions:
        said = [
            f"{one.arm} at seed {one.seed} ({_loss(one.kept)} against {_loss(one.other)})"
            for one in pool.contradictions[:_MOST_NAMED]
        ]
        text += (
            f" {len(pool.contradictions)} of them have the same fingerprint and other results: "
            f"{'; '.join(said)}{_more(len(pool.contradictions))}. The first directory's count; "
            "versions, devices and modes that differ are below."
        )
    return text


def _obstacles(found: tuple[Obstacle, ...]) -> str:
    said = [f"{one.what} ({one.other} against {one.first})" for one in found[:_MOST_NAMED]]
    return "; ".join(said) + _more(len(found))


def _more(count: int) -> str:
    return "" if count <= _MOST_NAMED else f"; and {count - _MOST_NAMED} more"


def _loss(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.6f}"


def _agreement(columns: list[Shown]) -> list[str]:
    """Says of which arms the directories say the same, and of which they do not."""
    baselines: dict[str, list[str]] = {}
    for one in (column for column in columns if column.pool is None):
        own = one.analysis.label(one.analysis.arm(one.analysis.baseline))
        baselines.setdefault(own, []).append(one.name)
    if len(baselines) > 1:
        said = [f"{own} in {numbers.names(names)}" for own, names in baselines.items()]
        return [
            f"The baselines differ ({'; '.join(said)}), so that verdicts are about different "
            "differences and are not held against each other."
        ]
    words: dict[str, dict[str, str]] = {}
    for column in columns:
        for arm in column.analysis.arms:
            if column.pool is None and arm.verdict.word not in _UNJUDGED:
                words.setdefault(column.analysis.label(arm), {})[column.name] = arm.verdict.word
    shared = any(column.pool is not None and column.pool.repeated for column in columns)
    several = {arm: said for arm, said in words.items() if len(said) > 1}
    alike = [f"{arm} ({next(iter(s.values()))})" for arm, s in several.items() if _is_one(s)]
    apart = [
        f"{arm} ({', '.join(f'{word} in {name}' for name, word in said.items())})"
        for arm, said in several.items()
        if not _is_one(said)
    ]
    text = []
    if alike:
        text.append(
            "The verdict is the same wherever there is one, whatever the size of the effect: "
            f"{'; '.join(alike)}."
            + (" Some of their runs are the same, which confirms nothing." if shared else "")
        )
    if apart:
        text.append(
            f"The verdict differs: {'; '.join(apart)}. That alone does not show that the effect "
            "differs: a difference that is told in one place can be there in the other untold."
        )
    return text or ["No arm has a verdict in two places yet, so nothing is confirmed or denied."]


def _is_one(said: dict[str, str]) -> bool:
    return len(set(said.values())) == 1


def _pooled(columns: list[Shown], compared: Compared) -> list[Section]:
    """Gives the answer of all runs together, where they are one sweep."""
    text = []
    for column in columns:
        if column.pool is not None:
            start = "" if column.name == "pooled" else f"{column.name}: "
            text += [start + answer(column.analysis), *caveats(column.analysis)]
            # The pooled analysis has the rules that the first directory has had.
            for name in column.pool.names[1:]:
                changed = judging.changes(compared.analyses[name][0])
                text += [f"In {name}: {said}" for said in changed]
    return [Section("pooled", "What the runs say together", text, [], [])] if text else []


def _directories(columns: list[Shown]) -> Section:
    """Tabulates what was asked where, and with how much noise."""
    alone = [column.analysis for column in columns if column.pool is None]
    unit = alone[0].data["loss_unit"]
    baselines = [one.arm(one.baseline) for one in alone]
    cells: dict[str, list[str]] = {
        "directory": [column.name for column in columns if column.pool is None],
        "sweep": [one.title for one in alone],
        "data": [f"{one.data['source']} ({one.data['sha256'][:8]})" for one in alone],
        "runs finished": [f"{one.runs.finished} of {one.runs.planned}" for one in alone],
        "diverged": [str(one.runs.diverged) for one in alone],
        "seeds": [", ".join(map(str, one.seeds)) for one in alone],
        "baseline": [one.baseline for one in alone],
        "its parameters": [numbers.count(arm.parameters) for arm in baselines],
        f"its validation NLL ({unit})": [numbers.nll_with_interval(arm.mean) for arm in baselines],
        f"residual sd ({unit})": [
            numbers.nll(one.fit.residual_sd if one.fit else None) for one in alone
        ],
    }
    table = Table(
        name="directories",
        caption=f"What was run where; losses in {unit}, ± is half of a 95 % interval. Losses of "
        "different data or sizes stand beside each other and cannot be subtracted.",
        columns=[Column(heading, found) for heading, found in cells.items()],
        text=("directory", "sweep", "data", "seeds", "baseline"),
    )
    return Section("directories", "What was run where", [], [table], [])


def _environments(compared: Compared) -> Section:
    """Says which versions and devices differ."""
    title = "Were versions and devices the same?"
    if not compared.environments:
        return Section(
            "environments", title, ["All runs have the same, or none has begun."], [], []
        )
    names = list(compared.environments)
    table = Table(
        name="environments",
        caption="What differs between runs, within a directory or between them.",
        columns=[
            Column("environment", names),
            *(
                Column(directory, [_values(compared.environments[n][directory]) for n in names])
                for directory in compared.analyses
            ),
        ],
        text=("environment", *compared.analyses),
    )
    said = (
        f"Runs differ in {numbers.names(names)}. Where all runs of a seed come from one directory, "
        "what that changes for all arms alike goes with the seed; what it changes for one arm "
        "alone does not."
    )
    return Section("environments", title, [said], [table], [])


def _values(values: list[Any]) -> str:
    return " / ".join(map(str, values)) or numbers.NOTHING
