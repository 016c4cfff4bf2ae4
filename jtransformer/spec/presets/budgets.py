"""What a run spends, and on what: functions from a run to a run."""

import dataclasses

from jtransformer.spec.precision import Precision
from jtransformer.spec.run import RunSpec


def with_budget(run: RunSpec, *, length: int, batch_size: int, steps: int) -> RunSpec:
    """Returns the run with rows, batches and steps of its own.

    A tenth of the steps warms the learning rate up. The run is evaluated and saved half way and at
    the end, and writes 20 rows of metrics.

    Args:
        run: With a schedule that warms up.
        length: Tokens of a row.
        batch_size: Rows of an update.
        steps: Updates; at least 20.
    """
    return dataclasses.replace(
        run,
        data=dataclasses.replace(run.data, length=length),
        schedule=dataclasses.replace(run.schedule, warmup_steps=steps // 10),
        training=dataclasses.replace(
            run.training,
            batch_size=batch_size,
            steps=steps,
            log_every=steps // 20,
            evaluate_every=steps // 2,
            checkpoint_every=steps // 2,
        ),
    )


def for_accelerator(run: RunSpec) -> RunSpec:
    """Returns the run with its layers scanned, which compiles once for all, and in bfloat16."""
    precision = Precision(stream="bfloat16", attention="bfloat16", ffn="bfloat16", head="bfloat16")
    model = dataclasses.replace(run.model, scan_layers=True, precision=precision)
    return dataclasses.replace(run, model=model)
