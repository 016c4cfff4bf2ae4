"""Does the 2017 encoder-decoder solve a task that needs its cross-attention?

Question: after training on sequences of 4 to 12 symbols, does free-running greedy generation
reverse sequences that it has never seen?

Prediction: more than 99 % of held-out sequences exactly right, since one head that reads position
n + 1 - t is enough.

Command: jtransformer train --config experiments/objectives/reverse.py --workdir runs/reverse
         jtransformer evaluate --workdir runs/reverse --part test

Cost: 2 layers each of encoder and decoder, width 64, 3,000 updates of 64 pairs: about 6 minutes on
two CPU cores.

Expected result: RESULT.md, beside this file, with the picture of its cross-attention.
"""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    """Vaswani et al. 2017 in small, with its recipe."""
    config = to_config(presets.translation(width=64, layers=2))
    config.data.validation_fraction = 0.05
    config.data.test_fraction = 0.05
    config.training.steps = 3000
    config.training.batch_size = 64
    config.training.evaluate_every = 500
    config.training.checkpoint_every = 500
    return config
