"""Dropout: where it acts, how it is scaled, and what its masks depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly
from tiny_model import STACKS, VARIANTS, T, changed, drawn, model_of, needed, tokens_of

from jtransformer.modules import DropoutRates, build, keys_at
from jtransformer.modules.initial import dropout_key
from jtransformer.spec import DotProduct, Dropout, EncoderDecoder

RATE = 0.5
PLACES = ("embedding", "attention", "ffn", "residual")


def at(place, **changes):
    return changed(dropout=Dropout(**{place: RATE}), **changes)


def outputs(spec, draw, names, **given):
    given = needed(spec, draw) | given
    out = model_of(spec).apply(drawn(spec), tokens_of(draw), intermediates=tuple(names), **given)
    return out.intermediates | {"logits": out.logits}


@pytest.mark.parametrize("place", PLACES)
def test_a_key_decides_what_is_dropped_and_none_drops_nothing(key, place):
    spec = at(place)
    apply = model_of(spec).apply
    variables, tokens = drawn(spec), tokens_of(key)
    first, again, other = (
        apply(variables, tokens, key=jax.random.key(seed)).logits for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other, atol=1e-3)
    plain = model_of(changed()).apply(variables, tokens).logits
    np.testing.assert_array_equal(apply(variables, tokens).logits, plain)


@pytest.mark.parametrize(
    "changes", [{}, dict(scan_layers=True, rematerialize="everything")], ids=["loop", "scan"]
)
def test_rates_of_a_call_stand_in_for_those_of_the_spec(key, changes):
    rates = dict(embedding=0.1, attention=0.2, ffn=0.3, residual=0.4)
    given = DropoutRates(**{place: jnp.float32(rate) for place, rate in rates.items()})
    spec = changed(dropout=Dropout(**dict.fromkeys(PLACES, RATE)), **changes)
    expected = outputs(changed(spec, dropout=Dropout(**rates)), key, [], key=key)["logits"]
    found = outputs(spec, key, [], key=key, dropout_rates=given)["logits"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert not np.allclose(found, outputs(spec, key, [], key=key)["logits"], atol=1e-2)
    for place in PLACES:
        other = given._replace(**{place: jnp.float32(0.7)})
        changed_one = outputs(spec, key, [], key=key, dropout_rates=other)["logits"]
        assert not np.allclose(found, changed_one, atol=1e-2), place


def test_null_a_spec_without_dropout_drops_nothing_whatever_the_rates(key):
    given = DropoutRates(*[jnp.float32(0.9)] * 4)
    plain = outputs(changed(), key, [])["logits"]
    found = outputs(changed(), key, [], key=key, dropout_rates=given)["logits"]
    np.testing.assert_array_equal(found, plain)


def test_half_of_the_embeddings_are_zero_and_the_rest_is_doubled(key):
    spec = at("embedding", width=60)
    dropped = outputs(spec, key, ["embedded"], key=key)["embedded"]
    plain = outputs(spec, key, ["embedded"])["embedded"]
    gone = np.asarray(dropped == 0)
    assert 0.4 < gone.mean() < 0.6
    np.testing.assert_allclose(dropped[~gone], 2 * plain[~gone], rtol=1e-6)
    # Rows and positions have masks of their own.
    assert not np.array_equal(gone[0], gone[1]) and not np.array_equal(gone[:, 0], gone[:, 1])


def branches(spec, key, **given):
    """Returns what each layer's feed-forward branch added to the stream."""
    inside = ("attention/stream", "stream")
    names = [f"layer_{layer}/{name}" for layer in (0, 1) for name in inside]
    found = outputs(spec, key, names, key=jax.random.key(7), **given)
    return [
        np.asarray(found[f"layer_{n}/stream"] - found[f"layer_{n}/attention/stream"])
        for n in (0, 1)
    ]


@pytest.mark.parametrize("scan_layers", [False, True])
def test_every_layer_drops_other_units(key, scan_layers):
    """The fault of a scan that hands one key to all layers."""
    first, second = (x == 0 for x in branches(at("residual", scan_layers=scan_layers), key))
    assert 0.3 < first.mean() < 0.7
    assert 0.3 < (first != second).mean() < 0.7


def test_arms_drop_the_same_units(key):
    """A mask depends on key, place and layer, not on what else a model has."""
    base = [x == 0 for x in branches(at("residual"), key)]
    for arm in (
        at("residual", scan_layers=True),
        at("residual", qkv_bias=True, attention=DotProduct(query_key_norm="head")),
        changed(VARIANTS["sandwich"], dropout=Dropout(residual=RATE, attention=0.1)),
    ):
        for ours, theirs in zip(base, branches(arm, key), strict=True):
            np.testing.assert_array_equal(ours, theirs == 0)


def test_sublayers_side_by_side_drop_what_they_drop_in_order(key):
    """With attention silenced, what is left is the feed-forward branch of each."""

    def silenced(path, leaf):
        names = [entry.key for entry in path]
        return jnp.zeros_like(leaf) if names[-3:-1] == ["attention", "out"] else leaf

    masks = []
    for sublayers in ("sequential", "parallel"):
        spec = at("residual", layers=1, sublayers=sublayers)
        variables = jax.tree_util.tree_map_with_path(silenced, drawn(spec))
        out = quickly(build(spec).apply, static_argnames=("intermediates",))(
            variables, tokens_of(key), key=key, intermediates=("embedded", "layer_0/stream")
        )
        inside = out.intermediates
        masks.append(np.asarray(inside["layer_0/stream"] == inside["embedded"]))
    assert 0.3 < masks[0].mean() < 0.7
    np.testing.assert_array_equal(*masks)


def test_the_two_stacks_drop_other_units(key):
    spec = changed(
        STACKS["encoder_decoder"],
        stack=EncoderDecoder(encoder_layers=1),
        dropout=Dropout(embedding=RATE),
    )
    names = ["encoder/embedded", "decoder/embedded"]
    source = tokens_of(key)
    found = outputs(spec, key, names, key=key, source=source)
    ours, theirs = (np.asarray(found[name] == 0) for name in names)
    assert 0.3 < (ours != theirs).mean() < 0.7


def test_the_mean_over_keys_is_the_plain_branch(key):
    """What is kept is scaled up, so that the expectation stays; the last map is affine."""
    spec = at("ffn", layers=1)
    apply, variables, tokens = model_of(spec).apply, drawn(spec), tokens_of(key)
    names = ("layer_0/ffn/output",)

    def branch(key):
        out = build(spec).apply(variables, tokens, key=key, intermediates=names)
        return out.intermediates[names[0]]

    many = quickly(jax.vmap(branch))(jax.random.split(key, 2000))
    plain = apply(variables, tokens, intermediates=names).intermediates[names[0]]
    error = np.asarray(many).std(axis=0) / np.sqrt(2000)
    assert np.all(np.abs(many.mean(axis=0) - plain) < 5 * error + 1e-5)


def test_keys_of_dropout_are_those_of_paths(key):
    """The index of a layer is folded in last, known beforehand or not."""
    (expected,) = keys_at(key, [("dropout", "layer_3", "ffn", "residual")])
    for layer in (jnp.asarray(3), jnp.arange(5)[3]):
        found = dropout_key(key, RATE, ("layer", "ffn", "residual"), layer)
        np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(expected))
    assert dropout_key(key, 0.0, ("layer",), None) is None
    assert dropout_key(None, RATE, ("layer",), None) is None


def test_weights_that_are_returned_are_those_before_the_dropout(key):
    spec = at("attention")
    weights = outputs(spec, key, ["layer_0/attention/weights"], key=key)
    np.testing.assert_allclose(weights["layer_0/attention/weights"].sum(-1), 1, atol=1e-5)
    assert weights["layer_0/attention/weights"].shape[-2:] == (T, T)


@pytest.mark.parametrize(
    "spec",
    [
        changed(dropout=Dropout(**dict.fromkeys(PLACES, RATE))),
        changed(STACKS["two_scanned"], dropout=Dropout(**dict.fromkeys(PLACES, RATE))),
        pytest.param(
            changed(VARIANTS["deepnorm"], dropout=Dropout(attention=RATE, residual=RATE)),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["decoder", "two stacks, scanned", "shaw"],
)
def test_with_a_key_for_each_row_a_row_loses_the_same_whatever_is_beside_it(key, spec):
    keys = jax.random.split(key, 2)
    tokens, given = tokens_of(key), needed(spec, key)
    apply, variables = model_of(spec).apply, drawn(spec)

    def of_rows(rows):
        own = {name: value[rows] for name, value in given.items()}
        return apply(variables, tokens[rows], key=keys[rows], **own).logits

    both = of_rows(np.array([0, 1]))
    swapped, again = of_rows(np.array([1, 0])), of_rows(np.array([1, 1]))
    np.testing.assert_allclose(swapped[::-1], both, atol=1e-5)
    np.testing.assert_allclose(again, jnp.stack([both[1], both[1]]), atol=1e-5)
    # Rows that hold the same tokens lose other entries.
    same = {name: value[np.array([0, 0])] for name, value in given.items()}
    alike = apply(variables, tokens[np.array([0, 0])], key=keys, **same).logits
    assert not np.allclose(alike[0], alike[1], atol=1e-2)
