"""Is RMSNorm as good as LayerNorm, and does a pre-norm decoder need its final norm?

Question: in a pre-norm decoder, what does it cost to leave out the mean (RMSNorm), and what to
leave out the norm before the head?

Prediction: RMSNorm ties with LayerNorm (Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467;
Narang et al. 2021, https://arxiv.org/abs/2102.11972, found it a little better). Without a final
norm the logits are of the stream itself, which grows with depth: worse, and fewer learning rates
train.

Command: jtransformer sweep --config experiments/norm_kind/config.py --workdir runs/norm_kind

Cost: RESULT.md has it. The size of a paper, `config.py:paper`, is twelve layers of width 512, for
one TPU host.

Expected result: RESULT.md, beside this file.
"""

from typing import Literal

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config(size: Literal["small", "paper"] = "small"):
    """One run: LayerNorm, with a final norm."""
    if size == "small":
        run = presets.decoder_lm(width=64, layers=4)
        run = presets.with_budget(run, length=32, batch_size=16, steps=300)
    else:
        run = presets.for_accelerator(presets.decoder_lm(width=512, layers=12))
        run = presets.with_budget(run, length=512, batch_size=256, steps=50_000)
    config = to_config(run)
    config.model.scale_embedding = True
    config.model.scan_layers = True
    config.model.final_norm = True
    return config


def get_sweep(size: str = "small"):
    """Two norms, each with and without the final one. A difference below 0.01 does not matter."""
    rates = (2.5e-3, 1e-2, 4e-2) if size == "small" else (5e-4, 1e-3, 2e-3)
    return dict(
        scientific={
            "model.norm.kind": ("layer_norm", "rms_norm"),
            "model.final_norm": (True, False),
        },
        nuisance={"optimizer.learning_rate": rates},
        seeds=(0, 1, 2, 3, 4),
        metric="validation/nll",
        verdict=dict(margin=0.01),
    )


def get_layout(size: str = "small"):
    """The eight chips of a v5e host share each batch."""
    return None if size == "small" else dict(data=8)
