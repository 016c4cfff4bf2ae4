"""Does the order of feed-forward networks that was published at scale show in a small model?

Question: at equal parameters, are the gated networks (ReGLU, GEGLU, SwiGLU) better than ReLU and
GELU, and how many seeds does it take to tell?

Prediction: gated before GELU before ReLU. Shazeer 2020, table 1 (https://arxiv.org/abs/2002.05202),
has log-perplexities 1.997 (ReLU), 1.983 (GELU), 1.953 (ReGLU), 1.942 (GEGLU) and 1.944 (SwiGLU) for
a T5 of 220 million parameters after 65,536 steps. Narang et al. 2021
(https://arxiv.org/abs/2102.11972) found 0.003 to 0.010 between seeds at that size, so that the
gates are told there and GEGLU is not told from SwiGLU. Here seeds differ by about 0.01.

Command: jtransformer sweep --config experiments/ffn_family/config.py --workdir runs/ffn_family

Cost: RESULT.md has it. The size of a paper, `config.py:paper`, is twelve layers of width 768, for
one TPU host.

Expected result: RESULT.md, beside this file.
"""

from typing import Literal

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config(size: Literal["small", "paper"] = "small"):
    """One run: ReLU."""
    if size == "small":
        run = presets.decoder_lm(width=64, layers=2)
        run = presets.with_budget(run, length=32, batch_size=16, steps=500)
    else:
        run = presets.for_accelerator(presets.decoder_lm(width=768, layers=12))
        run = presets.with_budget(run, length=512, batch_size=256, steps=65_536)
    config = to_config(run)
    config.model.scale_embedding = True
    config.model.ffn = "relu"
    return config


def get_sweep(size: str = "small"):
    """Five networks of equal size, each with its own learning rate."""
    small = size == "small"
    return dict(
        scientific={"model.ffn": ("relu", "gelu", "reglu", "geglu", "swiglu")},
        nuisance={"optimizer.learning_rate": (5e-3, 1e-2, 2e-2) if small else (5e-4, 1e-3, 2e-3)},
        seeds=(0, 1, 2, 3, 4),
        match=dict(
            equal="parameters",
            by="model.ffn_width",
            multiple_of=2 if small else 128,
            tolerance=0.01,
        ),
        metric="validation/nll",
    )


def get_layout(size: str = "small"):
    """The eight chips of a v5e host share each batch."""
    return None if size == "small" else dict(data=8)
