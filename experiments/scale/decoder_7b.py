"""Does Llama 2 7B train on a slice of 256 v5e chips?

Question: does an update of Llama 2 7B (6,738,415,616 parameters) over two million tokens fit 256
chips (16 GB each), how long does it take, what bounds it, and can all of that be known within a
quarter of an hour on a machine without a TPU?

Prediction: it fits. Parameters and moments are 81 GB in float32, 0.3 GB a chip when divided by
"fsdp"; a chip has 8,192 tokens, and gathering 13.5 GB of bfloat16 parameters for them three times
is less work than the products. Published runs of this size on v5e reach 46 to 67 % of the peak.

Command: jtransformer compile --config experiments/scale/decoder_7b.py --topology v5e:16x16
         jtransformer train --config experiments/scale/decoder_7b.py --workdir runs/7b
             --config.data.source.kind=text_file --config.data.source.text_file.path=TEXT
             --config.data.tokenizer.kind=file --config.data.tokenizer.file.path=TOKENIZER

TEXT is any file, read as one text; TOKENIZER is a tokenizer.json with at most 32,000 pieces.
Without them the model reads bytes of the embedded text: enough to try it, not to learn from.

Cost: `compile` needs no TPU, but the extra `tpu-plan`. Training is 2,000 billion tokens, as in
Touvron et al. 2023, https://arxiv.org/abs/2307.09288, whose rates are kept and whose batch is
halved.

Expected result: RESULT.md, beside this file; how the training ends has not been measured.
"""

from jtransformer.config import to_config
from jtransformer.spec import DataSpec, RunSpec, presets


def get_config():
    """Llama 2 7B, 512 rows of 4096 tokens an update."""
    config = to_config(RunSpec(model=presets.llama2_7b(), data=DataSpec(length=4096)))
    config.model.scan_layers = True
    config.model.rematerialize = "everything"
    for part in config.model.precision:
        config.model.precision[part] = "bfloat16"
    config.loss.chunk = 524_288
    config.optimizer.learning_rate = 3e-4
    config.schedule.warmup_cosine.warmup_steps = 2000
    config.training.batch_size = 512
    config.training.evaluation_batch_size = 256
    config.training.steps = 954_000
    config.training.evaluate_every = 1000
    config.training.checkpoint_every = 1000
    return config


def get_layout():
    """Rows are divided, and parameters and moments with them."""
    return dict(fsdp=256)
