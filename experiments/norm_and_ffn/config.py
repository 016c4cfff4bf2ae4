"""Draft."""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    """One run: the baseline."""
    config = to_config(presets.decoder_lm(width=64, layers=2))
    config.model.norm_placement = "pre"
    config.model.ffn = "gelu"
    return config


def get_sweep():
    """Six arms, three learning rates, three seeds."""
    return dict(
        scientific={
            "model.norm_placement": ("pre", "post"),
            "model.ffn": ("relu", "gelu", "swiglu"),
        },
        nuisance={"optimizer.learning_rate": (1e-3, 4e-3, 1.6e-2)},
        seeds=(0, 1, 2),
        match=dict(equal="parameters", by="model.ffn_width", multiple_of=2, tolerance=0.01),
        metric="validation/nll",
    )
