"""Do the first four steps from the decoder of 2017 depend on one another?

Question: in every combination of placement, final norm, kind of norm and activation, what does each
move on the average of all others, and which of them interact?

Prediction: placement and final norm interact: the stream of a pre-LN model has no norm before the
head but the final one, that of a post-LN model has been normalised already (Xiong et al. 2020,
https://arxiv.org/abs/2002.04745). No other two interact.

Command: jtransformer sweep --config experiments/from_2017_to_today/factorial.py
--workdir runs/from_2017_factorial

Cost: RESULT.md has it.

Expected result: RESULT.md, beside this file; the page has the factors and their interactions.
"""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    """One run: the decoder of 2017, with all that config.py leaves for later steps."""
    run = presets.decoder_lm(width=64, layers=2)
    config = to_config(presets.with_budget(run, length=32, batch_size=16, steps=400))
    config.model.norm_placement = "post"
    config.model.final_norm = False
    config.model.ffn = "relu"
    config.model.qkv_bias = config.model.attention_out_bias = config.model.ffn_bias = True
    config.model.initialization = "xavier"
    config.model.scale_embedding = True
    return config


def get_sweep():
    """Sixteen arms, each with the better of two learning rates."""
    return dict(
        scientific={
            "model.norm_placement": ("post", "pre"),
            "model.final_norm": (False, True),
            "model.norm.kind": ("layer_norm", "rms_norm"),
            "model.ffn": ("relu", "gelu"),
        },
        nuisance={"optimizer.learning_rate": (5e-3, 1e-2)},
        seeds=(0, 1, 2),
        match=dict(equal="parameters", by="model.ffn_width", multiple_of=1, tolerance=0.01),
        metric="validation/nll",
    )
