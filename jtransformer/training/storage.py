"""How orbax is used: what it keeps, how its processes wait, what it is given and reads into."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy as policy

from jtransformer.training.digests import is_spread

NEWEST_KEPT = 2
METRIC = "validation_nll"


def reader() -> ocp.Checkpointer:
    """Returns what reads alone: a process that cannot read leaves no other one waiting."""
    own = jax.process_index()
    return ocp.Checkpointer(
        ocp.CompositeCheckpointHandler(),
        multiprocessing_options=ocp.options.MultiprocessingOptions(
            primary_host=own, active_processes={own}
        ),
    )


def _barrier() -> Any:
    """Returns how processes wait for each other's part of a save; None is the way of orbax.

    orbax has a process whose save has failed wait for the others before it says so; they are
    waiting for that process.
    """
    if jax.process_count() == 1:
        return None
    wait = ocp.multihost.get_barrier_sync_fn()

    def unless_failed(*, key: str, timeout_ms: int) -> None:
        # It is called in a `finally`, where an exception that is on its way out is known.
        if sys.exc_info()[1] is None:
            wait(key=key, timeout_ms=timeout_ms)

    return unless_failed


def options() -> ocp.CheckpointManagerOptions:
    """Returns what is kept: the newest checkpoints and the best one."""
    keep_best = policy.BestN(
        get_metric_fn=lambda metrics: metrics[METRIC],
        reverse=True,
        n=1,
        keep_checkpoints_without_metrics=False,
    )
    return ocp.CheckpointManagerOptions(
        # Newest and best, since the best alone would delete what a resumed run needs.
        preservation_policy=policy.AnyPreservationPolicy([policy.LatestN(NEWEST_KEPT), keep_best]),
        best_fn=lambda metrics: metrics[METRIC],
        best_mode="min",
        enable_async_checkpointing=True,
        async_options=ocp.AsyncOptions(barrier_sync_fn=_barrier()),
    )


def copied(leaf: Any) -> Any:
    """Copies an array, since the next update uses its buffers again while orbax still writes."""
    if not is_spread(leaf):
        return np.array(jax.device_get(leaf))
    # Of an accelerator's memory orbax itself has a copy before it returns; of a CPU's a view.
    return jnp.copy(leaf) if leaf.sharding.mesh.devices.flat[0].platform == "cpu" else leaf


def target(leaf: Any) -> Any:
    """Returns what orbax is to read an array into."""
    if is_spread(leaf):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
    return np.zeros(leaf.shape, leaf.dtype)
