"""Do QK-norm and z-loss make the learning rate matter less?

Question: how much does the loss depend on the learning rate, over a factor of 256, with and without
norms of queries and keys, and with and without a loss on the softmax's normaliser?

Prediction: Wortsman et al. 2023 (figures 1 and 4, https://arxiv.org/abs/2309.14322) find that
without either small models diverge at high learning rates, as large ones do at usual ones: QK-norm
stops attention logits from growing, z-loss the output logits. Learning-rate sensitivity falls with
both.

Command: jtransformer sweep --config experiments/stability/config.py --workdir runs/stability

Cost: RESULT.md has it. The size of a paper, `config.py:paper`, is twelve layers of width 512, for
one TPU host.

Expected result: RESULT.md, beside this file; the page has the sensitivities.
"""

from typing import Literal

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config(size: Literal["small", "paper"] = "small"):
    """One run, with neither."""
    if size == "small":
        run = presets.decoder_lm(width=64, layers=4)
        run = presets.with_budget(run, length=32, batch_size=16, steps=250)
    else:
        run = presets.for_accelerator(presets.decoder_lm(width=512, layers=12))
        run = presets.with_budget(run, length=512, batch_size=256, steps=50_000)
    config = to_config(run)
    config.model.scan_layers = True
    config.model.position.kind = "rope"
    config.optimizer.weight_decay = 0.0
    return config


def get_sweep(size: str = "small"):
    """Both, either and neither, each over the same five learning rates."""
    rates = (2e-3, 8e-3, 3.2e-2, 1.28e-1, 5.12e-1)
    return dict(
        scientific={
            "model.attention.dot_product.query_key_norm": ("none", "head"),
            "loss.z_loss": (0.0, 1e-4),
        },
        nuisance={
            "optimizer.learning_rate": rates if size == "small" else tuple(r / 8 for r in rates)
        },
        seeds=(0, 1, 2),
        match=dict(equal="nothing"),
        metric="validation/nll",
    )


def get_layout(size: str = "small"):
    """The eight chips of a v5e host share each batch."""
    return None if size == "small" else dict(data=8)
