"""Checkpoints of families with an encoder: what they store, old ones, known faults."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interop.held import read_again, stored
from interop.small_encoders import read, small

from jtransformer import functional as F
from jtransformer.interop.mapping import nested
from jtransformer.modules import build
from jtransformer.spec import DotProduct, Encoder, Learned, SpecError, TokenHead


def test_the_head_of_t5_is_told_by_what_is_stored():
    """Version 5 of transformers writes tie_word_embeddings=true for every T5."""
    own, none = frozenset(["lm_head.weight"]), frozenset(["shared.weight"])
    tied_scaled = TokenHead(tied=True, scale_down=True)
    cases: list = [
        ({}, none, tied_scaled),
        ({}, own, tied_scaled),  # Then both must hold one table, which loading checks.
        (dict(tie_word_embeddings=False), own, TokenHead(tied=False)),
        (dict(tie_word_embeddings=True, scale_decoder_outputs=False), own, TokenHead(tied=False)),
        (dict(tie_word_embeddings=True, scale_decoder_outputs=False), none, TokenHead()),
    ]
    for changes, names, head in cases:
        assert read(small("t5", **changes), names).head == head, changes
    with pytest.raises(SpecError, match="^scale_decoder_outputs = True"):
        read(small("t5", tie_word_embeddings=False, scale_decoder_outputs=True), own)
    assert read(small("mt5"), own).head == TokenHead(tied=False)
    assert read(small("mt5"), none).head == TokenHead(tied=True)


def test_error_a_head_of_its_own_that_is_missing():
    spec = read(small("t5", tie_word_embeddings=False))
    _, tensors = stored("t5", spec)
    del tensors["lm_head.weight"]
    with pytest.raises(SpecError, match=r"lacks lm_head\.weight"):
        read_again("t5", spec, tensors)


def test_the_first_checkpoint_of_bert():
    """It says gamma and beta, and holds what no reader of a head for masked tokens asks for."""
    names = frozenset(["bert.pooler.dense.weight", "cls.predictions.bias"])
    spec = read(small("bert", architectures=["BertForPreTraining"]), names)
    assert isinstance(spec.stack, Encoder) and spec.stack.pooler
    leaves, tensors = stored("bert", spec)
    old = {
        re.sub(
            r"(LayerNorm\.)weight$", r"\1gamma", re.sub(r"(LayerNorm\.)bias$", r"\1beta", name)
        ): x
        for name, x in tensors.items()
    }
    assert "bert.embeddings.LayerNorm.gamma" in old
    old |= {
        "cls.seq_relationship.weight": np.zeros((2, 32)),
        "cls.seq_relationship.bias": np.zeros(2),
        "bert.embeddings.position_ids": np.arange(512)[None],
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }
    found = read_again("bert", spec, old)
    assert found.keys() == leaves.keys()
    for path, array in leaves.items():
        np.testing.assert_array_equal(found[path], array)
    old["cls.predictions.decoder.weight"] = 1 + old["cls.predictions.decoder.weight"]
    with pytest.raises(SpecError, match=r"cls\.predictions\.decoder\.weight"):
        read_again("bert", spec, old)


@pytest.mark.parametrize(
    ("family", "architecture", "prefix"),
    [
        ("bert", "BertModel", "bert."),
        ("roberta", "RobertaModel", "roberta."),
        ("modernbert", "ModernBertModel", "model."),
        ("bart", "BartModel", "model."),
    ],
)
def test_names_of_headless_checkpoints(family, architecture, prefix):
    spec = read(small(family, architectures=[architecture]), frozenset(["pooler.dense.weight"]))
    leaves, tensors = stored(family, spec)
    assert all(name.startswith(prefix) for name in tensors)
    bare = {name.removeprefix(prefix): array for name, array in tensors.items()}
    found = read_again(family, spec, bare)
    for path, array in leaves.items():
        np.testing.assert_array_equal(found[path], array)


def test_tables_of_marian_that_pickled_files_hold_more_than_once():
    spec = read(small("marian"), frozenset(["final_logits_bias"]))
    leaves, tensors = stored("marian", spec)
    for name in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        tensors[f"{name}.weight"] = tensors["model.shared.weight"]
    tensors["model.encoder.embed_positions.weight"] = np.zeros((512, 32))
    assert read_again("marian", spec, tensors).keys() == leaves.keys()
    assert tensors["final_logits_bias"].shape == (1, 53)


def test_known_fault_pos_11_roberta_counts_from_the_padding_id_plus_1():
    spec = read(small("roberta", max_position_embeddings=10))
    assert spec.position == Learned(max_length=8, first=2)
    ids = np.array([[0, 5, 6, 2, 1, 1]])
    counted = np.asarray(F.token_positions(jnp.asarray(ids != 1)))[0, :4] + spec.position.first
    assert counted.tolist() == [2, 3, 4, 5]
    leaves, _ = stored("roberta", spec)
    assert leaves["position/table"].shape == (10, 32)
    variables = jax.eval_shape(lambda: build(spec).init(jax.random.key(0), jnp.asarray(ids)))
    with pytest.raises(ValueError, match="9 tokens are more than"):
        jax.eval_shape(build(spec).apply, variables, jnp.zeros((1, 9), jnp.int32))


def apply(spec, leaves, tokens):
    variables = {"params": nested(leaves)}
    return build(spec).apply(
        variables, tokens, source=tokens, intermediates=["decoder/layer_0/stream"]
    )


@pytest.mark.parametrize(("changes", "ratio"), [({}, 4.0), (dict(tie_word_embeddings=False), 1.0)])
def test_known_faults_tie_01_and_norm_09_logits_of_t5(changes, ratio):
    """The head is scaled by width^-0.5 where it is tied alone; the norm takes no mean off."""
    fields = small("t5", d_model=16, num_layers=1, **changes)
    spec = read(fields, frozenset(["lm_head.weight"]))
    tokens = jnp.array([[3, 7]])
    leaves = {path: np.asarray(x, np.float32) for path, x in stored("t5", spec)[0].items()}
    call = jax.jit(lambda leaves, tokens: apply(spec, leaves, tokens))
    found = call(leaves, tokens)
    kept = found.intermediates or {}
    last = np.asarray(kept["decoder/layer_0/stream"], np.float64)
    scales = leaves["decoder/final_norm/scale"]
    states = last / np.sqrt((last**2).mean(-1, keepdims=True) + 1e-6) * scales
    np.testing.assert_allclose(found.hidden, states, rtol=2e-5, atol=2e-5)
    own_head = spec.head == TokenHead(tied=False)
    matrix = leaves["head/kernel"] if own_head else leaves["embedding/table"].T
    np.testing.assert_allclose(states @ matrix, found.logits * ratio, rtol=1e-3, atol=1e-4)


def test_known_fault_hf_03_scores_of_t5_are_not_scaled():
    assert read(small("t5", d_kv=4)).attention == DotProduct(scale=1.0)
