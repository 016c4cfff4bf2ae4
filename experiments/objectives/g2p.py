"""How are English words pronounced?

Question: how near does a small encoder-decoder come to published grapheme-to-phoneme converters on
CMUdict, within half an hour of CPU time?

Prediction: a phoneme error rate below 12 % and a word error rate below 45 %. Published neighbours
with splits of their own: LSTM 7.63 and 28.61 % (Rao et al. 2015), encoder-decoder LSTM 7.53 and
29.00 % (Yao and Zweig 2015, https://arxiv.org/abs/1506.00196), Transformer 5.23 and 22.1 %
(Yolchuyeva et al. 2019, https://arxiv.org/abs/2004.06338).

Command: jtransformer train --config experiments/objectives/g2p.py --workdir runs/g2p
         jtransformer evaluate --workdir runs/g2p --part test

Cost: 2 layers each of encoder and decoder, width 128, 4,500 updates of 32 rows, each with the six
or seven words that fit into 64 letters: at most 30 CPU minutes.

Expected result: RESULT.md, beside this file.
"""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    """A pre-LN encoder-decoder over letters and phonemes."""
    config = to_config(presets.translation(width=128, layers=2))
    config.model.norm_placement = "pre"
    config.model.vocabulary = 96
    config.data.source.kind = "cmudict"
    config.data.rows = "packed"
    config.data.source_length = 64
    config.data.length = 64
    config.data.validation_fraction = 0.02
    config.data.test_fraction = 0.05
    config.optimizer.rule.kind = "adamw"
    config.optimizer.learning_rate = 2e-3
    config.schedule.kind = "warmup_cosine"
    config.schedule.warmup_cosine.warmup_steps = 300
    config.training.steps = 4500
    config.training.batch_size = 32
    config.training.log_every = 100
    config.training.evaluate_every = 1500
    config.training.checkpoint_every = 500
    return config
