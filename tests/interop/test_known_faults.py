"""Faults that importers are known for, each with the figures that tell right from wrong.

HF-01 (layouts) is in test_layouts.py, HF-04 (names) and TIE-02 (absent heads) in test_files.py.
"""

import jax.numpy as jnp
import numpy as np
import torch
import transformers

from jtransformer.interop import load
from jtransformer.modules import build

T5 = dict(
    vocab_size=40,
    d_model=16,
    d_kv=4,
    d_ff=24,
    num_layers=1,
    num_decoder_layers=1,
    num_heads=3,
    decoder_start_token_id=0,
)


def t5(tmp_path, *, tied):
    """Saves a tiny T5; returns it and what is read of it."""
    torch.manual_seed(0)
    kind = "relu" if tied else "gated-gelu"
    config = transformers.T5Config(**T5, feed_forward_proj=kind, tie_word_embeddings=tied)
    model = transformers.T5ForConditionalGeneration(config).eval()
    if not tied:
        # The library ties every T5 that it makes, though not every one that it reads.
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
        model.all_tied_weights_keys.pop("lm_head.weight")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(tmp_path)
    return model, load(tmp_path)


def both_logits(model, loaded, scale_down):
    """Returns their logits, and ours from the same last states with and without the factor."""
    source, target = np.array([[5, 9, 7, 3]]), np.array([[0, 8, 2]])
    with torch.no_grad():
        theirs = model(
            input_ids=torch.from_numpy(source), decoder_input_ids=torch.from_numpy(target)
        ).logits.numpy()
    out = build(loaded.spec).apply(
        loaded.variables, jnp.asarray(target, jnp.int32), source=jnp.asarray(source, jnp.int32)
    )
    params = loaded.variables["params"]
    matrix = params["embedding"]["table"].T if scale_down else params["head"]["kernel"]
    return theirs, np.asarray(out.logits), np.asarray(out.hidden @ matrix)


def test_tie_01_a_tied_head_of_t5_is_scaled_down(tmp_path):
    model, loaded = t5(tmp_path, tied=True)
    assert loaded.spec.head.tied and loaded.spec.head.scale_down
    theirs, ours, raw = both_logits(model, loaded, scale_down=True)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
    # d_model^0.5 = 4.
    np.testing.assert_allclose(raw / ours, 4.0, rtol=1e-4)


def test_tie_01_a_head_of_its_own_is_not_scaled(tmp_path):
    model, loaded = t5(tmp_path, tied=False)
    assert not loaded.spec.head.tied and not loaded.spec.head.scale_down
    theirs, ours, raw = both_logits(model, loaded, scale_down=False)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
    np.testing.assert_allclose(raw / ours, 1.0, rtol=1e-4)


def test_hf_03_t5_does_not_scale_scores(tmp_path):
    _, loaded = t5(tmp_path, tied=True)
    assert loaded.spec.attention.scale == 1.0
