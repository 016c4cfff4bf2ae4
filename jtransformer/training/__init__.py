"""Runs: the only state there is, from a spec to records and checkpoints."""

from jtransformer.training.averages import average
from jtransformer.training.checkpoints import Checkpoints, describe, digest
from jtransformer.training.choice import Choice, Wish
from jtransformer.training.environment import check_same_environment, environment
from jtransformer.training.execution import LOOP, MODES, Execution
from jtransformer.training.group import Ended
from jtransformer.training.hooks import Hooks, Interrupted
from jtransformer.training.matrices import decayed, layer_matrix
from jtransformer.training.optimizer import transformation
from jtransformer.training.outcome import has_ended, has_stalled, is_evaluated
from jtransformer.training.probing import probe, probe_batch
from jtransformer.training.program import (
    Program,
    Tally,
    TrainState,
    dropout_key,
    mean_nll,
    parameter_key,
    program_key,
)
from jtransformer.training.schedules import Hyperparameters, hyperparameters, learning_rate
from jtransformer.training.trainer import Trainer, run

__all__ = [
    "LOOP",
    "MODES",
    "Checkpoints",
    "Choice",
    "Ended",
    "Execution",
    "Hooks",
    "Hyperparameters",
    "Interrupted",
    "Program",
    "Tally",
    "TrainState",
    "Trainer",
    "Wish",
    "average",
    "check_same_environment",
    "decayed",
    "describe",
    "digest",
    "dropout_key",
    "environment",
    "has_ended",
    "has_stalled",
    "hyperparameters",
    "is_evaluated",
    "layer_matrix",
    "learning_rate",
    "mean_nll",
    "parameter_key",
    "probe",
    "probe_batch",
    "program_key",
    "run",
    "transformation",
]
