"""What does it cost to share keys and values among the heads, and what does it buy?

Question: with eight heads and 8, 4, 2 or 1 heads of keys and values, at equal parameters, how much
does the loss rise, how much smaller is the cache, and how much faster is decoding?

Prediction: groups of two to four cost next to nothing, a single head a little (Ainslie et al. 2023,
figure 3, https://arxiv.org/abs/2305.13245; Shazeer 2019, https://arxiv.org/abs/1911.02150). The
cache shrinks by the factor of the group, exactly; decoding gains where the cache is what is read.

Command: jtransformer sweep --config experiments/grouped_queries/config.py
--workdir runs/grouped_queries
         python experiments/grouped_queries/decoding.py

Cost: RESULT.md has it. The size of a paper, `config.py:paper`, is sixteen layers of width 1024, for
one TPU host.

Expected result: RESULT.md, beside this file.
"""

from typing import Literal

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config(size: Literal["small", "paper"] = "small"):
    """One run: every head has keys and values of its own."""
    if size == "small":
        run = presets.decoder_lm(width=64, layers=2)
        run = presets.with_budget(run, length=32, batch_size=16, steps=500)
    else:
        run = presets.for_accelerator(presets.decoder_lm(width=1024, layers=16))
        run = presets.with_budget(run, length=1024, batch_size=256, steps=50_000)
    config = to_config(run)
    config.model.heads = 8
    config.model.key_value_heads = 8
    config.model.position.kind = "rope"
    return config


def get_sweep(size: str = "small"):
    """Four arms; what keys and values save goes into the feed-forward networks."""
    small = size == "small"
    return dict(
        scientific={"model.key_value_heads": (8, 4, 2, 1)},
        nuisance={"optimizer.learning_rate": (5e-3, 1e-2, 2e-2) if small else (2.5e-4, 5e-4)},
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
    """A v5e host: each half of the state on four chips."""
    return None if size == "small" else dict(data=2, fsdp=4)
