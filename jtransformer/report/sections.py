"""All sections of a page, in the order in which they are read."""

from typing import NamedTuple

import pandas

from jtransformer import stats
from jtransformer.records import SweepRecord, read_probe
from jtransformer.report import (
    audit,
    curves,
    effects,
    ladder,
    outcomes,
    power,
    probes,
    result,
    sensitivity,
    speed,
    style,
    tuning,
)
from jtransformer.report.section import Section
from jtransformer.stats import (
    Analysis,
    Audit,
    Divergence,
    Factorial,
    Ladder,
    Power,
    Profiles,
    Sensitivity,
    Speed,
)


class Findings(NamedTuple):
    """What was found of one scale, or of a sweep without scales; computed once for all themes.

    Attributes:
        analysis: Estimates and verdicts.
        curves: Losses along training of the chosen settings, a row per point.
        tuning: Final losses by tuned setting, a row per run.
        power: What the seeds could have shown.
        effects: What each factor of a grid does, and which depend on each other.
        divergence: What diverged, and how the arms rank.
        sensitivity: What tuning does to the figures.
        speed: How fast the arms are, and how they compare at equal compute.
        probes: What happens inside the models, by depth.
        audit: What could make the comparison unfair.
        ladder: How the arms go with scale, the same in the findings of every scale.
    """

    analysis: Analysis
    curves: pandas.DataFrame
    tuning: pandas.DataFrame
    power: Power | None
    effects: Factorial | None
    divergence: Divergence | None
    sensitivity: Sensitivity | None
    speed: Speed | None
    probes: Profiles | None
    audit: Audit
    ladder: Ladder | None = None


def find(record: SweepRecord, analysis: Analysis) -> Findings:
    """Computes everything that the sections show."""
    return Findings(
        analysis=analysis,
        curves=stats.learning_curves(record, analysis),
        tuning=stats.nuisance_curves(record, analysis),
        power=stats.power(analysis),
        effects=stats.factorial(record, analysis),
        divergence=stats.divergence(record, analysis),
        sensitivity=stats.sensitivity(record, analysis),
        speed=stats.speed(record, analysis),
        probes=stats.profiles(record, analysis, read_probe),
        audit=stats.audit(record, analysis),
    )


def sections(findings: Findings, theme: style.Theme) -> list[Section]:
    """Writes every section that there is something to say in."""
    analysis = findings.analysis
    found: list[Section | None] = [
        curves.section(findings.curves, analysis, theme),
        tuning.section(findings.tuning, analysis, theme),
        result.differences(analysis, theme),
        result.yardsticks(analysis),
        effects.section(findings.effects, analysis, theme),
        power.section(findings.power, analysis, theme),
        outcomes.section(findings.divergence, analysis, theme),
        sensitivity.section(findings.sensitivity, analysis, theme),
        speed.section(findings.speed, analysis, theme),
        probes.section(findings.probes, analysis, theme),
        audit.section(findings.audit, analysis),
    ]
    return [section for section in found if section is not None]


def sections_across(found: list[Findings], theme: style.Theme) -> list[Section]:
    """Writes what holds several scales together; nothing of a sweep without scales."""
    analyses = tuple(findings.analysis for findings in found)
    across: list[Section | None] = [
        result.at_every_scale(analyses, theme),
        ladder.section(found[0].ladder, analyses, theme),
    ]
    return [section for section in across if section is not None]
