"""Which positions does a decoder need, and which of them reach beyond the trained length?

Question: how do no positions, sinusoids, learned positions, rotary ones (either pairing of the
features), the biases of T5 and ALiBi compare where they were trained, and on rows of two and four
times that length?

Prediction: the two pairings of rotary positions tie, being one rotation in two orders of the
features (Su et al. 2021, https://arxiv.org/abs/2104.09864). ALiBi keeps its loss beyond the trained
length, T5's bias nearly so, sinusoids and rotary positions lose (Press et al. 2021, figure 1,
https://arxiv.org/abs/2108.12409). A causal decoder without positions is not lost (Haviv et al.
2022, https://arxiv.org/abs/2203.16634). Learned positions beyond the trained length were never
trained.

Command: jtransformer sweep --config experiments/positions/config.py --workdir runs/positions
         python experiments/positions/longer.py --workdir runs/positions

Cost: RESULT.md has it. The size of a paper, `config.py:paper`, is twelve layers of width 512, for
one TPU host.

Expected result: RESULT.md, beside this file.
"""

from typing import Literal

from jtransformer.config import to_config
from jtransformer.spec import presets

LONGEST = 4
"""Learned positions reach so many times the trained length; those beyond it are never trained."""


def get_config(size: Literal["small", "paper"] = "small"):
    """One run: sinusoids."""
    if size == "small":
        run = presets.decoder_lm(width=64, layers=2)
        run = presets.with_budget(run, length=32, batch_size=16, steps=600)
    else:
        run = presets.for_accelerator(presets.decoder_lm(width=512, layers=12))
        run = presets.with_budget(run, length=512, batch_size=256, steps=50_000)
    config = to_config(run)
    config.model.position.kind = "sinusoidal"
    config.model.scale_embedding = True
    return config


def get_sweep(size: str = "small"):
    """Seven arms of nearly one size: a table of positions is all that differs."""
    kind = "model.position.kind"
    reach = (32 if size == "small" else 512) * LONGEST
    return dict(
        arms={
            "sinusoidal": {},
            "none": {kind: "none"},
            "learned": {kind: "learned", "model.position.learned.max_length": reach},
            "rope": {kind: "rope"},
            "rope, interleaved": {kind: "rope", "model.position.rope.pairing": "interleaved"},
            "T5 bias": {kind: "t5_bias"},
            "ALiBi": {kind: "alibi"},
        },
        nuisance={
            "optimizer.learning_rate": (5e-3, 1e-2, 2e-2) if size == "small" else (5e-4, 1e-3)
        },
        seeds=(0, 1, 2),
        match=dict(equal="nothing"),
        metric="validation/nll",
    )


def get_layout(size: str = "small"):
    """The eight chips of a v5e host share each batch."""
    return None if size == "small" else dict(data=8)
