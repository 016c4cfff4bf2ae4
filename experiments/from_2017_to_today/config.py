"""Of the steps from the decoder of 2017 to today's, which one helps?

Question: changing one thing at a time, always on top of what was changed before, what does each
step gain over the one before it: pre- instead of post-LN, a final norm, RMSNorm, GELU, SwiGLU at
equal parameters, rotary positions, no biases, grouped queries?

Prediction: at two layers placement and norm hardly matter (the size of experiments/norm_and_ffn and
norm_kind); rotary positions and the gate help most; biases and grouped queries cost nothing.

Command: jtransformer sweep --config experiments/from_2017_to_today/config.py
--workdir runs/from_2017
         python experiments/from_2017_to_today/steps.py --workdir runs/from_2017

A chain gives each step the credit that it earns after the others before it. Whether the order
matters is what the full factorial of the first four answers: factorial.py, beside this file.

Cost: RESULT.md has it. The size of a paper, `config.py:paper`, is twelve layers of width 512, for
one TPU host.

Expected result: RESULT.md, beside this file.
"""

from typing import Literal

from jtransformer.config import to_config
from jtransformer.spec import presets

STEPS = {
    "pre-LN": {"model.norm_placement": "pre"},
    "final norm": {"model.final_norm": True},
    "RMSNorm": {"model.norm.kind": "rms_norm"},
    "GELU": {"model.ffn": "gelu"},
    "SwiGLU": {"model.ffn": "swiglu"},
    "rope": {"model.position.kind": "rope"},
    "no biases": {
        "model.qkv_bias": False,
        "model.attention_out_bias": False,
        "model.ffn_bias": False,
    },
    "grouped queries": {"model.key_value_heads": 2},
}
"""What each step changes."""


def get_config(size: Literal["small", "paper"] = "small"):
    """One run: the decoder half of Vaswani et al. 2017, https://arxiv.org/abs/1706.03762."""
    if size == "small":
        run = presets.decoder_lm(width=64, layers=2)
        run = presets.with_budget(run, length=32, batch_size=16, steps=400)
    else:
        run = presets.for_accelerator(presets.decoder_lm(width=512, layers=12))
        run = presets.with_budget(run, length=512, batch_size=256, steps=50_000)
    config = to_config(run)
    config.model.norm_placement = "post"
    config.model.final_norm = False
    config.model.ffn = "relu"
    config.model.qkv_bias = config.model.attention_out_bias = config.model.ffn_bias = True
    config.model.key_value_heads = config.model.heads
    config.model.initialization = "xavier"
    config.model.scale_embedding = True
    return config


def get_sweep(size: str = "small"):
    """Nine arms of one size, each a step on from the one before it."""
    small = size == "small"
    arms, so_far = {"2017": {}}, {}
    for name, change in STEPS.items():
        so_far = so_far | change
        arms[name] = so_far
    return dict(
        arms=arms,
        nuisance={"optimizer.learning_rate": (5e-3, 1e-2, 2e-2) if small else (2.5e-4, 5e-4, 1e-3)},
        seeds=(0, 1, 2),
        match=dict(
            equal="parameters",
            by="model.ffn_width",
            multiple_of=1 if small else 16,
            tolerance=0.01,
        ),
        metric="validation/nll",
    )


def get_layout(size: str = "small"):
    """The eight chips of a v5e host share each batch."""
    return None if size == "small" else dict(data=8)
