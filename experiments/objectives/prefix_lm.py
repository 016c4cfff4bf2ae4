"""Does a prefix decoder continue a prefix that sees itself both ways?

Question: on bytes of the King James Bible, are the bytes behind a prefix predicted better than by
their frequencies alone? A prefix is a quarter to three quarters of a row (Raffel et al. 2019,
https://arxiv.org/abs/1910.10683).

Prediction: at least half a nat per byte below the unigram baseline after 2,000 updates.

Command: jtransformer train --config experiments/objectives/prefix_lm.py --workdir runs/prefix_lm
         python experiments/objectives/beats_unigram.py runs/prefix_lm

Cost: 2 layers, width 64, 2,000 updates of 32 rows of 64 bytes: about 2 minutes on two CPU cores.

Expected result: RESULT.md, beside this file.
"""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    """The preset, trained a little longer."""
    config = to_config(presets.prefix_lm(width=64, layers=2))
    config.model.scale_embedding = True
    config.training.steps = 2000
    config.training.batch_size = 32
    config.training.evaluate_every = 500
    config.training.checkpoint_every = 500
    return config
