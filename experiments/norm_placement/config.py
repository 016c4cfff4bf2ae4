"""Which placement of the norms trains without warm-up, and which bears a wrong learning rate?

Question: in a decoder of six layers, what do pre-, post-, sandwich-norm and DeepNorm lose when
the learning rate does not warm up, and how much does each depend on the learning rate?

Prediction: post-LN needs warm-up and a small learning rate, since its gradients near the output are
large at the initial values; pre-LN needs neither (Xiong et al. 2020, sec. 3 and 4,
https://arxiv.org/abs/2002.04745). DeepNorm was made for post-norm models that are deep (Wang et al.
2022, https://arxiv.org/abs/2203.00555), and lies between. The scale of the gradient by depth at the
initial values is in experiments/gradient_by_depth.md.

Command: jtransformer sweep --config experiments/norm_placement/config.py
--workdir runs/norm_placement

Cost: RESULT.md has it. The size of a paper, `config.py:paper`, is twelve layers of width 512, for
one TPU host: `jtransformer plan --config experiments/norm_placement/config.py:paper
--topology v5e:2x4`.

Expected result: RESULT.md, beside this file.
"""

from typing import Literal

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config(size: Literal["small", "paper"] = "small"):
    """One run: pre-LN with warm-up."""
    if size == "small":
        run = presets.decoder_lm(width=64, layers=6)
        run = presets.with_budget(run, length=32, batch_size=16, steps=200)
    else:
        run = presets.for_accelerator(presets.decoder_lm(width=512, layers=12))
        run = presets.with_budget(run, length=512, batch_size=256, steps=50_000)
    config = to_config(run)
    config.model.scale_embedding = True
    config.model.ffn = "relu"
    config.model.initialization = "xavier"
    config.model.scan_layers = True
    config.optimizer.gradient_clip = None
    return config


def get_sweep(size: str = "small"):
    """Four placements, each with and without warm-up, each over the same learning rates."""
    rates = (2.5e-4, 1e-3, 4e-3, 1.6e-2) if size == "small" else (2.5e-4, 5e-4, 1e-3, 2e-3)
    return dict(
        scientific={
            "model.norm_placement": ("pre", "post", "sandwich", "deepnorm"),
            "schedule.warmup_cosine.warmup_steps": (20 if size == "small" else 5_000, 0),
        },
        nuisance={"optimizer.learning_rate": rates},
        seeds=(0, 1, 2),
        metric="validation/nll",
    )


def get_layout(size: str = "small"):
    """The eight chips of a v5e host share each batch."""
    return None if size == "small" else dict(data=8)
