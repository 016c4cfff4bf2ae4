"""Data of the curves: one row per point, ready to draw."""

import numpy as np
import pandas

from jtransformer.records import SweepRecord
from jtransformer.stats.estimates import Analysis
from jtransformer.stats.selection import is_chosen, is_number

_LEARNING = ["arm", "seed", "step", "tokens", "split", "nll"]
_NUISANCE = ["factor", "arm", "value", "seed", "nll", "state"]


def learning_curves(record: SweepRecord, analysis: Analysis) -> pandas.DataFrame:
    """Lists the losses along training of every arm's runs at its chosen setting.

    Returns:
        Columns arm, seed, step, tokens, split ("train" or "validation") and nll.
        A train loss is the mean over the batches since the row before, each before its update.
    """
    choices = {arm.name: arm.choice for arm in analysis.arms}
    rows = []
    for run in record.runs:
        arm, seed = run.cell["arm"], run.cell["seed"]
        if not is_chosen(run, choices[arm]):
            continue
        for row in run.metrics:
            for split in ("train", "validation"):
                nll = row[f"{split}_nll"]
                if nll is not None:
                    rows.append((arm, seed, row["step"], row["tokens"], split, nll))
    return pandas.DataFrame(rows, columns=pandas.Index(_LEARNING))


def mean_learning_curves(curves: pandas.DataFrame, seeds: int) -> pandas.DataFrame:
    """Averages learning curves over seeds, at the steps where every seed has a loss.

    Where a seed is missing (diverged, not yet there) there is no mean: the curve of the survivors
    would look like progress.

    Args:
        curves: As `learning_curves` returns them.
        seeds: How many seeds the sweep has.

    Returns:
        Columns arm, split, step, tokens, nll.
    """
    grouped = curves.groupby(["arm", "split", "step", "tokens"], sort=False)
    means = grouped.agg(nll=("nll", "mean"), present=("nll", "count")).reset_index()
    return means.query("present == @seeds").drop(columns="present")


def difference_curves(curves: pandas.DataFrame, baseline: str) -> pandas.DataFrame:
    """Subtracts the baseline's loss at the same seed and step from every other arm's.

    Args:
        curves: As `learning_curves` returns them.
        baseline: The arm to subtract; it is left out of the result.

    Returns:
        The columns of `curves`, where nll is the paired difference (negative: lower loss).
    """
    pairing = ["seed", "step", "tokens", "split"]
    reference = curves.query("arm == @baseline").drop(columns="arm")
    paired = curves.query("arm != @baseline").merge(
        reference, on=pairing, suffixes=("", "_baseline")
    )
    paired["nll"] -= paired.pop("nll_baseline")
    return paired


def nuisance_curves(record: SweepRecord, analysis: Analysis) -> pandas.DataFrame:
    """Lists final validation losses along each numeric nuisance factor, the others at the choice.

    What changes together with a factor is not held at the choice, and of drawn settings all stand
    there: no two have the others in common. Of a search by halving the first rung is listed, where
    every setting has the same steps.

    Returns:
        Columns factor (path), arm, value, seed, nll (NaN where the run diverged), state; finished
        runs only.
    """
    choices = {arm.name: arm.choice for arm in analysis.arms}
    together = [names.split(", ") for names in record.manifest["nuisance"]]
    rows = []
    for run in record.runs:
        choice, cell = choices[run.cell["arm"]], run.cell
        if choice is None or run.status is None or cell.get("rung", {"number": 1})["number"] > 1:
            continue
        nll = run.status["result"]["validation_nll"]
        for factor, value in cell["nuisance"].items():
            free = next((paths for paths in together if factor in paths), [factor])
            others = {k: v for k, v in cell["nuisance"].items() if k not in free}
            alike = analysis.drawn or all(choice.nuisance[k] == v for k, v in others.items())
            if is_number(value) and alike:
                loss = np.nan if nll is None else nll
                rows.append((factor, cell["arm"], value, cell["seed"], loss, run.state))
    return pandas.DataFrame(rows, columns=pandas.Index(_NUISANCE))


def mean_nuisance_curves(curves: pandas.DataFrame, seeds: int) -> pandas.DataFrame:
    """Averages over seeds, at the values where every seed finished without diverging.

    Args:
        curves: As `nuisance_curves` returns them.
        seeds: How many seeds the sweep has.

    Returns:
        Columns factor, arm, value, nll.
    """
    grouped = curves.groupby(["factor", "arm", "value"], sort=False)
    means = grouped.agg(nll=("nll", "mean"), present=("nll", "count")).reset_index()
    return means.query("present == @seeds").drop(columns="present")
