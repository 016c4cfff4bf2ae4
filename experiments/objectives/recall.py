"""Do two layers recall what was bound to a key, several keys at a time?

Question: does a decoder of two layers solve multi-query associative recall (Arora et al. 2023,
https://arxiv.org/abs/2312.04927) on sequences that it has never seen?

Prediction: more than 99 % exactly right: an induction head (mark what stands behind a key, then
read what is marked with the key at hand) needs two layers.

Command: jtransformer train --config experiments/objectives/recall.py --workdir runs/recall
         jtransformer evaluate --workdir runs/recall --part test

Cost: width 64, 1,500 updates of 64 rows of 32 tokens: about two minutes on two CPU cores.

Expected result: RESULT.md, beside this file.
"""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    """A pre-LN decoder with rotary positions, asked for the values of keys."""
    config = to_config(presets.decoder_lm(width=64, layers=2))
    config.data.source.kind = "synthetic"
    config.data.source.synthetic.task = "recall"
    config.data.source.synthetic.symbols = 32
    config.data.source.synthetic.smallest = 6
    config.data.source.synthetic.largest = 6
    config.data.source.synthetic.examples = 50_000
    config.data.tokenizer.kind = "words"
    config.data.rows = "padded"
    config.data.length = 32
    config.model.vocabulary = 64
    config.model.position.kind = "rope"
    config.optimizer.learning_rate = 2e-3
    config.schedule.warmup_cosine.warmup_steps = 200
    config.training.steps = 1500
    config.training.batch_size = 64
    config.training.evaluate_every = 500
    config.training.checkpoint_every = 500
    return config
