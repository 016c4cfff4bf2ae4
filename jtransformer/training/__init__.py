"""Runs: the only state there is, from a spec to records and checkpoints."""

from jtransformer.training.checkpoints import Checkpoints, describe, digest
from jtransformer.training.environment import check_same_environment, environment
from jtransformer.training.optimizer import (
    Hyperparameters,
    adamw,
    decayed,
    hyperparameters,
    learning_rate,
)
from jtransformer.training.program import Program, Tally, TrainState, mean_nll, program_key
from jtransformer.training.trainer import Hooks, Interrupted, Trainer, parameter_key, run

__all__ = [
    "Checkpoints",
    "Hooks",
    "Hyperparameters",
    "Interrupted",
    "Program",
    "TrainState",
    "Trainer",
    "Tally",
    "adamw",
    "check_same_environment",
    "decayed",
    "describe",
    "digest",
    "environment",
    "hyperparameters",
    "learning_rate",
    "mean_nll",
    "parameter_key",
    "program_key",
    "run",
]
