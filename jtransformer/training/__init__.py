"""Runs: the only state there is, from a spec to records and checkpoints."""

from jtransformer.training.averages import average
from jtransformer.training.checkpoints import Checkpoints
from jtransformer.training.choice import ExecutionChoice, Wish
from jtransformer.training.digests import describe, digest
from jtransformer.training.environment import check_same_environment, environment
from jtransformer.training.execution import LOOP, MODES, Execution
from jtransformer.training.given import save_given
from jtransformer.training.group import Ended
from jtransformer.training.hooks import Hooks, Interrupted
from jtransformer.training.hosts import is_first
from jtransformer.training.matrices import decayed, layer_matrix
from jtransformer.training.mesh import Arrangement, arrange, padded
from jtransformer.training.optimizer import transformation
from jtransformer.training.origins import Origin, read_start
from jtransformer.training.outcome import has_ended, has_stalled, is_evaluated
from jtransformer.training.partition import (
    divisions,
    partition,
    partition_optimizer,
    partition_parameters,
)
from jtransformer.training.probing import probe, probe_batch
from jtransformer.training.program import (
    Program,
    dropout_key,
    mean_nll,
    parameter_key,
    program_key,
)
from jtransformer.training.replicas import Replicas
from jtransformer.training.schedules import Hyperparameters, hyperparameters, learning_rate
from jtransformer.training.starting import begun, taken_over
from jtransformer.training.state import Tally, TrainState
from jtransformer.training.trainer import Trainer, run

__all__ = [
    "LOOP",
    "MODES",
    "Arrangement",
    "Checkpoints",
    "ExecutionChoice",
    "Ended",
    "Execution",
    "Hooks",
    "Hyperparameters",
    "Interrupted",
    "Origin",
    "Program",
    "Replicas",
    "Tally",
    "TrainState",
    "Trainer",
    "Wish",
    "arrange",
    "average",
    "check_same_environment",
    "decayed",
    "describe",
    "digest",
    "divisions",
    "dropout_key",
    "environment",
    "has_ended",
    "has_stalled",
    "begun",
    "hyperparameters",
    "is_evaluated",
    "is_first",
    "layer_matrix",
    "learning_rate",
    "mean_nll",
    "padded",
    "parameter_key",
    "partition",
    "partition_optimizer",
    "partition_parameters",
    "probe",
    "probe_batch",
    "program_key",
    "read_start",
    "run",
    "save_given",
    "taken_over",
    "transformation",
]
