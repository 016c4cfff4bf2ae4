"""Tiny runs whose figures are kept: whatever moves a number in a run moves one of them.

    python tests/golden_runs.py

records them again, in tests/golden/runs, and prints what moved. That is for a change which is meant
to move results; it is named under "Changes to results" in CHANGELOG.md.

Each family makes a few updates by the compiled functions of `jtransformer.training`, and is
evaluated. Its figures stand in the order in which they are computed, so that the first that moved
says where to look: a batch, an initial value, the first loss (the model), the first gradient, or
the losses behind them (the optimizer and its schedule).
"""

import json
import math
import os
import pathlib
import tempfile
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

if __name__ == "__main__":
    # As under pytest, where tests/conftest.py says so; before anything imports jax.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tiny_run
from golden_families import UPDATES, Family, families
from quickly import quickly

from jtransformer import data
from jtransformer import functional as F
from jtransformer.data import Batch
from jtransformer.modules import build
from jtransformer.spec import Classifier, Embedder, RunSpec, TokenHead
from jtransformer.training import (
    Program,
    dropout_key,
    hyperparameters,
    learning_rate,
    mean_nll,
    parameter_key,
    transformation,
)
from jtransformer.training.state import empty_tally

FOLDER = pathlib.Path(__file__).parent / "golden/runs"
COMMAND = "python tests/golden_runs.py"
TOLERANCE = 1e-5
"""How far a figure may be from the recorded one, relative to it.

Training adds up in float32, and another compiler or processor adds in another order. With jaxlib
0.10 and 0.12, with the compiler's options of the tests and without, no loss was off by more than
3e-7 and no gradient by more than 1.9e-6, a fifth of this. The smallest mistakes that are planted in
tests/training/test_golden_runs.py move figures by 1e-4 and more: an epsilon of 1e-5 for 1e-6 by
7e-4, a beta2 of 0.951 for 0.95 by 1.2e-4. Checksums, which are whole numbers, must be equal.
"""
Figures = dict[str, float]
Programs = dict[Any, Any]


class Moved(NamedTuple):
    """A figure that is not what was recorded; None is none."""

    name: str
    was: float | None
    now: float | None

    @property
    def relative(self) -> float:
        """How far it moved, relative to what it was."""
        if self.was is None or self.now is None or self.was == 0 != self.now:
            return math.inf
        if self.was == self.now:
            return 0.0
        return (self.now - self.was) / abs(self.was)

    @property
    def is_beyond(self) -> bool:
        """Whether it is another figure; what is not a number always is."""
        if isinstance(self.was, int):
            return self.was != self.now
        return not abs(self.relative) <= TOLERANCE

    def __str__(self) -> str:
        if self.was is None:
            return f"{self.name}: was not there, is {self.now!r}"
        if self.now is None:
            return f"{self.name}: was {self.was!r}, is gone"
        return f"{self.name}: was {self.was!r}, is {self.now!r} ({self.relative:+.2e} of it)"


def compared(was: Figures, now: Figures) -> list[Moved]:
    """Returns the figures beyond the tolerance, in the order of computation."""
    pairs = [Moved(name, was.get(name), now.get(name)) for name in dict.fromkeys((*now, *was))]
    return [pair for pair in pairs if pair.is_beyond]


def message(family: str, found: list[Moved]) -> str:
    """Says what moved, and what is to be done."""
    shown = [f"  {pair}" for pair in found[:10]]
    if len(found) > len(shown):
        farthest = max(found, key=lambda pair: abs(pair.relative))
        shown.append(f"  … and {len(found) - len(shown)} more, the farthest {farthest}")
    return "\n".join(
        [
            f"{len(found)} figures of the golden run {family!r} moved by more than {TOLERANCE:g} "
            f"of themselves; the first of them to be computed is {found[0].name!r}:",
            *shown,
            f"If this is intended, run `{COMMAND}`, which records all of them again, and say in "
            'the section "Changes to results" of CHANGELOG.md what moves, by how much, and why '
            "that is right. If it is not, look for the cause where the first of them is computed: "
            "in the data (batch), the initial values (start), the model (loss of update 1), its "
            "backward pass (gradient of update 1), or the optimizer and its schedule (the rest).",
        ]
    )


def recorded(family: str) -> Figures:
    """Reads the figures of a family."""
    return json.loads((FOLDER / f"{family}.json").read_text(encoding="utf-8"))


def figures(family: Family, programs: Programs) -> Figures:
    """Trains a family and returns what there is to be seen.

    Args:
        family: What is trained.
        programs: What was compiled before; filled.
    """
    run = family.run
    corpus = data.load(run.data, run.objective)
    rows = data.TrainingBatches(corpus, run)
    batches = [rows[t] for t in range(UPDATES)]
    evaluated = next(iter(data.evaluation_batches(corpus, "validation", run)))
    found: Figures = {f"batch {t}: checksum": checksum(b) for t, b in enumerate(batches, 1)}
    found["batch of validation: checksum"] = checksum(evaluated)
    if isinstance(family.model.head, TokenHead):
        return found | dict(_with_tokens(tiny_run.program(run, programs), run, batches, evaluated))
    return found | dict(_with_answers(family, batches, evaluated))


def checksum(batch: Batch) -> int:
    """Returns a number that hardly any other batch has."""
    parts = [np.asarray(x) for x in batch if x is not None]
    return zlib.crc32(b"".join(x.astype("<i4").tobytes() for x in parts))


def _with_tokens(
    program: Program, run: RunSpec, batches: list[Batch], evaluated: Batch
) -> Iterator[tuple[str, float]]:
    """Trains on the objective of the run, by the functions that train every run."""
    state = program.start(parameter_key(run.seed))
    yield from _sizes(state.parameters)
    for update, batch in enumerate(batches, 1):
        state = program.update(state, batch, hyperparameters(run), dropout_key(run))
        tally, state = state.tally, state._replace(tally=empty_tally())
        yield f"update {update}: loss", float(tally.loss_sum) / float(tally.weight_sum)
        yield f"update {update}: norm of the gradient", float(tally.gradient_norm_sum)
    yield "validation: nll", mean_nll(program, state.evaluated, [evaluated])


def _with_answers(
    family: Family, batches: list[Batch], evaluated: Batch
) -> Iterator[tuple[str, float]]:
    """Trains a head that no objective of a run asks, on answers that follow from the labels."""
    run, model = family.run, build(family.model)
    numbers = hyperparameters(run)

    def loss(parameters: Any, batch: Batch) -> jax.Array:
        out = model.apply({"params": parameters}, jnp.asarray(batch.tokens), **batch.inputs())
        return _loss(family, out, jnp.asarray(batch.labels))

    def start(key: jax.Array) -> tuple[Any, Any]:
        parameters = model.init(key, jnp.zeros((1, run.data.length), jnp.int32))["params"]
        rule = transformation(run.optimizer, numbers, numbers.learning_rate)
        return parameters, rule.init(parameters)

    def update(parameters: Any, state: Any, batch: Batch, step: jax.Array) -> tuple[Any, ...]:
        value, gradient = jax.value_and_grad(loss)(parameters, batch)
        rate = learning_rate(run.schedule, step, numbers, width=family.model.width)
        rule = transformation(run.optimizer, numbers, rate)
        changes, state = rule.update(gradient, state, parameters)
        return optax.apply_updates(parameters, changes), state, value, optax.tree.norm(gradient)

    update, evaluate = quickly(update), quickly(loss)
    parameters, state = quickly(start)(parameter_key(run.seed))
    yield from _sizes(parameters)
    for step, batch in enumerate(batches, 1):
        parameters, state, value, norm = update(parameters, state, batch, jnp.asarray(step))
        yield f"update {step}: loss", float(value)
        yield f"update {step}: norm of the gradient", float(norm)
    yield "validation: loss", float(evaluate(parameters, evaluated))


def _loss(family: Family, out: Any, labels: jax.Array) -> jax.Array:
    head = family.model.head
    if isinstance(head, Embedder):
        # The first number of the vector is to be that of the row, from 0 to 1.
        wanted = jnp.arange(len(labels)) / len(labels)
        return jnp.mean(jnp.square(out.pooled[:, 0] - wanted))
    answers = labels[:, 0] if isinstance(head, Classifier) else labels
    sums = F.cross_entropy(out.logits, answers % head.classes)
    return sums.loss_sum / sums.weight_sum


def _sizes(parameters: Any) -> Iterator[tuple[str, float]]:
    """Yields the root mean square of every parameter where it starts."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(parameters):
        square = np.mean(np.square(np.asarray(leaf, np.float64)))
        yield f"start: {'/'.join(entry.key for entry in path)}", float(np.sqrt(square))


def main() -> None:
    """Records the figures of all families, and says what moved."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        for name, family in families(pathlib.Path(directory)).items():
            found, path = figures(family, {}), FOLDER / f"{name}.json"
            pairs = compared(recorded(name) if path.exists() else {}, found)
            for pair in pairs:
                print(f"{name}: {pair}")  # noqa: T201
            if pairs:
                path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            else:
                print(f"{name}: nothing moved")  # noqa: T201


if __name__ == "__main__":
    main()
