"""Tests for jtransformer.modules.initial: who starts equal, and how large."""

import json
import math
import pathlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly
from tiny_model import STACKS, changed, needed, started

from jtransformer import functional as F
from jtransformer.modules import build, initialiser, keys_at
from jtransformer.spec import (
    DynamicTanh,
    EncoderDecoder,
    LatentAttention,
    LayerScale,
    Learned,
    ModelSpec,
    ReZero,
    RMSNorm,
    Rope,
    ScaleNorm,
    Shaw,
    T5Bias,
    TokenHead,
)

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/parameter_trees.json"
BASE = ModelSpec(vocabulary=256, width=64, layers=2, heads=4, ffn_width=256)
TREES = {
    "pre-gelu": BASE,
    "post-swiglu": changed(BASE, norm_placement="post", ffn="swiglu", ffn_width=170),
    "sandwich-rms-untied-biased-learned": changed(
        BASE,
        norm_placement="sandwich",
        norm=RMSNorm(),
        head=TokenHead(tied=False),
        qkv_bias=True,
        attention_out_bias=True,
        ffn_bias=True,
        position=Learned(max_length=64),
        initialization="gpt2",
    ),
    "two-stacks-deepnorm-shaw": changed(
        BASE,
        layers=1,
        stack=EncoderDecoder(encoder_layers=1, share_embedding=False, normalize_memory=True),
        norm_placement="deepnorm",
        position=Shaw(max_distance=2, values=True),
        branch_scale=LayerScale(),
    ),
    "latent-rope-scanned": changed(
        BASE,
        attention=LatentAttention(latent_width=16, rotary_width=4, value_width=8),
        position=Rope(),
        qkv_bias=True,
        scan_layers=True,
        initialization="xavier",
        norm=DynamicTanh(),
        branch_scale=ReZero(),
    ),
    "t5-scale-norm": changed(
        BASE, layers=1, position=T5Bias(), initialization="t5", norm=ScaleNorm()
    ),
}
PATHS = {
    "query": ("attention", "query", "kernel"),
    "key": ("attention", "key", "kernel"),
    "value": ("attention", "value", "kernel"),
    "out": ("attention", "out", "kernel"),
    "in": ("ffn", "in", "kernel"),
    "ffn out": ("ffn", "out", "kernel"),
}
SHAPES = {
    "query": (64, 4, 16), "key": (64, 4, 16), "value": (64, 4, 16), "out": (4, 16, 64),
    "in": (64, 256), "ffn out": (256, 64),
}  # fmt: skip


def parameters(spec, seed=0):
    if seed == 0:
        return started(spec)[1]["params"]
    return jax.jit(build(spec).init)(jax.random.key(seed), jnp.zeros((1, 8), jnp.int32))["params"]


def flat(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(entry.key for entry in path): leaf for path, leaf in leaves}


def deviations(spec, *scope):
    return {
        name: initialiser(spec, (*scope, *path), SHAPES[name]).deviation
        for name, path in PATHS.items()
    }


@pytest.mark.parametrize(
    "change",
    [
        {"norm_placement": "sandwich", "position": Learned(max_length=16), "layers": 3},
        {"ffn": "swiglu", "qkv_bias": True, "sublayers": "parallel_one_norm", "position": T5Bias()},
    ],
    ids=str,
)
def test_arms_start_equal_where_path_and_shape_agree(change):
    ours, theirs = flat(parameters(BASE)), flat(parameters(changed(BASE, **change)))
    shared = [name for name in ours if name in theirs and ours[name].shape == theirs[name].shape]
    assert {"embedding/table", "layer_1/attention/query/kernel"} <= set(shared)
    for name in shared:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def test_seeds_layers_and_paths_start_differently():
    first, second = flat(parameters(BASE, 0)), flat(parameters(BASE, 1))
    for name in first:
        if name.endswith(("kernel", "table")):
            assert not np.array_equal(first[name], second[name]), name
    drawn = [leaf.ravel()[:50] for name, leaf in first.items() if name.endswith("kernel")]
    for index, values in enumerate(drawn):
        for other in drawn[:index]:
            assert abs(np.corrcoef(values, other)[0, 1]) < 0.6


def test_the_two_stacks_start_differently():
    spec = changed(STACKS["encoder_decoder"], stack=EncoderDecoder(encoder_layers=2))
    tokens = jnp.zeros((1, 8), jnp.int32)
    found = flat(quickly(build(spec).init)(jax.random.key(0), tokens)["params"])
    name = "layer_0/attention/query/kernel"
    assert not np.array_equal(found[f"encoder/{name}"], found[f"decoder/{name}"])
    cross = "decoder/layer_0/cross_attention/query/kernel"
    assert not np.array_equal(found[cross], found[f"decoder/{name}"])


def test_key_of_a_layer_is_its_path_without_the_index_and_then_the_index():
    key = jax.random.key(3)
    paths = [("layer", "ffn", "in", "kernel"), ("layer_5", "ffn", "in", "kernel")]
    plain, found = keys_at(key, paths)
    folded = jax.random.fold_in(plain, 5)
    assert jnp.array_equal(jax.random.key_data(found), jax.random.key_data(folded))


def test_each_parameter_is_drawn_from_its_own_key_alone():
    names = ("layer_1", "attention", "value", "kernel")
    (key,) = keys_at(jax.random.key(0), [names])
    expected = 0.125 * jax.random.normal(key, (64, 4, 16))
    np.testing.assert_array_equal(flat(parameters(BASE))["/".join(names)], expected)
    stacked = flat(parameters(changed(BASE, scan_layers=True)))
    np.testing.assert_array_equal(stacked["layers/attention/value/kernel"][1], expected)


def test_a_raw_key_a_dict_of_keys_and_a_source_are_taken_as_well():
    key, tokens = jax.random.key(0), jnp.zeros((1, 8), jnp.int32)
    spec = changed(layers=1)
    init = quickly(build(spec).init)
    plain = init(key, tokens)
    for rngs in ({"params": key}, jax.random.PRNGKey(0)):
        assert jax.tree.all(jax.tree.map(jnp.array_equal, plain, init(rngs, tokens)))
    two = build(STACKS["encoder_decoder"])
    source = needed(two.spec, key)["source"][:1]
    shapes = [jax.eval_shape(two.init, key, tokens, source=given) for given in (source, None)]
    assert shapes[0] == shapes[1]


def test_init_under_jit_is_the_same():
    # At a width of 64: where deviations are no powers of two, fusing them moves the last bits.
    spec = changed(BASE, layers=1)
    tokens = jnp.zeros((1, 8), jnp.int32)
    jitted = jax.jit(build(spec).init)(jax.random.key(0), tokens)
    eager = build(spec).init(jax.random.key(0), tokens)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, jitted, eager))


def test_fan_in_deviations_are_those_of_the_contracted_axes():
    spec = changed(BASE, width=256, heads=4, ffn_width=512, head=TokenHead(tied=False))
    found = flat(parameters(spec))
    expected = {
        "layer_0/attention/query/kernel": 256**-0.5,
        "layer_0/attention/out/kernel": 256**-0.5,
        "layer_0/ffn/in/kernel": 256**-0.5,
        "layer_0/ffn/out/kernel": 512**-0.5,
        "head/kernel": 256**-0.5,
        "embedding/table": 256**-0.5,
    }
    for name, deviation in expected.items():
        np.testing.assert_allclose(np.std(found[name]), deviation, rtol=0.02, err_msg=name)


@pytest.mark.parametrize("path", [("layer_0",), ("layers",), ("outer", "encoder", "layer_0")])
def test_fan_in_of_a_head_projection_is_the_model_width(path):
    """The fault of counting the heads among the fan-in, or the layers that are stacked."""
    spec = ModelSpec(width=512, heads=8)
    shape = (12, 512, 8, 64) if path == ("layers",) else (512, 8, 64)
    start = initialiser(spec, (*path, "attention", "query", "kernel"), shape)
    np.testing.assert_allclose(start.deviation, 0.044194, atol=1e-6)
    xavier = changed(spec, initialization="xavier")
    start = initialiser(xavier, (*path, "attention", "query", "kernel"), shape)
    np.testing.assert_allclose(start.deviation, 0.044194, atol=1e-6)
    out = initialiser(spec, (*path, "attention", "out", "kernel"), (*shape[:-3], 8, 32, 512))
    np.testing.assert_allclose(out.deviation, 256**-0.5, rtol=1e-6)


def test_gpt2_scales_the_matrices_that_write_to_the_stream():
    spec = changed(BASE, layers=12, width=768, heads=12, initialization="gpt2")
    found = deviations(spec, "layer_3")
    small = {name for name, deviation in found.items() if deviation < 0.02}
    assert small == {"out", "ffn out"}
    assert all(math.isclose(found[name], 0.00408248, rel_tol=1e-5) for name in small)
    # A decoder layer with cross-attention has three branches.
    two = changed(spec, stack=EncoderDecoder(encoder_layers=3))
    assert math.isclose(deviations(two, "decoder", "layer_0")["out"], 0.02 / 36**0.5)
    assert math.isclose(deviations(two, "encoder", "layer_0")["out"], 0.02 / 6**0.5)


def test_the_other_initialisations():
    xavier = deviations(changed(BASE, initialization="xavier"), "layer_0")
    assert math.isclose(xavier["in"], (2 / (64 + 256)) ** 0.5)
    t5 = deviations(changed(BASE, initialization="t5"), "layer_0")
    assert math.isclose(t5["query"], (64 * 16) ** -0.5)
    assert math.isclose(t5["key"], 64**-0.5) and math.isclose(t5["ffn out"], 256**-0.5)
    assert set(deviations(changed(BASE, initialization="bert"), "layer_0").values()) == {0.02}
    tables = {"fan_in": 0.125, "xavier": 0.125, "bert": 0.02, "gpt2": 0.02, "t5": 1.0}
    for name, deviation in tables.items():
        spec = changed(BASE, initialization=name)
        for table in ("embedding", "source_embedding", "position", "token_type"):
            assert initialiser(spec, (table, "table"), (256, 64)).deviation == deviation


@pytest.mark.parametrize("initialization", ["fan_in", "xavier", "bert"])
def test_deepnorm_multiplies_values_outputs_and_feed_forward_by_the_gain_of_their_stack(
    initialization,
):
    plain = changed(BASE, initialization=initialization)
    single = changed(plain, norm_placement="deepnorm")
    two = changed(single, stack=EncoderDecoder(encoder_layers=6))
    both = F.deepnorm(encoder_layers=6, decoder_layers=2)
    alone = F.deepnorm(decoder_layers=2)
    for spec, scope, factors in (
        (single, (), alone.decoder),
        (two, ("encoder",), both.encoder),
        (two, ("decoder",), both.decoder),
    ):
        base, found = deviations(plain, "layer_0"), deviations(spec, *scope, "layer_0")
        for name in PATHS:
            gain = 1.0 if name in ("query", "key") else factors.init_gain
            assert math.isclose(found[name], gain * base[name]), (scope, name)


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ({}, ("layer_0", "ffn_norm_in", "scale"), 1.0),
        ({"norm": RMSNorm(unit_offset=True)}, ("final_norm", "scale"), 0.0),
        ({"norm": RMSNorm(unit_offset=True)}, ("layer_0", "attention", "key_norm", "scale"), 1.0),
        ({"norm": ScaleNorm()}, ("final_norm", "scale"), 8.0),
        ({"norm": ScaleNorm()}, ("layer_0", "attention", "latent_norm", "scale"), 1.0),
        ({"norm": DynamicTanh(alpha=0.7)}, ("final_norm", "alpha"), 0.7),
        ({"branch_scale": ReZero()}, ("layer_0", "ffn_branch_scale", "scale"), 0.0),
        ({"branch_scale": LayerScale(initial=0.1)}, ("layers", "ffn_branch_scale", "scale"), 0.1),
    ],
)
def test_constant_starts(change, path, expected):
    start = initialiser(changed(BASE, **change), path, (64,))
    assert (start.mean, start.deviation) == (expected, 0.0)


def test_a_user_may_nest_the_model_in_a_module_of_his_own():
    class Outer(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            return build(changed(BASE, scan_layers=True))(tokens).logits

    variables = quickly(Outer().init)(jax.random.key(0), jnp.zeros((1, 8), jnp.int32))
    kernel = variables["params"]["Transformer_0"]["layers"]["ffn"]["out"]["kernel"]
    np.testing.assert_allclose(np.std(kernel), 256**-0.5, rtol=0.05)


@pytest.mark.parametrize("name", TREES)
def test_parameter_trees_are_those_of_the_golden_file(name):
    """Paths, shapes and initialisers are public: checkpoints and other code refer to them.

    After an intended change, write the file again from `found` and say so in CHANGELOG.md.
    """
    spec = TREES[name]
    shapes = jax.eval_shape(build(spec).init, jax.random.key(0), jnp.zeros((1, 8), jnp.int32))
    found = {
        path: [list(leaf.shape), str(initialiser(spec, tuple(path.split("/")), leaf.shape))]
        for path, leaf in flat(shapes["params"]).items()
    }
    assert found == json.loads(GOLDEN.read_text())[name]
