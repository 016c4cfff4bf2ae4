"""Does GPT-2's smallest model train on one TPU host?

Question: does an update of GPT-2 (124,439,808 parameters) over half a million tokens fit the eight
chips of one v5e host, how long does it take, and what bounds it?

Prediction: parameters, gradients and moments are 2 GB, so that every chip can hold all of them and
any layout fits; the logits, 50,257 to a token, are the largest thing there is. Published runs of
models this small reach 8 to 17 % of the chips' peak.

Command: jtransformer compile --config experiments/scale/decoder_125m.py --topology v5e:2x4
         jtransformer train --config experiments/scale/decoder_125m.py --workdir runs/125m
             --config.data.source.kind=text_file --config.data.source.text_file.path=TEXT
             --config.data.tokenizer.kind=file --config.data.tokenizer.file.path=TOKENIZER

TEXT is any file, read as one text; TOKENIZER is a tokenizer.json with at most 50,257 pieces.
Without them the model reads bytes of the embedded text: enough to try it, not to learn from.

Cost: `compile` needs no TPU, but the extra `tpu-plan`. Training is 10 billion tokens.

Expected result: RESULT.md, beside this file; how the training ends has not been measured.
"""

from jtransformer.config import to_config
from jtransformer.spec import DataSpec, RunSpec, presets


def get_config():
    """GPT-2 in bfloat16, 512 rows of 1024 tokens an update."""
    config = to_config(RunSpec(model=presets.gpt2_small(), data=DataSpec(length=1024)))
    config.model.scan_layers = True
    for part in config.model.precision:
        config.model.precision[part] = "bfloat16"
    config.loss.chunk = 16_384
    config.optimizer.learning_rate = 6e-4
    config.schedule.warmup_cosine.warmup_steps = 700
    config.training.batch_size = 512
    config.training.microbatches = 4
    config.training.steps = 19_000
    config.training.evaluate_every = 1000
    config.training.checkpoint_every = 1000
    return config


def get_layout():
    """What `jtransformer compile --search` found."""
    return dict(data=2, fsdp=4)
