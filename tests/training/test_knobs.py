"""Tests that every field of TrainingSpec does what it says: a field without a case fails."""

import dataclasses

import jax
import pytest
import tiny_run

from jtransformer import data, records
from jtransformer.spec import Patience, TrainingSpec
from jtransformer.training import Hooks, Trainer, hyperparameters, parameter_key

PROGRAMS = {}


def losses(found):
    return [found["result"][name] for name in ("train_nll", "validation_nll", "test_nll")]


def evaluated(found):
    return [row["step"] for row in found["rows"] if row["validation_nll"] is not None]


LIVE = {
    "steps": (8, lambda found: found["result"]["steps"]),
    "batch_size": (5, losses),
    "log_every": (1, lambda found: [row["step"] for row in found["rows"]]),
    "evaluate_every": (5, evaluated),
    "checkpoint_every": (3, lambda found: found["checkpoints"]),
    "evaluation_batch_size": (3, lambda found: found["evaluation_rows"]),
    "microbatches": (2, lambda found: found["program"]().count("scan[")),
    "average_decay": (0.5, lambda found: losses(found)[1:]),
    "probe_steps": ((0, 3), lambda found: found["probes"]),
    "early_stopping": (
        Patience(evaluations=1, least_gain=9.0),
        lambda found: found["result"]["stopped_early_at"],
    ),
}
QUIET = ("log_every", "checkpoint_every", "evaluation_batch_size", "probe_steps", "microbatches")
"""What is looked at, and not what is trained; and parts of a batch, which are the whole."""


def trained(spec, directory):
    trainer = Trainer(Hooks())
    trainer._programs = PROGRAMS
    program = tiny_run.program(spec, PROGRAMS)
    status, files = trainer.train(spec, directory), records.RunFiles(directory)
    corpus = data.load(spec.data)
    first = next(data.evaluation_batches(corpus, "validation", spec))

    def written():
        state = jax.eval_shape(program._start, parameter_key(0))
        batch = data.TrainingBatches(corpus, spec)[0]
        return str(jax.make_jaxpr(program.step)(state, batch, hyperparameters(spec)))

    return {
        "program": written,
        "result": status["result"],
        "rows": records.read_rows(files.metrics),
        "checkpoints": sorted(int(path.name) for path in files.checkpoints.iterdir()),
        "evaluation_rows": len(first.tokens),
        "probes": [path.name for path in files.probed()],
    }


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    root = tmp_path_factory.mktemp("base")
    spec = tiny_run.run_spec(root, evaluate_every=4, checkpoint_every=7)
    return spec, trained(spec, root / "run")


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(TrainingSpec)])
def test_live_every_field_changes_what_it_names(base, tmp_path, field):
    spec, before = base
    value, look = LIVE[field]
    changed = dataclasses.replace(spec.training, **{field: value})
    after = trained(dataclasses.replace(spec, training=changed), tmp_path / "run")
    assert look(after) != look(before)
    if field in QUIET:
        assert losses(after)[1:] == pytest.approx(losses(before)[1:], rel=1e-6)
