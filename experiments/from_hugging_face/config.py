"""Does a decoder from Hugging Face lose anything when its attention sees a window alone?

Question: trained on for a while, how far behind the full attention is one that reads the 32 tokens
before it? Both arms start with the parameters of the model, and both have all of them.

Prediction: the window costs little on English (Beltagy et al. 2020,
https://arxiv.org/abs/2004.05150), and training makes up for a part of it.

Command: MODEL=models/gpt2 jtransformer sweep --config experiments/from_hugging_face/config.py
--workdir runs/window

MODEL is a Hugging Face directory with a tokenizer.json, or a run of `jtransformer import_hf`.

Cost: 6 runs of 200 updates of 4 rows of 128 tokens; checkpoints of GPT-2 small take up to 6 GB a
run. `jtransformer plan --measure` says how long it takes here.
"""

import json
import os
from pathlib import Path

from jtransformer import interop
from jtransformer.config import to_config
from jtransformer.spec import (
    DataSpec,
    OptimizerSpec,
    RunSpec,
    TokenizerFile,
    TrainingSpec,
    WarmupCosine,
    from_tree,
)

MODEL = Path(os.environ.get("MODEL", "models/gpt2")).expanduser().absolute()


def get_config():
    """One run: the model as it is, trained on."""
    about, folder = MODEL / "spec.json", MODEL
    if about.exists():
        model = from_tree(json.loads(about.read_text(encoding="utf-8"))["spec"]).model
        folder = MODEL / "hugging_face"
    else:
        model = interop.unread(MODEL).spec
    return to_config(
        RunSpec(
            model=model,
            data=DataSpec(tokenizer=TokenizerFile(path=str(folder / "tokenizer.json")), length=128),
            optimizer=OptimizerSpec(learning_rate=3e-5, weight_decay=0.0),
            schedule=WarmupCosine(warmup_steps=20),
            training=TrainingSpec(
                steps=200, batch_size=4, evaluate_every=100, evaluation_batch_size=16
            ),
            start_from=str(MODEL),
        )
    )


def get_sweep():
    """Two arms with the same parameters, paired by three seeds."""
    return dict(
        scientific={"model.attention.dot_product.window": (None, 32)},
        seeds=(0, 1, 2),
        metric="validation/nll",
    )
