"""Intermediates: what is asked for comes back under its name, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_model import (
    BASE,
    STACKS,
    VARIANTS,
    B,
    S,
    T,
    V,
    changed,
    drawn,
    model_of,
    needed,
    tokens_of,
)

from jtransformer.modules import build, empty_cache
from jtransformer.modules.intermediates import all_names
from jtransformer.spec import Dropout, Embedder, LinearAttention, Shaw

D, N, FW = BASE.width, BASE.heads, BASE.ffn_width
EVERYTHING = ("*",)


def inside(spec, key, *names, **given):
    given = needed(spec, key) | given
    out = model_of(spec).apply(drawn(spec), tokens_of(key), intermediates=names, **given)
    return out.intermediates


def test_the_names_and_shapes_of_a_decoder(key):
    layer = [
        "attention/input", "attention/query", "attention/key", "attention/value",
        "attention/scores", "attention/weights", "attention/mixed", "attention/output",
        "attention/stream", "ffn/input", "ffn/hidden", "ffn/activation", "ffn/output",
        "ffn/stream", "stream",
    ]  # fmt: skip
    found = inside(BASE, key, *EVERYTHING)
    expected = ["embedded"]
    expected += [f"layer_{n}/{name}" for n in range(2) for name in layer]
    # In the order in which they come to be, which a compiled program does not keep.
    assert all_names(BASE) == [*expected, "final_norm", "logits"]
    assert set(found) == {*all_names(BASE)}
    heads = dict.fromkeys(("query", "key", "value", "mixed"), (B, T, N, D // N))
    scores = dict.fromkeys(("scores", "weights"), (B, N, T, T))
    hidden = dict.fromkeys(("hidden", "activation"), (B, T, FW))
    shapes = {"logits": (B, T, V), **heads, **scores, **hidden}
    for name, value in found.items():
        assert value.shape == shapes.get(name.rpartition("/")[2], (B, T, D)), name


def test_the_values_are_those_of_the_formula(key):
    found = inside(BASE, key, *EVERYTHING)
    for n, before in ((0, "embedded"), (1, "layer_0/stream")):
        at = f"layer_{n}"
        after = found[before] + found[f"{at}/attention/output"]
        np.testing.assert_allclose(found[f"{at}/attention/stream"], after, atol=1e-5)
        after = after + found[f"{at}/ffn/output"]
        np.testing.assert_allclose(found[f"{at}/stream"], after, atol=1e-5)
        np.testing.assert_array_equal(found[f"{at}/stream"], found[f"{at}/ffn/stream"])
        weights = found[f"{at}/attention/weights"]
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        np.testing.assert_array_equal(jnp.triu(weights, 1), 0)
    hidden = model_of(BASE).apply(drawn(BASE), tokens_of(key)).hidden
    np.testing.assert_allclose(found["final_norm"], hidden, atol=1e-6)


@pytest.mark.parametrize("sublayers", ["parallel", "parallel_one_norm"])
def test_sublayers_side_by_side_read_one_stream_by_their_norms(key, sublayers):
    spec = changed(sublayers=sublayers, layers=1)
    found, layer = inside(spec, key, *EVERYTHING), drawn(spec)["params"]["layer_0"]
    x = np.asarray(found["embedded"], np.float64)
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    own = {"attention": "attention_norm_in", "ffn": "ffn_norm_in"}
    if sublayers == "parallel_one_norm":
        own["ffn"] = "attention_norm_in"
        assert "ffn_norm_in" not in layer
    for name, norm in own.items():
        expected = x * np.asarray(layer[norm]["scale"]) + np.asarray(layer[norm]["bias"])
        np.testing.assert_allclose(found[f"layer_0/{name}/input"], expected, atol=1e-5)
    both = found["layer_0/attention/output"] + found["layer_0/ffn/output"]
    np.testing.assert_allclose(found["layer_0/stream"], found["embedded"] + both, atol=1e-5)


def test_two_stacks_have_their_names_before_and_their_own_weights(key):
    spec = STACKS["encoder_decoder"]
    found = inside(spec, key, "*/weights", "encoder/embedded")
    assert {name: value.shape[-2:] for name, value in found.items()} == {
        "encoder/embedded": (S, D),
        "encoder/layer_0/attention/weights": (S, S),
        "decoder/layer_0/attention/weights": (T, T),
        "decoder/layer_0/cross_attention/weights": (T, S),
        "decoder/layer_1/attention/weights": (T, T),
        "decoder/layer_1/cross_attention/weights": (T, S),
    }
    for name, value in found.items():
        if name.endswith("weights"):
            np.testing.assert_allclose(value.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("name", ["scanned", pytest.param("two_scanned", marks=pytest.mark.slow)])
def test_a_scan_returns_what_the_loop_returns(key, name):
    spec = changed((VARIANTS | STACKS)[name], rematerialize="everything")
    loop, scan = (inside(changed(spec, scan_layers=x), key, "*") for x in (False, True))
    assert list(loop) == list(scan)
    for name in loop:
        np.testing.assert_allclose(loop[name], scan[name], atol=1e-5, err_msg=name)
    one = inside(changed(spec, scan_layers=True), key, "*layer_1/stream")
    assert all(name.endswith("layer_1/stream") for name in one)


@pytest.mark.parametrize(
    "name",
    [
        "grouped",
        *(
            pytest.param(x, marks=pytest.mark.slow)
            for x in ("pre", "branch", "scanned", "t5", "latent", "linear", "deepnorm", "one_norm")
        ),
    ],
)
def test_null_asking_moves_no_bit_of_the_logits(key, name):
    """By the compiler that users have, since it is the one who might fuse otherwise."""
    spec = VARIANTS[name]
    apply = jax.jit(build(spec).apply, static_argnames=("intermediates",))
    variables, tokens = drawn(spec), tokens_of(key)
    plain = apply(variables, tokens)
    asked = apply(variables, tokens, intermediates=EVERYTHING)
    np.testing.assert_array_equal(plain.logits, asked.logits)
    assert plain.intermediates == {}


def test_null_not_asking_computes_no_weights(key):
    variables, tokens = drawn(BASE), tokens_of(key)
    model = build(changed(rematerialize="everything"))
    plain, asked = (
        str(jax.make_jaxpr(lambda v, n=names: model.apply(v, tokens, intermediates=n))(variables))
        for names in ((), ("layer_0/attention/scores",))
    )
    assert len(asked) > len(plain)
    assert plain == str(jax.make_jaxpr(lambda v: model.apply(v, tokens))(variables))


@pytest.mark.parametrize(("ffn", "of_layer"), [("gelu", 8), ("swiglu", 9)])
def test_null_not_asking_makes_no_product_but_those_of_the_model(key, ffn, of_layer):
    """Four matrices of attention, scores, the read, and two matrices or three; then the head."""
    spec, tokens = changed(ffn=ffn), tokens_of(key)
    for names, more in (((), 0), (("layer_0/attention/mixed",), 0), (("layer_1/*/scores",), 1)):
        program = jax.make_jaxpr(lambda v, n=names: build(spec).apply(v, tokens, intermediates=n))
        assert str(program(drawn(spec))).count("dot_general[") == 2 * of_layer + 1 + more


def test_latent_weights_read_what_the_attention_reads(key):
    spec = VARIANTS["latent"]
    found = inside(spec, key, "layer_0/*")
    np.testing.assert_allclose(found["layer_0/attention/weights"].sum(-1), 1, atol=1e-5)
    parameters = jax.tree.map(np.asarray, drawn(spec)["params"])
    tree = parameters["layer_0"]["attention"]
    x = np.asarray(found["layer_0/attention/input"], np.float64)
    latent = x @ tree["latent"]["kernel"] + tree["latent"]["bias"][None, None]
    latent = latent / np.sqrt((latent**2).mean(-1, keepdims=True) + 1e-6)
    latent = latent * tree["latent_norm"]["scale"]
    values = np.einsum("BSC,CNV->BSNV", latent, tree["value"]["kernel"])
    read = np.einsum("BNTS,BSNV->BTNV", found["layer_0/attention/weights"], values)
    out = np.einsum("BTNV,NVD->BTD", read, tree["out"]["kernel"])
    np.testing.assert_allclose(found["layer_0/attention/output"], out, atol=1e-4)


def test_with_a_cache_the_weights_are_over_its_slots(key):
    spec = STACKS["encoder_decoder"]
    cache = empty_cache(spec, B=B, capacity=9, source_length=S)
    out = model_of(spec).apply(
        drawn(spec),
        tokens_of(key),
        cache=cache,
        intermediates=("decoder/layer_1/*attention/*",),
        **needed(spec, key),
    )
    shapes = {
        name.removeprefix("decoder/layer_1/"): value.shape
        for name, value in out.intermediates.items()
    }
    for name in ("scores", "weights"):
        assert shapes[f"attention/{name}"] == (B, N, T, 9)
        assert shapes[f"cross_attention/{name}"] == (B, N, T, S)
    assert shapes["attention/key_normed"] == (B, T, 1, D // N)
    assert shapes["cross_attention/key"] == (B, S, 1, D // N)
    with pytest.raises(ValueError, match="because the cache has the keys and values of the memory"):
        build(spec).apply(
            drawn(spec), tokens_of(key), cache=out.cache, intermediates=("*/cross_attention/key",)
        )
    # A call without a source has no values of the encoder.
    with pytest.raises(ValueError, match="'encoder/\\*' matches nothing"):
        build(spec).apply(
            drawn(spec), tokens_of(key), cache=out.cache, intermediates=("encoder/*",)
        )


@pytest.mark.parametrize(
    ("spec", "names", "message"),
    [
        (BASE, ("layer_0/atention/weights",), "did you mean 'layer_0/attention/weights'"),
        (BASE, ("layer_2/stream",), "'layer_2/stream' matches nothing"),
        (BASE, "embedded", "must be a sequence of names, got 'embedded'"),
        (changed(attention=LinearAttention()), ("*weights",), "linear attention has no weights"),
        (changed(position=Shaw()), ("layer_0/attention/weights",), "Shaw's relative positions"),
        (changed(position=Shaw()), ("*scores",), "Shaw's relative positions returns no weights"),
        (changed(sublayers="parallel"), ("layer_0/attention/stream",), "matches nothing"),
        (BASE, ("*/query_normed",), "because queries and keys have no norm; leave it out"),
        (BASE, ("*/key_turned",), "position.kind 'sinusoidal' turns no queries and keys"),
        (BASE, ("layer_0/ffn/gate",), "because ffn 'gelu' has no gate"),
        (changed(ffn="glu"), ("layer_0/ffn/hidden",), "because ffn 'glu' has a gate and an up"),
        (changed(head=Embedder()), ("logits",), "because the head has no scores"),
    ],
)
def test_error_names_that_are_not_there(key, spec, names, message):
    with pytest.raises(ValueError, match=message):
        build(spec).apply(drawn(spec), tokens_of(key), intermediates=names)


def test_activations_are_those_before_the_dropout(key):
    spec = changed(dropout=Dropout(ffn=0.5), layers=1)
    given = dict(intermediates=("layer_0/ffn/*",))
    apply, variables, tokens = model_of(spec).apply, drawn(spec), tokens_of(key)
    plain = apply(variables, tokens, **given).intermediates
    dropped = apply(variables, tokens, key=key, **given).intermediates
    name = "layer_0/ffn/activation"
    np.testing.assert_array_equal(dropped[name], plain[name])
    assert not np.allclose(dropped["layer_0/ffn/output"], plain["layer_0/ffn/output"])
