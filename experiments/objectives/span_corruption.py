"""Does an encoder-decoder fill in dropped spans?

Question: on bytes of the King James Bible, are dropped spans and their sentinels predicted better
than by the frequencies of both alone? Dropped are 15 % of the bytes, in spans of 3 on average
(Raffel et al. 2019, https://arxiv.org/abs/1910.10683).

Prediction: at least half a nat per byte below the unigram baseline after 2,000 updates.

Command: jtransformer train --config experiments/objectives/span_corruption.py --workdir runs/spans
         python experiments/objectives/beats_unigram.py runs/spans

Cost: 2 layers, width 64, 2,000 updates of 32 rows of 64 bytes: about 2 minutes on two CPU cores.

Expected result: RESULT.md, beside this file.
"""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    """The preset, trained a little longer."""
    config = to_config(presets.span_corruption(width=64, layers=2))
    config.model.scale_embedding = True
    config.training.steps = 2000
    config.training.batch_size = 32
    config.training.evaluate_every = 500
    config.training.checkpoint_every = 500
    return config
