"""Does an encoder fill in hidden bytes?

Question: on bytes of the King James Bible, are hidden bytes predicted better than by the
frequencies of bytes alone? Hidden are BERT's 15 % of the positions: 80 % of them are masked, 10 %
random, 10 % as they were (Devlin et al. 2018, https://arxiv.org/abs/1810.04805).

Prediction: at least half a nat per byte below the unigram baseline after 2,000 updates.

Command: jtransformer train --config experiments/objectives/masked_lm.py --workdir runs/masked_lm
         python experiments/objectives/beats_unigram.py runs/masked_lm

Cost: 2 layers, width 64, 2,000 updates of 32 rows of 64 bytes: about 2 minutes on two CPU cores.

Expected result: RESULT.md, beside this file.
"""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    """The preset, trained a little longer."""
    config = to_config(presets.encoder_lm(width=64, layers=2))
    config.model.scale_embedding = True
    config.training.steps = 2000
    config.training.batch_size = 32
    config.training.evaluate_every = 500
    config.training.checkpoint_every = 500
    return config
