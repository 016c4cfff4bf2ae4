"""How long the parts of a run take on this machine."""

import functools
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jtransformer.cli.corpora import Corpora
from jtransformer.spec import RunSpec

BLOCKS, BLOCK_SECONDS, MOST_UPDATES = 5, 0.2, 50
"""Updates are timed in blocks, each for about so long."""
WARM_UPDATES, EVALUATED, CHECKPOINTS = 3, 4, 3


class Timings(NamedTuple):
    """Seconds that the parts of a run take.

    Attributes:
        compile: Until the first update, evaluation and probe are done, beyond what those take.
        update: One update, its batch included; the median of the blocks.
        spread: Half of what the blocks differ by, relative to the median.
        evaluation: One batch of evaluation.
        checkpoint: One checkpoint.
        probe: One probe; 0 where the runs of the group have none.
        validation_batches: How many an evaluation has.
        test_batches: How many the test at the end of a run has.
    """

    compile: float
    update: float
    spread: float
    evaluation: float
    checkpoint: float
    probe: float
    validation_batches: int
    test_batches: int

    def run_seconds(self, spec: RunSpec) -> float:
        """Returns how long a run takes, once its program is compiled."""
        from jtransformer.training import is_evaluated

        plan = spec.training
        evaluated = [is_evaluated(plan, step) for step in range(1, plan.steps + 1)]
        saves = sum(
            found or step % plan.checkpoint_every == 0 for step, found in enumerate(evaluated, 1)
        )
        # The untrained model is measured on one batch.
        batches = 1 + sum(evaluated) * self.validation_batches + self.test_batches
        probes = len(plan.probe_steps) * self.probe
        work = plan.steps * self.update + batches * self.evaluation + saves * self.checkpoint
        return work + probes


def device() -> str:
    """Names what a measurement was made on."""
    import jax

    found = jax.devices()[0]
    return f"{jax.device_count()} x {found.device_kind} ({found.platform})"


def time_parts(spec: RunSpec, corpora: Corpora) -> Timings:
    """Makes a few updates, evaluations and checkpoints of a run; nothing of it is kept.

    Args:
        spec: Any run of the group.
        corpora: Where its data are read from.
    """
    import jax

    from jtransformer import data
    from jtransformer.training import Program, dropout_key, hyperparameters, mean_nll, parameter_key

    corpus, program = corpora.load(spec), Program(spec)
    numbers = hyperparameters(spec), dropout_key(spec)

    def update(state: Any, count: int) -> Any:
        with data.prefetch(data.TrainingBatches(corpus, spec), 0, count) as batches:
            for batch in batches:
                state = program.update(state, batch, *numbers)
        return jax.block_until_ready(state)

    def evaluate(state: Any) -> float:
        batches = data.evaluation_batches(corpus, "validation", spec)
        return mean_nll(program, state.evaluated, itertools.islice(batches, EVALUATED))

    begin = time.perf_counter()
    state = update(program.start(parameter_key(spec.seed)), 1)
    evaluate(state)
    compiled = time.perf_counter() - begin
    state, seconds = _timed(lambda: update(state, WARM_UPDATES))
    size = max(1, min(round(BLOCK_SECONDS * WARM_UPDATES / seconds), MOST_UPDATES))
    blocks = []
    for _ in range(BLOCKS):
        state, seconds = _timed(functools.partial(update, state, size))
        blocks.append(seconds / size)
    parts = ("validation", "test")
    counts = [sum(1 for _ in data.evaluation_batches(corpus, part, spec)) for part in parts]
    _, seconds = _timed(lambda: evaluate(state))
    once, middle = seconds / min(EVALUATED, counts[0]), statistics.median(blocks)
    first_probe, probed = _probe_seconds(program, state, corpus, spec)
    return Timings(
        compile=max(0.0, compiled - middle - seconds) + max(0.0, first_probe - probed),
        update=middle,
        spread=(max(blocks) - min(blocks)) / 2 / middle,
        evaluation=once,
        checkpoint=_checkpoint_seconds(state),
        probe=probed,
        validation_batches=counts[0],
        test_batches=counts[1],
    )


def _probe_seconds(program: Any, state: Any, corpus: Any, spec: RunSpec) -> tuple[float, float]:
    """Returns how long the first probe takes and the next one; 0 where nothing is probed."""
    if not spec.training.probe_steps:
        return 0.0, 0.0
    from jtransformer.training import hyperparameters, probe, probe_batch

    batch, hyper = probe_batch(corpus, spec), hyperparameters(spec)
    times = [_timed(lambda: probe(program, state, batch, hyper))[1] for _ in range(2)]
    return times[0], times[1]


def _checkpoint_seconds(state: Any) -> float:
    from jtransformer.records import RunFiles
    from jtransformer.training import Checkpoints

    with tempfile.TemporaryDirectory(prefix="jtransformer-plan-") as folder:

        def save() -> None:
            with Checkpoints(RunFiles(Path(folder)), "plan") as checkpoints:
                for step in range(CHECKPOINTS):
                    checkpoints.save(step, state, None)

        _, seconds = _timed(save)
    return seconds / CHECKPOINTS


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin
