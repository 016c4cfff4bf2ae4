"""The smallest run that is still a run: one layer, ten updates, a text made up here."""

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
from quickly import quickly

from jtransformer import records
from jtransformer.spec import (
    DataSpec,
    Encoder,
    MaskedLM,
    ModelSpec,
    OptimizerSpec,
    RunSpec,
    TextFile,
    TrainingSpec,
    WarmupCosine,
    to_tree,
)

WORDS = ["the ", "dog ", "walks ", "in ", "the ", "park\n", "and ", "sleeps "]


def text(directory: pathlib.Path, size: int = 6000) -> pathlib.Path:
    """Writes a text of seeded random words."""
    path = directory / "text.txt"
    if not path.exists():
        drawn = np.random.default_rng(0).choice(WORDS, size)
        path.write_text("".join(drawn)[:size])
    return path


def run_spec(directory: pathlib.Path, **training) -> RunSpec:
    """Returns a run over that text; keywords change its TrainingSpec."""
    plan = dict(
        steps=10,
        batch_size=4,
        log_every=2,
        evaluate_every=5,
        checkpoint_every=3,
        evaluation_batch_size=8,
    )
    return RunSpec(
        model=ModelSpec(width=16, layers=1, heads=2, ffn_width=32),
        data=DataSpec(
            source=TextFile(path=str(text(directory))),
            length=16,
            validation_fraction=0.1,
            test_fraction=0.1,
        ),
        optimizer=OptimizerSpec(learning_rate=1e-2),
        schedule=WarmupCosine(warmup_steps=2),
        training=TrainingSpec(**(plan | training)),
    )


def masked_run_spec(directory: pathlib.Path, **training) -> RunSpec:
    """Returns the same run as a masked language model; its mask is one id more."""
    spec = run_spec(directory, **training)
    model = dataclasses.replace(spec.model, stack=Encoder(), vocabulary=257)
    return dataclasses.replace(spec, model=model, objective=MaskedLM())


def program(spec: RunSpec, programs: dict) -> Any:
    """Returns a run's program, the one of its key in `programs`; compiled for few updates."""
    from jtransformer.training import Program, program_key

    key = program_key(spec), None
    if key not in programs:
        programs[key] = Program(spec, quickly)
    return programs[key]


def with_seed(spec: RunSpec, seed: int) -> RunSpec:
    """Returns the same run with another seed."""
    return dataclasses.replace(spec, seed=seed)


def stop_after(updates: int) -> Callable[[], bool]:
    """Returns a should_stop that asks to stop after so many updates."""
    asked = iter(range(10**9))
    return lambda: next(asked) >= updates


def deterministic(directory: pathlib.Path) -> tuple[dict, list[dict]]:
    """Returns the status and the rows of a run, without what a clock has in them."""
    files = records.RunFiles(directory)
    status = records.read_json(files.status)
    status.pop("timing")
    rows = records.read_rows(files.metrics)
    for row in rows:
        row.pop("tokens_per_second")
    return status, rows


CONFIG = '''"""Does a <b>wider</b> network help?"""

import json
import pathlib

from jtransformer.config import to_config
from jtransformer.spec import from_tree

HERE = pathlib.Path(__file__).parent


def get_config():
    return to_config(from_tree(json.loads((HERE / "run.json").read_text())))


def get_sweep():
    return {sweep!r}
'''


def config_file(directory: pathlib.Path, sweep: dict, **model) -> pathlib.Path:
    """Writes a config file around the tiny run; keywords change its ModelSpec."""
    spec = run_spec(directory)
    spec = dataclasses.replace(spec, model=dataclasses.replace(spec.model, **model))
    (directory / "run.json").write_text(json.dumps(to_tree(spec)))
    path = directory / "config.py"
    path.write_text(CONFIG.format(sweep=sweep))
    return path
