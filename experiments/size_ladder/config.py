"""Do the differences between placements and between feed-forward networks survive scale?

Question: over four sizes, a factor of 20 in parameters, what is SwiGLU better than ReLU by, and
pre-LN than post-LN?

Prediction: the gain of the gate stays, at equal parameters (Shazeer 2020,
https://arxiv.org/abs/2002.05202, has it for 220 million). Pre-LN gains on post-LN as depth grows
(Xiong et al. 2020, https://arxiv.org/abs/2002.04745); at two to five layers there is little to
gain.

Command: jtransformer sweep --config experiments/size_ladder/config.py --workdir runs/size_ladder

Cost: RESULT.md has it. The sizes of a paper, `config.py:paper`, go from width 256 to 1024, for one
TPU host.

Expected result: RESULT.md, beside this file.
"""

from typing import Literal

from jtransformer.config import to_config
from jtransformer.spec import presets

SIZES = {
    "small": {"16": (16, 2), "32": (32, 3), "64": (64, 4), "96": (96, 5)},
    "paper": {"256": (256, 6), "512": (512, 8), "768": (768, 12), "1024": (1024, 16)},
}
"""Width and layers by name."""


def get_config(size: Literal["small", "paper"] = "small"):
    """One run of the smallest size: pre-LN with ReLU."""
    width, layers = next(iter(SIZES[size].values()))
    run = presets.decoder_lm(width=width, layers=layers)
    if size == "small":
        run = presets.with_budget(run, length=32, batch_size=16, steps=200)
    else:
        run = presets.for_accelerator(run)
        run = presets.with_budget(run, length=512, batch_size=256, steps=50_000)
    config = to_config(run)
    config.model.scale_embedding = True
    config.model.ffn = "relu"
    config.model.scan_layers = True
    return config


def get_sweep(size: str = "small"):
    """Four arms at four sizes, each with the better of two learning rates."""
    small = size == "small"
    return dict(
        scientific={
            "model.norm_placement": ("pre", "post"),
            "model.ffn": ("relu", "swiglu"),
        },
        scales={
            name: {"model.width": width, "model.layers": layers, "model.ffn_width": 4 * width}
            for name, (width, layers) in SIZES[size].items()
        },
        nuisance={"optimizer.learning_rate": (5e-3, 1e-2) if small else (5e-4, 1e-3)},
        seeds=(0, 1, 2),
        match=dict(
            equal="parameters",
            by="model.ffn_width",
            multiple_of=1 if small else 32,
            tolerance=0.02,
        ),
        metric="validation/nll",
    )


def get_layout(size: str = "small"):
    """A v5e host: each half of the state on four chips."""
    return None if size == "small" else dict(data=2, fsdp=4)
