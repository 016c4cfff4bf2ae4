"""Does a model of 1.3 billion parameters train on 32 chips of a v5e slice?

Question: does an update of a Llama-shaped decoder over a million tokens fit 32 chips (16 GB each),
how long does it take, and what bounds it?

Prediction: parameters and moments are 16 GB in float32, as much as one chip has; divided by "fsdp"
they are 0.5 to 2 GB, and what the layers keep for the backward pass decides. At 32,768 tokens a
chip the products outweigh the gathering of parameters by far.

Command: jtransformer compile --config experiments/scale/decoder_1_3b.py --topology v5e:4x8
         jtransformer train --config experiments/scale/decoder_1_3b.py --workdir runs/1_3b
             --config.data.source.kind=text_file --config.data.source.text_file.path=TEXT
             --config.data.tokenizer.kind=file --config.data.tokenizer.file.path=TOKENIZER

TEXT is any file, read as one text; TOKENIZER is a tokenizer.json with at most 32,000 pieces.
Without them the model reads bytes of the embedded text: enough to try it, not to learn from.

Cost: `compile` needs no TPU, but the extra `tpu-plan`. Training is 27 billion tokens, 20 for each
parameter (Hoffmann et al. 2022, https://arxiv.org/abs/2203.15556).

Expected result: RESULT.md, beside this file; how the training ends has not been measured.
"""

import dataclasses

from jtransformer.config import to_config
from jtransformer.spec import DataSpec, RunSpec, presets


def get_config():
    """The shape of Sheared-LLaMA-1.3B (Xia et al. 2023), 512 rows of 2048 tokens an update."""
    model = dataclasses.replace(
        presets.llama2_7b(), width=2048, layers=24, heads=16, ffn_width=5504
    )
    config = to_config(RunSpec(model=model, data=DataSpec(length=2048)))
    config.model.scan_layers = True
    config.model.rematerialize = "everything"
    for part in config.model.precision:
        config.model.precision[part] = "bfloat16"
    config.loss.chunk = 262_144
    config.optimizer.learning_rate = 3e-4
    config.schedule.warmup_cosine.warmup_steps = 2000
    config.training.batch_size = 512
    config.training.steps = 25_600
    config.training.evaluate_every = 1000
    config.training.checkpoint_every = 1000
    return config


def get_layout():
    """What `jtransformer compile --search` found."""
    return dict(data=4, fsdp=8)
