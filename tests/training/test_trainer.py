"""Tests for jtransformer.training.trainer: one run, whole, interrupted, resumed, refused."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_run
from quickly import quickly
from tiny_run import deterministic, stop_after

from jtransformer import data, records
from jtransformer.modules import build
from jtransformer.spec import JsonLines, OptimizerSpec, SpecError, WarmupCosine, from_tree
from jtransformer.training import Hooks, Interrupted, Trainer, mean_nll, parameter_key, run

PROGRAMS = {}


def train(spec, directory, **hooks):
    """Trains by a new trainer; what was compiled before is shared, as compiling takes seconds."""
    fresh = Trainer(Hooks(**hooks))
    fresh._programs = PROGRAMS
    tiny_run.program(spec, PROGRAMS)
    return fresh.train(spec, directory)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A finished run that nothing disturbed."""
    root = tmp_path_factory.mktemp("quiet")
    spec = tiny_run.run_spec(root)
    train(spec, root / "run")
    return spec, root / "run"


def test_rows_stand_at_every_log_and_evaluation_and_at_the_end(quiet):
    _, directory = quiet
    rows = deterministic(directory)[1]
    assert [row["step"] for row in rows] == [2, 4, 5, 6, 8, 10]
    assert [row["step"] for row in rows if row["validation_nll"] is not None] == [5, 10]
    assert [row["tokens"] for row in rows] == [64 * row["step"] for row in rows]


def test_result_is_the_last_step_and_names_the_best(quiet):
    status, rows = deterministic(quiet[1])
    result = status["result"]
    evaluated = [row for row in rows if row["validation_nll"] is not None]
    best = min(evaluated, key=lambda row: row["validation_nll"])
    assert status["state"] == "done" and result["steps"] == 10
    assert result["validation_nll"] == rows[-1]["validation_nll"]
    assert result["best_validation_nll"] == best["validation_nll"]
    assert result["best_step"] == best["step"]


def test_first_rows_loss_is_that_of_the_untrained_model(quiet, tmp_path):
    spec, _ = quiet
    spec = dataclasses.replace(
        spec, training=dataclasses.replace(spec.training, log_every=1, steps=2)
    )
    train(spec, tmp_path / "run")
    first = records.read_rows(records.RunFiles(tmp_path / "run").metrics)[0]
    batch = data.TrainingBatches(data.load(spec.data), spec)[0]
    start = tiny_run.program(spec, PROGRAMS).start(parameter_key(spec.seed))
    apply = quickly(build(spec.model).apply)
    logits = apply({"params": start.parameters}, jnp.asarray(batch.tokens)).logits
    logits = np.asarray(logits, np.float64)
    log_z = np.log(np.exp(logits).sum(-1))
    label = np.take_along_axis(logits, batch.labels[..., None], -1)[..., 0]
    np.testing.assert_allclose(first["train_nll"], np.mean(log_z - label), rtol=1e-5)


def test_the_rate_of_a_row_is_that_of_its_update(quiet):
    """2 updates of warm-up, then half a cosine over 8 to a tenth: its middle is at update 6."""
    rates = {row["step"]: row["learning_rate"] for row in deterministic(quiet[1])[1]}
    assert quiet[0].schedule == WarmupCosine(warmup_steps=2, final_fraction=0.1)
    for step, share in {2: 1.0, 6: 0.55, 10: 0.1}.items():
        np.testing.assert_allclose(rates[step], 1e-2 * share, rtol=1e-5)


def test_a_row_is_a_mean_over_tokens_and_not_over_updates(tmp_path):
    """LOSS-01: batches of few tokens count for less; a mean of their means would not see it."""
    lines = [json.dumps({"text": "ab " * (1 + number % 5)}) for number in range(90)]
    (tmp_path / "documents").write_text("\n".join(lines))
    spec = tiny_run.run_spec(tmp_path, steps=5, evaluate_every=5)
    documents = JsonLines(path=str(tmp_path / "documents"))
    spec = dataclasses.replace(
        spec,
        model=dataclasses.replace(spec.model, vocabulary=259),
        data=dataclasses.replace(spec.data, source=documents, rows="padded"),
    )
    found = []
    for every in (1, 5):
        changed = dataclasses.replace(spec.training, log_every=every)
        train(dataclasses.replace(spec, training=changed), tmp_path / str(every))
        found.append(deterministic(tmp_path / str(every))[1])
    fine, (coarse,) = found
    scored = np.diff([0, *(row["scored_tokens"] for row in fine)])
    assert len(set(scored)) > 1 and coarse["scored_tokens"] == scored.sum()
    for name in ("train_nll", "train_loss"):
        losses = np.array([row[name] for row in fine])
        np.testing.assert_allclose(coarse[name], losses @ scored / scored.sum(), rtol=1e-6)
        assert abs(coarse[name] - losses.mean()) > 1e-4


def test_a_run_is_made_again_from_its_record_alone(quiet, tmp_path):
    """SWEEP-07: the spec on disk is the whole run."""
    spec, directory = quiet
    recorded = from_tree(records.read_json(records.RunFiles(directory).spec)["spec"])
    assert recorded == spec
    train(recorded, tmp_path / "again")
    assert deterministic(tmp_path / "again") == deterministic(directory)


def test_evaluation_scores_every_byte_once_whatever_the_batch_size(quiet):
    spec, _ = quiet
    program, corpus = tiny_run.program(spec, PROGRAMS), data.load(spec.data)
    start, found = program.start(parameter_key(spec.seed)).parameters, []
    for size in (1, 3, 8, 64):
        training = dataclasses.replace(spec.training, evaluation_batch_size=size)
        changed = dataclasses.replace(spec, training=training)
        batches = list(data.evaluation_batches(corpus, "validation", changed))
        assert sum(batch.weights.sum() for batch in batches) == len(corpus.validation) - 1
        found.append(mean_nll(program, start, batches))
    np.testing.assert_allclose(found, found[0], rtol=1e-6)


@pytest.mark.parametrize("stops", [(4,), (1, 1, 5), (9,), (0, 3), (5, 0, 2)], ids=str)
def test_stopped_anywhere_and_continued_equals_the_quiet_run(quiet, tmp_path, stops):
    spec, directory = quiet
    for updates in stops:
        with pytest.raises(Interrupted):
            train(spec, tmp_path / "run", should_stop=stop_after(updates))
    train(spec, tmp_path / "run")
    assert deterministic(tmp_path / "run") == deterministic(directory)


def test_rows_after_the_restored_step_are_written_once(quiet, tmp_path):
    spec, directory = quiet
    with pytest.raises(Interrupted):
        train(spec, tmp_path / "run", should_stop=stop_after(6))
    metrics = records.RunFiles(tmp_path / "run").metrics
    with open(metrics, "a") as file:
        file.write(json.dumps({"step": 8, "train_nll": 99.0}) + '\n{"step": 9, "tra')
    train(spec, tmp_path / "run")
    assert deterministic(tmp_path / "run") == deterministic(directory)


@pytest.mark.parametrize("damage", ["gone", "garbage inside"])
def test_lost_rows_start_the_run_again_instead_of_changing_its_result(
    quiet, tmp_path, caplog, damage
):
    spec, directory = quiet
    train(spec, tmp_path / "run")
    files = records.RunFiles(tmp_path / "run")
    files.status.unlink()
    if damage == "gone":
        files.metrics.unlink()
    else:
        lines = files.metrics.read_text().splitlines()
        files.metrics.write_text("\n".join([lines[0], "garbage", *lines[2:]]) + "\n")
    train(spec, tmp_path / "run")
    assert deterministic(tmp_path / "run") == deterministic(directory)
    # Its checkpoints go too, and nobody is told that they are damaged.
    events = [row["event"] for row in records.read_rows(files.events)]
    assert events == ["rows of metrics are missing"] and "is damaged" not in caplog.text


def test_numerics_that_move_results_are_part_of_the_environment(quiet):
    found = records.read_json(records.RunFiles(quiet[1]).environment)
    assert found["jax_enable_x64"] is False
    assert {"jax_default_prng_impl", "jax_threefry_partitionable", "xla_flags"} <= set(found)


def test_a_short_run_that_improves_has_not_diverged(tmp_path):
    spec = tiny_run.run_spec(tmp_path, steps=4)
    slow = dataclasses.replace(spec, optimizer=OptimizerSpec(learning_rate=1e-4))
    status = train(slow, tmp_path / "run")
    assert status["state"] == "done" and status["result"]["validation_nll"] > math.log(256)


def test_a_kill_between_last_checkpoint_and_status_trains_nothing_again(quiet, tmp_path):
    spec, directory = quiet
    train(spec, tmp_path / "run")
    records.RunFiles(tmp_path / "run").status.unlink()
    updates = []
    train(spec, tmp_path / "run", on_row=lambda spec, row: updates.append(row))
    assert not updates
    assert deterministic(tmp_path / "run") == deterministic(directory)


def test_a_finished_run_is_not_touched(quiet):
    spec, directory = quiet
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    train(spec, directory)
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == before


def test_seeds_and_rates_share_one_compiled_program(tmp_path):
    spec = tiny_run.run_spec(tmp_path, steps=3)
    fresh = Trainer()
    tiny_run.program(spec, fresh._programs)
    for number, changed in enumerate(
        [
            spec,
            tiny_run.with_seed(spec, 1),
            dataclasses.replace(
                spec, optimizer=OptimizerSpec(learning_rate=1e-3, weight_decay=0.0)
            ),
            dataclasses.replace(spec, training=dataclasses.replace(spec.training, steps=4)),
        ]
    ):
        fresh.train(changed, tmp_path / str(number))
    (program,) = fresh._programs.values()
    assert program.update._cache_size() == 1
    assert program.evaluate._cache_size() == 1


def test_live_seed_and_rate_change_the_result(quiet, tmp_path):
    spec, directory = quiet
    expected = deterministic(directory)[0]["result"]["validation_nll"]
    changes = [
        tiny_run.with_seed(spec, 1),
        dataclasses.replace(spec, optimizer=OptimizerSpec(learning_rate=2e-2)),
        dataclasses.replace(spec, optimizer=OptimizerSpec(learning_rate=1e-2, weight_decay=0.5)),
        dataclasses.replace(spec, training=dataclasses.replace(spec.training, batch_size=5)),
    ]
    for number, changed in enumerate(changes):
        status = train(changed, tmp_path / str(number))
        assert status["result"]["validation_nll"] != expected


def test_a_diverged_run_is_an_outcome_with_its_step(tmp_path):
    spec = tiny_run.run_spec(tmp_path)
    wild = dataclasses.replace(
        spec, optimizer=OptimizerSpec(learning_rate=1e30, gradient_clip=None, weight_decay=1e30)
    )
    status = train(wild, tmp_path / "run")
    result = status["result"]
    assert status["state"] == "diverged"
    assert result["diverged_at"] == result["steps"] < 10
    assert result["validation_nll"] is None and result["test_nll"] is None


def test_worse_than_uniform_at_the_end_is_diverged(tmp_path):
    spec = tiny_run.run_spec(tmp_path, steps=2, log_every=1)
    hot = dataclasses.replace(spec, optimizer=OptimizerSpec(learning_rate=50.0, weight_decay=0.0))
    status = train(hot, tmp_path / "run")
    assert records.read_rows(records.RunFiles(tmp_path / "run").metrics)[-1][
        "validation_nll"
    ] > math.log(256)
    assert status["state"] == "diverged" and status["result"]["diverged_at"] == 2


def test_the_directory_of_another_run_is_refused(quiet):
    spec, directory = quiet
    with pytest.raises(SpecError, match="belongs to another run"):
        train(tiny_run.with_seed(spec, 5), directory)


def test_another_environment_is_refused_unless_accepted(quiet, tmp_path):
    spec, directory = quiet
    with pytest.raises(Interrupted):
        train(spec, tmp_path / "run", should_stop=stop_after(4))
    files = records.RunFiles(tmp_path / "run")
    environment = records.read_json(files.environment)
    records.write_json(files.environment, environment | {"jax": "0.0.1", "device_count": 8})
    with pytest.raises(SpecError, match="jax 0.0.1 -> .*device_count 8 -> "):
        train(spec, tmp_path / "run")
    train(spec, tmp_path / "run", accept_environment=True)
    assert deterministic(tmp_path / "run") == deterministic(directory)
    assert records.read_rows(files.events)[0]["before"]["jax"] == "0.0.1"


def test_environment_lists_what_is_decayed(quiet):
    environment = records.read_json(records.RunFiles(quiet[1]).environment)
    assert "layer_0/ffn/in/kernel" in environment["decayed_parameters"]
    assert not [name for name in environment["decayed_parameters"] if "norm" in name]


def test_run_names_directories_by_seed_and_identity(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "jtransformer.training.trainer.Program",
        lambda spec, arrangement: tiny_run.program(spec, PROGRAMS),
    )
    spec = tiny_run.run_spec(tmp_path, steps=2)
    statuses = run([spec, tiny_run.with_seed(spec, 1)], tmp_path / "runs")
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == [f"seed{k}-{status['fingerprint'][:8]}" for k, status in enumerate(statuses)]


def test_parameters_in_the_record_are_the_leaves(quiet):
    spec, directory = quiet
    tree = tiny_run.program(spec, PROGRAMS).start(parameter_key(0)).parameters
    counted = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))
    assert deterministic(directory)[0]["result"]["parameters"] == counted
