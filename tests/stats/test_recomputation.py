"""The main table follows from `results.csv`, by a script that shares no line with it."""

import ast
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import recompute
from sweep_fixture import RATES, noisy_losses, scaled, write_sweep

from jtransformer.records import load_sweep
from jtransformer.stats import analyse_scales, results_table

SCRIPT = pathlib.Path(recompute.__file__)
EFFECTS = {"pre-gelu": 0.0, "pre-relu": 0.001, "pre-swiglu": -0.03, "post-gelu": 0.006}
LADDER = {
    **{"small-pre": 0.0, "small-gate": -0.01, "small-post": 0.001},
    **{"large-pre": -0.5, "large-gate": -0.5, "large-post": -0.47},
}
LOW, MIDDLE, HIGH = RATES


def unbalanced():
    """An arm lacks a seed, one diverges at its best rate, one at all, one has not begun."""
    losses = noisy_losses(EFFECTS | {"post-relu": 0.0, "post-swiglu": 0.01}, seeds=4)
    losses |= {("pre-relu", rate, 1): "pending" for rate in RATES}
    losses["post-gelu", MIDDLE, 2] = "diverged"
    losses |= {("post-relu", rate, 0): "diverged" for rate in RATES}
    return losses | {key: "pending" for key in losses if key[0] == "post-swiglu"}


SWEEPS = {
    "balanced": (noisy_losses(EFFECTS, seeds=5), {}, ["pre-gelu"]),
    "unbalanced": (unbalanced(), {}, ["pre-gelu"]),
    "scales": (noisy_losses(LADDER), scaled(LADDER), ["small-pre", "large-pre"]),
}


@pytest.fixture(scope="module", params=list(SWEEPS))
def sweep(request, tmp_path_factory):
    losses, manifest, baselines = SWEEPS[request.param]
    workdir = write_sweep(tmp_path_factory.mktemp("recomputed"), losses, **manifest)
    record = load_sweep(workdir)
    results = workdir / "results.csv"
    results.write_text(results_table(record).to_csv(index=False))
    return record, results, baselines


def test_the_script_knows_numpy_alone():
    nodes = list(ast.walk(ast.parse(SCRIPT.read_text())))
    plain = [node for node in nodes if isinstance(node, ast.Import)]
    imported = {alias.name for node in plain for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported == {"argparse", "csv", "math", "sys", "pathlib", "numpy"}


def test_the_main_table_is_recomputed_to_1e9(sweep):
    record, results, baselines = sweep
    table = recompute.main_table(results, baselines, ["learning_rate"])
    arms = [arm for analysis in analyse_scales(record) for arm in analysis.arms]
    assert [arm.name for arm in arms] == list(table)
    compared = 0
    for arm in arms:
        mine = table[arm.name]
        rate = None if arm.choice is None else arm.choice.nuisance["optimizer.learning_rate"]
        assert (None if mine["setting"] is None else float(mine["setting"][0])) == rate
        theirs = {}
        if arm.mean is not None:
            theirs |= {"mean": arm.mean.value, "half_width": arm.mean.half_width}
        if arm.comparison is not None:
            model = arm.comparison.model
            names = ("standard_error", "low", "high", "p")
            theirs |= {name: getattr(model, name) for name in names}
            theirs |= {"difference": model.value, "p_holm": arm.comparison.p_adjusted}
            compared += 1
        assert mine.keys() - {"setting"} == theirs.keys()
        for name, value in theirs.items():
            np.testing.assert_allclose(mine[name], value, rtol=0, atol=1e-9, err_msg=name)
    assert compared >= 3


def test_the_results_have_every_digit(sweep):
    record, results, _ = sweep
    _, *lines = results.read_text().splitlines()
    assert len(lines) == len(record.runs)
    header = results.read_text().splitlines()[0].split(",")
    for run, line in zip(record.runs, lines, strict=True):
        written = dict(zip(header, line.split(","), strict=True))
        for name in ("train_nll", "validation_nll", "best_validation_nll"):
            kept = None if run.status is None else run.status["result"][name]
            assert (float(written[name]) if written[name] else None) == kept


def test_the_script_runs_by_itself(sweep):
    _, results, baselines = sweep
    given = [word for name in baselines for word in ("--baseline", name)]
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(results), *given, "--tuned", "learning_rate"],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0 and ran.stdout.count("p_holm=") >= 3, ran.stderr


@pytest.mark.parametrize("df, critical", [(1, 12.7062), (2, 4.3027), (5, 2.5706), (30, 2.0423)])
def test_the_series_of_t_by_a_printed_table(df, critical):
    np.testing.assert_allclose(recompute.t_critical(df), critical, atol=5e-5)
    assert math.isclose(recompute.t_two_sided(critical, df), 0.05, abs_tol=1e-5)
