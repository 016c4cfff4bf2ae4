"""What encoders return besides logits, and what only the reference can say about them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from interop import references, rows_encoders

from jtransformer import functional as F
from jtransformer.interop import load, save
from jtransformer.interop.mapping import nested, shapes_of
from jtransformer.modules import build
from jtransformer.spec import EncoderDecoder, presets


@functools.partial(jax.jit, static_argnums=0)
def answer(spec, variables, tokens, given):
    return build(spec).apply(variables, tokens, **given)


def row(name: str) -> references.Row:
    (found,) = (row for row in rows_encoders.ROWS if row.name == name)
    return found


@pytest.mark.parametrize("name", ["bert", "bert-pooled"])
def test_token_types_and_the_pooled_vector_are_those_of_the_reference(name, tmp_path):
    model = references.reference(row(name))
    model.save_pretrained(tmp_path)
    loaded, given = load(tmp_path), references.batch(row(name), "right")
    types = np.tile(np.arange(given.tokens.shape[1], dtype=np.int32) % 3, (2, 1))
    with torch.no_grad():
        arguments = references.theirs(row(name), model, given, "right")
        found = model(**arguments, token_type_ids=torch.from_numpy(types).long())
    arguments = {"valid": given.valid, "token_types": types}
    own = answer(loaded.spec, loaded.variables, given.tokens, arguments)
    if name == "bert":
        theirs = found.logits.numpy()[given.valid]
        np.testing.assert_allclose(
            np.asarray(own.logits)[given.valid], theirs, atol=1e-4 * np.abs(theirs).max()
        )
        return
    np.testing.assert_allclose(
        np.asarray(own.hidden)[given.valid], found[0].numpy()[given.valid], atol=1e-4
    )
    np.testing.assert_allclose(own.pooled, found.pooler_output.numpy(), atol=1e-4)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (8, 11), (64, 1000)])
def test_buckets_of_t5_are_those_of_the_reference(bidirectional, buckets, most):
    """At boundaries that are whole numbers too, where a rounded logarithm could fall short."""
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = np.arange(-2 * most, 2 * most + 1, dtype=np.int32)
    theirs = T5Attention._relative_position_bucket(
        torch.from_numpy(distances).long(),
        bidirectional=bidirectional,
        num_buckets=buckets,
        max_distance=most,
    ).numpy()
    own = F.t5_bucket(
        jnp.asarray(distances), bidirectional=bidirectional, n_buckets=buckets, max_distance=most
    )
    np.testing.assert_array_equal(own, theirs)


def test_known_fault_pos_11_positions_are_those_of_the_reference():
    from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

    ids = np.array([[0, 5, 6, 2, 1, 1], [1, 1, 0, 5, 6, 2]])
    theirs = RobertaEmbeddings.create_position_ids_from_input_ids(torch.from_numpy(ids), 1)
    own = F.token_positions(jnp.asarray(ids != 1), first=2)
    np.testing.assert_array_equal(own, theirs.numpy())
    assert theirs.tolist()[0] == [2, 3, 4, 5, 1, 1]


SMALL = dict(layers=2, vocabulary=53, width=24, heads=4, head_width=6, ffn_width=20)


@pytest.mark.parametrize(
    "preset",
    [
        presets.bert_base,
        presets.roberta_base,
        presets.modernbert_base_mlm,
        presets.t5_small,
        presets.bart_base,
        presets.opus_mt_en_de,
    ],
)
def test_transformers_loads_a_model_that_never_was_theirs(preset, tmp_path):
    """Their defaults of special tokens lie beyond a small vocabulary."""
    spec = dataclasses.replace(preset(), **SMALL)
    if isinstance(spec.stack, EncoderDecoder):
        stack = dataclasses.replace(spec.stack, encoder_layers=1)
        spec = dataclasses.replace(spec, stack=stack)
    leaves = {
        path: jnp.asarray(references.values(path, shape)) for path, shape in shapes_of(spec).items()
    }
    save(tmp_path, spec, {"params": nested(leaves)})
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    cls = getattr(transformers, config.architectures[0])
    model, about = cls.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(about[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokens = np.arange(6, 15, dtype=np.int32)[None]
    given, pair = {}, isinstance(spec.stack, EncoderDecoder)
    if pair:
        given["decoder_input_ids"] = torch.from_numpy(tokens[:, ::-1].copy()).long()
    with torch.no_grad():
        theirs = model.eval()(torch.from_numpy(tokens).long(), **given)[0].numpy()
    variables, read = {"params": nested(leaves)}, tokens[:, ::-1] if pair else tokens
    own = answer(spec, variables, read, {"source": tokens} if pair else {})
    found = own.hidden if own.logits is None else own.logits
    np.testing.assert_allclose(found, theirs, atol=1e-4 * np.abs(theirs).max())
