"""What the runs of a sweep read, held against the runs before any is trained."""

from typing import Any

from jtransformer.cli.starts import Starts
from jtransformer.spec import RunSpec
from jtransformer.sweep import Plan


class Corpora:
    """What the runs of a sweep read, each read once.

    Attributes:
        starts: What they start from.
    """

    def __init__(self):
        self._corpora: dict[Any, Any] = {}
        self.starts = Starts()

    def sha256(self, spec: RunSpec) -> str:
        """Returns the hash of what a run reads."""
        return self.load(spec).sha256

    def check(self, plan: Plan) -> None:
        """Refuses what cannot fill a batch of some cell, does not fit its model, or starts none."""
        from jtransformer import data
        from jtransformer.data.vocabularies import check_vocabularies

        for cell in plan.cells:
            corpus = self.load(cell.spec)
            data.check_batch(corpus, cell.spec)
            check_vocabularies(corpus, cell.spec)
            self.starts.taken_over(cell.spec, corpus.tokenizer.sha256)

    def taken_over(self, plan: Plan) -> dict[str, dict[str, Any]]:
        """Returns what each arm that does not start anew takes over; see `training.taken_over`."""
        tokenizer = self.load(plan.base).tokenizer.sha256
        return self.starts.of_arms(plan, tokenizer)

    def describe(self, spec: RunSpec) -> dict[str, Any]:
        """Returns what the manifest says of the data, yardsticks included."""
        from jtransformer import data

        corpus = self.load(spec)
        simple = data.yardsticks(corpus, spec)
        return {
            "source": spec.data.source.kind,
            "sha256": corpus.sha256,
            **_sizes(corpus),
            "malformed": corpus.report.malformed,
            "too_long": corpus.report.too_long,
            "cut": corpus.report.cut,
            "loss_unit": spec.loss_unit,
            "unigram_nll": simple.unigram,
            "bigram_nll": simple.bigram,
            "xz_nll": simple.xz,
        }

    def load(self, spec: RunSpec) -> Any:
        """Returns what a run reads."""
        from jtransformer import data

        key = spec.data, spec.objective
        if key not in self._corpora:
            self._corpora[key] = data.load(*key)
        return self._corpora[key]


def _sizes(corpus: Any) -> dict[str, Any]:
    """Returns how much there is in all and in each part, named by the unit in which it counts."""
    import numpy as np

    from jtransformer import data

    parts = {"train": corpus.train, "validation": corpus.validation, "test": corpus.test}
    streams = [part.ids for part in parts.values() if isinstance(part, data.Stream)]
    unit = "examples" if not streams else "bytes" if streams[0].dtype == np.uint8 else "tokens"
    counts = {f"{name}_{unit}": len(part) for name, part in parts.items()}
    sizes = {"unit": unit, unit: sum(counts.values()), **counts}
    if streams:
        sizes[f"distinct_{unit}"] = len(np.unique(np.concatenate(streams)))
    return sizes
