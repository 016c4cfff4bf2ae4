"""Trains runs one after another, compiling once for all that share a program."""

from pathlib import Path
from typing import Any

from jtransformer import data, records
from jtransformer.data.vocabularies import check_vocabularies
from jtransformer.spec import DataSpec, RunSpec, fingerprint
from jtransformer.spec.objectives import Objective
from jtransformer.training.directory import claim
from jtransformer.training.hooks import NO_HOOKS, Hooks
from jtransformer.training.loop import Loop
from jtransformer.training.program import Program, program_key


class Trainer:
    """Holds what runs share: texts and compiled programs."""

    def __init__(self, hooks: Hooks = NO_HOOKS):
        self._hooks = hooks
        self._corpora: dict[tuple[DataSpec, Objective], data.Corpus] = {}
        self._programs: dict[RunSpec, Program] = {}

    def identify(self, spec: RunSpec) -> str:
        """Returns a run's fingerprint.

        Raises:
            SpecError: If its text cannot be read, is too short, or does not fit its model.
        """
        return fingerprint(spec, self._corpus(spec).sha256, records.SCHEMA)

    def train(self, spec: RunSpec, directory: Path) -> dict[str, Any]:
        """Trains a run to its end, from its newest checkpoint where there is one.

        Args:
            spec: The run.
            directory: Its own directory; made if missing.

        Returns:
            The content of its status.json; a complete run is not touched again.

        Raises:
            SpecError: If the text is too short, or the directory belongs to another run.
            Interrupted: If `should_stop` became true; the state is saved.
        """
        identity, corpus = self.identify(spec), self._corpus(spec)
        files = records.RunFiles(directory)
        claim(files, spec, corpus, identity)
        if files.status.exists():
            return records.read_json(files.status)
        key = program_key(spec)
        if key not in self._programs:
            self._programs[key] = Program(spec)
        return Loop(spec, files, corpus, self._programs[key], self._hooks).train(identity)

    def _corpus(self, spec: RunSpec) -> data.Corpus:
        """Returns what a run reads, once it is known to fit."""
        key = spec.data, spec.objective
        if key not in self._corpora:
            self._corpora[key] = data.load(*key)
        data.check_batch(self._corpora[key], spec)
        check_vocabularies(self._corpora[key], spec)
        return self._corpora[key]


def run(
    run_specs: list[RunSpec], workdir: Path, *, hooks: Hooks = NO_HOOKS
) -> list[dict[str, Any]]:
    """Trains runs, each in its own directory of `workdir`; running it again continues.

    Args:
        run_specs: The runs; those that share a program are compiled once.
        workdir: Holds one directory a run, named by seed and fingerprint.
        hooks: What to report and when to stop.

    Returns:
        The status of each run, in order.

    Raises:
        SpecError: If the text of a run cannot be used, before any is trained.
        Interrupted: If `should_stop` became true; the state is saved.
    """
    trainer = Trainer(hooks)
    identities = [trainer.identify(spec) for spec in run_specs]
    return [
        trainer.train(spec, Path(workdir) / f"seed{spec.seed}-{identity[:8]}")
        for spec, identity in zip(run_specs, identities, strict=True)
    ]
