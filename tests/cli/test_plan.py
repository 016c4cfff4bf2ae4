"""Tests of `jtransformer plan`: figures that others count too, and nothing left behind."""

import json
import os
import pathlib

import pytest
import tiny_generation
import tiny_run
from sweep_fixture import noisy_losses, write_sweep

from jtransformer import accounting, records, stats
from jtransformer.cli import main
from jtransformer.cli.arguments import read_experiment
from jtransformer.cli.corpora import Corpora
from jtransformer.cli.plan_tables import print_plan
from jtransformer.cli.planning import read_plan
from jtransformer.cli.preflight import checkpoint_bytes
from jtransformer.cli.resolution import Noise, pilot_noise, resolvable
from jtransformer.cli.timings import Timings
from jtransformer.sweep import manifest

SWEEP = dict(
    scientific={"model.ffn": ("relu", "swiglu")},
    nuisance={"optimizer.learning_rate": (0.01, 0.02)},
    seeds=(0, 1),
    match=dict(equal="parameters", by="model.ffn_width", multiple_of=1, tolerance=0.02),
)


@pytest.fixture
def config(tmp_path):
    return tiny_run.config_file(tmp_path, SWEEP, ffn="relu")


def planned(config):
    """Returns the plan of the sweep."""
    return read_plan(read_experiment(pathlib.Path(config), []), Corpora())


def asked(capsys, config, *more):
    capsys.readouterr()
    assert main(["plan", "--config", str(config), "--json", *map(str, more)]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *argv):
    assert main(["plan", *map(str, argv)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_figures_are_those_of_the_runs(capsys, config):
    found, plan = asked(capsys, config), planned(config)
    sizes = [accounting.parameters(arm.spec.model).total for arm in plan.arms]
    assert [arm["parameters"] for arm in found["arms"]] == sizes
    assert [arm["runs"] for arm in found["arms"]] == [4, 4]
    assert (found["runs"], found["complete"], found["later_runs"]) == (8, 0, False)
    # Runs that differ in seed and learning rate alone share a program.
    assert [(group["arms"], group["runs"]) for group in found["groups"]] == [
        (["relu"], 4),
        (["swiglu"], 4),
    ]
    assert [group["updates"] for group in found["groups"]] == [40, 40]
    memory = accounting.memory(plan.cells[0].spec)
    assert found["groups"][0]["memory_bytes"]["total"] == memory.total
    assert found["groups"][0]["memory_bytes"]["optimizer"] == memory.optimizer
    assert found["disk_bytes"] == sum(checkpoint_bytes(cell.spec) for cell in plan.cells)
    assert found["tokens"] == 8 * 10 * 4 * 16
    per_token = [arm["training_flops_per_token"] for arm in found["arms"]]
    assert found["training_flops"] == sum(per_token) * found["tokens"] // 2
    assert found["seconds"] is None and found["groups"][0]["measured"] is None


def test_nothing_is_written_and_all_is_shown(capsys, config, tmp_path):
    before = sorted(os.listdir(tmp_path))
    words = ["--config", str(config), "--workdir", str(tmp_path / "out"), "--noise", "0.01"]
    assert main(["plan", *words]) == 0
    assert sorted(os.listdir(tmp_path)) == before
    text = capsys.readouterr().out
    for words in (
        "2 arms, 8 runs", "relu (baseline)", "ffn_width", "Δ parameters",
        "2 groups of runs that share a program", "time: not measured; add --measure",
        "smallest difference that 2 seeds resolve:", "1 comparisons, noise sd 0.0100, --noise",
    ):  # fmt: skip
        assert words in text, words


def test_a_name_is_no_markup(capsys, config):
    record = manifest(planned(config), {"title": "", "question": "", "command": "", "data": {}})
    record["arms"][1]["name"] = "[red]"
    print_plan(record)
    assert "[red]" in capsys.readouterr().out


def test_what_is_complete_is_left_out(capsys, config, tmp_path):
    plan, workdir = planned(config), tmp_path / "out"
    about = {"title": "", "question": "", "command": "", "data": {}}
    workdir.mkdir()
    records.write_json(workdir / "sweep.json", manifest(plan, about))
    run = workdir / plan.cells[0].directory
    run.mkdir(parents=True)
    status = dict.fromkeys(records.STATUS_PARTS) | {"state": "done"}
    status["fingerprint"] = plan.cells[0].fingerprint
    records.write_json(run / "status.json", status)
    found = asked(capsys, config, "--workdir", workdir)
    assert found["complete"] == 1
    assert [group["unfinished"] for group in found["groups"]] == [3, 4]
    other = ["--config", config, "--workdir", workdir, "--config.training.steps=11"]
    assert "holds another sweep" in refused(capsys, *other)


def test_time_is_measured_for_every_group(capsys, config):
    with tiny_generation.compiled_quickly():
        found = asked(capsys, config, "--measure")
    assert "cpu" in found["measured_on"]
    times = [Timings(**group["measured"]) for group in found["groups"]]
    assert all(min(one[:5]) >= 0 and one.update > 0 and one.evaluation > 0 for one in times)
    spec = planned(config).cells[0].spec
    expected = [one.compile + 4 * one.run_seconds(spec) for one in times]
    assert [group["seconds"] for group in found["groups"]] == pytest.approx(expected)
    assert found["seconds"] == pytest.approx(sum(expected))


@pytest.mark.slow
def test_live_and_null_probes_take_time_where_runs_are_probed(capsys, config):
    with tiny_generation.compiled_quickly():
        found = [
            asked(capsys, config, "--measure", *flags)["groups"][0]["measured"]["probe"]
            for flags in ([], ["--config.training.probe_steps=(0,10)"])
        ]
    assert found[0] == 0 < found[1]


def test_a_run_has_updates_evaluations_checkpoints_and_probes(tmp_path):
    spec = tiny_run.run_spec(tmp_path, probe_steps=(0, 7))
    seconds = dict(compile=0.0, spread=0.0, validation_batches=3, test_batches=2)
    names = ("update", "evaluation", "checkpoint", "probe")
    parts = [dict.fromkeys(names, 0.0) | {name: 1.0} for name in names]
    found = [Timings(**seconds, **part).run_seconds(spec) for part in parts]
    # Of 10 steps: evaluated behind 5 and 10, saved behind 3, 5, 6, 9 and 10.
    assert found == [10, 1 + 2 * 3 + 2, 5, 2]


def test_the_difference_is_the_one_that_the_page_will_name(tmp_path):
    effects = {"pre-gelu": 0.0, "pre-relu": 0.01, "pre-swiglu": -0.02}
    workdir = write_sweep(tmp_path / "pilot", noisy_losses(effects, seeds=4))
    analysis = stats.analyse(records.load_sweep(workdir))
    noise = pilot_noise(workdir)
    assert analysis.fit is not None and noise.sd == pytest.approx(analysis.fit.residual_sd)
    found = resolvable(noise, arms=[3], seeds=4)
    named = [arm.comparison.resolvable for arm in analysis.arms if arm.comparison]
    assert found["comparisons"] == 2
    assert named == pytest.approx([found["difference"]] * 2)


def test_laws_of_the_smallest_difference():
    unit, noisy = (resolvable(noise, arms=[3], seeds=3) for noise in (None, Noise(0.5, "")))
    assert unit["noise"] is None and noisy["difference"] == pytest.approx(unit["difference"] / 2)
    values = [value for value in unit["differences"].values() if value is not None]
    assert values == sorted(values, reverse=True) and unit["differences"][3] == unit["difference"]
    # More comparisons are one family, whatever scale they are made at.
    ladder = resolvable(None, arms=[3, 3], seeds=3)
    assert ladder["comparisons"] == 4 and ladder["difference"] > unit["difference"]
    alone = resolvable(None, arms=[3], seeds=1)
    assert alone["difference"] is None and alone["differences"][5] == unit["differences"][5]


def test_error_noise(capsys, config, tmp_path):
    both = ["--config", config, "--noise", 0.1, "--pilot", tmp_path]
    assert "give one of them" in refused(capsys, *both)
    assert "must be a positive number" in refused(capsys, "--config", config, "--noise", 0)
    assert "holds no sweep" in refused(capsys, "--config", config, "--pilot", tmp_path)
    lone = write_sweep(tmp_path / "lone", {("pre-gelu", 0.01, 0): 2.0, ("pre-relu", 0.01, 0): 2.1})
    assert "has no noise to estimate" in refused(capsys, "--config", config, "--pilot", lone)


def test_error_config(capsys, tmp_path):
    assert "--config is missing" in refused(capsys)
    config = tiny_run.config_file(tmp_path, SWEEP, ffn="relu")
    config.write_text(config.read_text().partition("def get_sweep")[0])
    assert "has no get_sweep()" in refused(capsys, "--config", config)
