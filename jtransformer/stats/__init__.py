"""Statistics of a sweep: records in, tables and verdicts out; no JAX, no files written."""

from jtransformer.stats.additive import (
    LEVEL,
    POWER,
    AdditiveFit,
    fit_additive,
    holm,
    mean_estimate,
    paired_t,
    resolvable_difference,
)
from jtransformer.stats.analysis import analyse, analyse_scales, at_scales
from jtransformer.stats.curves import (
    difference_curves,
    learning_curves,
    mean_learning_curves,
    mean_nuisance_curves,
    nuisance_curves,
)
from jtransformer.stats.estimates import (
    Analysis,
    ArmAnalysis,
    Choice,
    Comparison,
    Count,
    Edge,
    Estimate,
    ModelFit,
    RungCount,
    Verdict,
)
from jtransformer.stats.fairness import Fairness, fairness
from jtransformer.stats.tables import bits, results_table, timings_table

__all__ = [
    "LEVEL",
    "POWER",
    "AdditiveFit",
    "Analysis",
    "ArmAnalysis",
    "Choice",
    "Comparison",
    "Count",
    "Edge",
    "Estimate",
    "Fairness",
    "ModelFit",
    "RungCount",
    "Verdict",
    "analyse",
    "analyse_scales",
    "at_scales",
    "bits",
    "difference_curves",
    "fairness",
    "fit_additive",
    "holm",
    "learning_curves",
    "mean_estimate",
    "mean_learning_curves",
    "mean_nuisance_curves",
    "nuisance_curves",
    "paired_t",
    "resolvable_difference",
    "results_table",
    "timings_table",
]
