"""Where should the norm stand, and does a gate help, at equal parameters?

Question: in a small decoder over bytes of English, does moving LayerNorm before or after the
residual sum change the loss, does the feed-forward family (ReLU, GELU, SwiGLU) change it, and do
the two depend on each other?

Prediction: SwiGLU beats GELU beats ReLU by a few hundredths of a nat at equal parameters
(Shazeer 2020, https://arxiv.org/abs/2002.05202). At two layers both placements train; post-LN
wants the smaller learning rate (Xiong et al. 2020, https://arxiv.org/abs/2002.04745).

Command: jtransformer sweep --config experiments/norm_and_ffn/config.py --workdir runs/norm_and_ffn

Cost: 54 runs of 115,000 parameters and 205,000 tokens each; 4 to 5 minutes on two CPU cores,
150 MB on disk.

Expected result: RESULT.md, beside this file.
"""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    """One run: the baseline."""
    config = to_config(presets.decoder_lm(width=64, layers=2))
    config.model.norm_placement = "pre"
    config.model.ffn = "gelu"
    config.model.position.kind = "sinusoidal"
    config.model.scale_embedding = True
    config.data.length = 32
    config.training.batch_size = 16
    config.training.steps = 400
    config.training.evaluate_every = 200
    config.training.checkpoint_every = 200
    config.schedule.warmup_cosine.warmup_steps = 40
    return config


def get_sweep():
    """Six arms of equal size, each with its own learning rate, paired by three seeds."""
    return dict(
        scientific={
            "model.norm_placement": ("pre", "post"),
            "model.ffn": ("relu", "gelu", "swiglu"),
        },
        nuisance={"optimizer.learning_rate": (2.5e-3, 1e-2, 4e-2)},
        seeds=(0, 1, 2),
        match=dict(equal="parameters", by="model.ffn_width", multiple_of=2, tolerance=0.01),
        metric="validation/nll",
    )
