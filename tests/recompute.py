"""Computes the main table of a report once more, from its `results.csv` with NumPy alone.

    python tests/recompute.py out/report/results.csv --baseline pre-gelu --tuned learning_rate

Nothing of this project, and no library of statistics or tables takes part: choices are made from
the rows, the arm + seed model is solved by its normal equations, the t distribution is the finite
series of Abramowitz and Stegun, 26.7.3 and 26.7.4, and Holm's p follow from their definition. Of a
sweep with scales `--baseline` is given once for each.
"""

import argparse
import csv
import math
import sys
from pathlib import Path

import numpy as np

FINISHED = ("done", "diverged")


def t_two_sided(t, df):
    """P(|T| > t) for Student's t with a whole number of degrees of freedom."""
    angle = math.atan(abs(t) / math.sqrt(df))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(df // 2):
        total += term
        term *= cosine**2 * ((2 * k + 2) / (2 * k + 3) if odd else (2 * k + 1) / (2 * k + 2))
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return 1 - inside


def t_critical(df):
    """The t that is exceeded, on either side, with probability 5 %: by bisection."""
    low, high = 0.0, 1e3
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, df) > 0.05 else (low, middle)
    return (low + high) / 2


def choose(rows, tuned):
    """The chosen setting of one arm and its rows; None while no run is finished."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in tuned), []).append(row)
    finished = {
        key: [row for row in group if row["state"] in FINISHED] for key, group in groups.items()
    }
    most = max(len(group) for group in finished.values())
    if not most:
        return None

    def badness(key):
        losses = [float(r["validation_nll"]) for r in finished[key] if r["state"] == "done"]
        return len(finished[key]) - len(losses), np.mean(losses) if losses else math.inf

    key = min((key for key in finished if len(finished[key]) == most), key=badness)
    return key, finished[key]


def fit(losses, baseline):
    """Differences to the baseline with their standard errors, and the degrees of freedom."""
    arms, seeds = list(losses), sorted({seed for by_seed in losses.values() for seed in by_seed})
    cells = [(arm, seed) for arm in arms for seed in losses[arm]]
    y = np.array([losses[arm][seed] for arm, seed in cells])
    design = np.zeros((len(y), len(arms) + len(seeds) - 1))
    for row, (arm, seed) in enumerate(cells):
        design[row, arms.index(arm)] = 1
        if seed != seeds[0]:
            design[row, len(arms) + seeds.index(seed) - 1] = 1
    inverse = np.linalg.inv(design.T @ design)
    effects = inverse @ design.T @ y
    df = len(y) - design.shape[1]
    variance = ((y - design @ effects) ** 2).sum() / df
    base = arms.index(baseline)
    found = {}
    for arm in arms:
        if arm != baseline:
            contrast = np.zeros(len(effects))
            contrast[arms.index(arm)], contrast[base] = 1, -1
            error = math.sqrt(variance * (contrast @ inverse @ contrast))
            found[arm] = (contrast @ effects, error)
    return found, df


def holm(p_values, comparisons):
    adjusted, largest = {}, 0.0
    for rank, (arm, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (comparisons - rank) * p))
        adjusted[arm] = largest
    return adjusted


def main_table(path, baselines, tuned):
    """One dict per arm: setting, mean, half width, and against the baseline what is known of it.

    Args:
        path: `results.csv`.
        baselines: The baseline, or that of each scale.
        tuned: Headings of the tuned settings.
    """
    with Path(path).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = list(dict.fromkeys(row["arm"] for row in rows))
    by_arm = {name: [row for row in rows if row["arm"] == name] for name in names}
    scale = {name: by_arm[name][0].get("scale") for name in names}
    table, losses = {}, {}
    for name in names:
        chosen = choose(by_arm[name], tuned)
        table[name] = {"setting": chosen[0] if chosen else None}
        if not chosen or any(row["state"] == "diverged" for row in chosen[1]):
            continue
        losses[name] = {int(row["seed"]): float(row["validation_nll"]) for row in chosen[1]}
        values = np.array(list(losses[name].values()))
        table[name]["mean"] = values.mean()
        if len(values) > 1:
            error = values.std(ddof=1) / math.sqrt(len(values))
            table[name]["half_width"] = t_critical(len(values) - 1) * error
    raw = {}
    for baseline in baselines:
        of_scale = {name: losses[name] for name in losses if scale[name] == scale[baseline]}
        found, df = fit(of_scale, baseline)
        for name, (difference, error) in found.items():
            raw[name] = t_two_sided(difference / error, df)
            half = t_critical(df) * error
            table[name] |= {
                "difference": difference,
                "standard_error": error,
                "low": difference - half,
                "high": difference + half,
                "p": raw[name],
            }
    for name, p in holm(raw, len(names) - len(baselines)).items():
        table[name]["p_holm"] = p
    return table


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results")
    parser.add_argument("--baseline", action="append", required=True)
    parser.add_argument("--tuned", action="append", default=[])
    given = parser.parse_args()
    for name, figures in main_table(given.results, given.baseline, given.tuned).items():
        line = "\t".join([name, *(f"{key}={value}" for key, value in figures.items())])
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
