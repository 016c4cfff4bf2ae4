"""At equal parameters, deep and narrow or shallow and wide?

Question: which of 2, 4, 8 and 12 layers has the lowest loss where the width of the feed-forward
networks pays for the layers, and what does each cost in time?

Prediction: a flat optimum. Narang et al. 2021 (table 1, https://arxiv.org/abs/2102.11972) kept the
parameters of a T5 and moved them: of 6, 8, 12, 18 and 24 layers, 12 to 18 were best and 6 the
worst, in a span of 0.05 in log-perplexity. At so few parameters the best depth lies lower.

Command: jtransformer sweep --config experiments/depth_and_width/config.py
--workdir runs/depth_and_width

Cost: RESULT.md has it. The size of a paper, `config.py:paper`, has 6 to 24 layers at width 768, for
one TPU host.

Expected result: RESULT.md, beside this file.
"""

from typing import Literal

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config(size: Literal["small", "paper"] = "small"):
    """One run, of the depth that the others are compared with."""
    if size == "small":
        run = presets.decoder_lm(width=64, layers=4)
        run = presets.with_budget(run, length=32, batch_size=16, steps=300)
    else:
        run = presets.for_accelerator(presets.decoder_lm(width=768, layers=12))
        run = presets.with_budget(run, length=512, batch_size=256, steps=50_000)
    config = to_config(run)
    config.model.scale_embedding = True
    config.model.ffn_width = 512 if size == "small" else 3072
    config.model.scan_layers = True
    return config


def get_sweep(size: str = "small"):
    """Depths, each as wide within its feed-forward networks as the parameters allow."""
    small = size == "small"
    return dict(
        scientific={"model.layers": (4, 2, 8, 12) if small else (12, 6, 8, 18, 24)},
        nuisance={"optimizer.learning_rate": (5e-3, 1e-2) if small else (5e-4, 1e-3)},
        seeds=(0, 1, 2),
        match=dict(
            equal="parameters",
            by="model.ffn_width",
            multiple_of=1 if small else 128,
            tolerance=0.01,
        ),
        metric="validation/nll",
    )


def get_layout(size: str = "small"):
    """A v5e host: each half of the state on four chips."""
    return None if size == "small" else dict(data=2, fsdp=4)
