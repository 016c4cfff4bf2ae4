"""Says by how much trained runs beat the frequencies of what they are asked for.

usage: python experiments/objectives/beats_unigram.py RUN [RUN ...]

For each run: its last validation loss, the loss of a predictor that knows only how often each token
is asked for in training, and the difference, in nats per scored token. The loss of a run is one
number of one seed; how it varies between seeds is not measured here.
"""

import sys
from pathlib import Path

from jtransformer import data, records
from jtransformer.spec import from_tree


def main(directories: list[str]) -> int:
    """Prints one line a run."""
    if not directories:
        print((__doc__ or "").strip())
        return 2
    for directory in directories:
        files = records.RunFiles(Path(directory))
        spec = from_tree(records.read_json(files.spec)["spec"])
        corpus = data.load(spec.data, spec.objective)
        unigram = data.yardsticks(corpus, spec).unigram
        reached = records.read_json(files.status)["result"]["validation_nll"]
        print(
            f"{directory}: {spec.objective.kind}, validation {reached:.4f}, unigram {unigram:.4f}, "
            f"better by {unigram - reached:.4f} nats per scored token"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
