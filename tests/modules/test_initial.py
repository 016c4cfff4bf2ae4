"""Tests for jtransformer.modules.initial: who starts equal, and how large."""

import dataclasses
import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer.modules import build, initialiser, keys_at
from jtransformer.spec import Learned, ModelSpec, RMSNorm

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/parameter_trees.json"
BASE = ModelSpec(vocabulary=256, width=64, layers=2, heads=4, ffn_width=256)
TREES = {
    "pre-gelu": BASE,
    "post-swiglu": dataclasses.replace(BASE, norm_placement="post", ffn="swiglu", ffn_width=170),
    "sandwich-rms-untied-biased-learned": dataclasses.replace(
        BASE,
        norm_placement="sandwich",
        norm=RMSNorm(),
        tied_head=False,
        attention_bias=True,
        ffn_bias=True,
        position=Learned(max_length=64),
        initialization="gpt2",
    ),
}


def parameters(spec, seed=0):
    return jax.jit(build(spec).init)(jax.random.key(seed), jnp.zeros((1, 8), jnp.int32))["params"]


def flat(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(entry.key for entry in path): leaf for path, leaf in leaves}


@pytest.mark.parametrize(
    "change",
    [
        {"norm_placement": "post"},
        {"norm_placement": "sandwich"},
        {"ffn": "swiglu", "ffn_width": 170},
        {"attention_bias": True, "ffn_bias": True},
        {"tied_head": False},
        {"position": Learned(max_length=16)},
        {"layers": 3},
    ],
    ids=str,
)
def test_arms_start_equal_where_path_and_shape_agree(change):
    ours, theirs = flat(parameters(BASE)), flat(parameters(dataclasses.replace(BASE, **change)))
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


def test_key_of_a_layer_is_its_path_without_the_index_and_then_the_index():
    key = jax.random.key(3)
    paths = [("layer", "ffn", "in", "kernel"), ("layer_5", "ffn", "in", "kernel")]
    plain, found = keys_at(key, paths)
    folded = jax.random.fold_in(plain, 5)
    assert jnp.array_equal(jax.random.key_data(found), jax.random.key_data(folded))


def test_each_parameter_is_drawn_from_its_own_key_alone():
    found = flat(parameters(BASE))
    names = ("layer_1", "attention", "value", "kernel")
    (key,) = keys_at(jax.random.key(0), [names])
    np.testing.assert_array_equal(
        found["/".join(names)], 0.125 * jax.random.normal(key, (64, 4, 16))
    )


def test_a_raw_key_and_a_dict_of_keys_are_taken_as_well():
    key, tokens = jax.random.key(0), jnp.zeros((1, 8), jnp.int32)
    plain, named = build(BASE).init(key, tokens), build(BASE).init({"params": key}, tokens)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, plain, named))
    raw = build(BASE).init(jax.random.PRNGKey(0), tokens)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, plain, raw))


def test_init_under_jit_is_the_same():
    tokens = jnp.zeros((1, 8), jnp.int32)
    jitted = jax.jit(build(BASE).init)(jax.random.key(0), tokens)
    eager = build(BASE).init(jax.random.key(0), tokens)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, jitted, eager))


def test_fan_in_deviations_are_those_of_the_contracted_axes():
    spec = dataclasses.replace(BASE, width=256, heads=4, ffn_width=512, tied_head=False)
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


def test_fan_in_of_a_head_projection_is_the_model_width():
    spec = ModelSpec(width=512, heads=8)
    start = initialiser(spec, ("layer_0", "attention", "query", "kernel"), (512, 8, 64))
    np.testing.assert_allclose(start.deviation, 0.044194, atol=1e-6)


def test_gpt2_scales_the_two_matrices_per_layer_that_write_to_the_stream():
    spec = dataclasses.replace(BASE, layers=12, width=768, heads=12, initialization="gpt2")
    paths = [
        path
        for path in flat(jax.eval_shape(lambda: parameters(spec)))
        if path.endswith(("kernel", "table"))
    ]
    deviations = {
        path: initialiser(spec, tuple(path.split("/")), (768, 3072)).deviation for path in paths
    }
    small = [path for path, deviation in deviations.items() if deviation < 0.02]
    assert len(small) == 2 * spec.layers
    assert all(math.isclose(deviations[path], 0.00408248, rel_tol=1e-5) for path in small)
    assert all(path.endswith(("attention/out/kernel", "ffn/out/kernel")) for path in small)


def test_a_user_may_nest_the_model_in_a_module_of_his_own():
    import flax.linen as nn

    class Outer(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            return build(BASE)(tokens).logits

    variables = Outer().init(jax.random.key(0), jnp.zeros((1, 8), jnp.int32))
    kernel = variables["params"]["Transformer_0"]["layer_0"]["ffn"]["out"]["kernel"]
    np.testing.assert_allclose(np.std(kernel), 256**-0.5, rtol=0.05)


@pytest.mark.parametrize("name", TREES)
def test_parameter_trees_are_those_of_the_golden_file(name):
    """Paths, shapes and initialisers are public: checkpoints and other code refer to them.

    After an intended change, write the file again from `found` and say so in CHANGELOG.md.
    """
    spec = TREES[name]
    found = {
        path: [list(leaf.shape), str(initialiser(spec, tuple(path.split("/")), leaf.shape))]
        for path, leaf in flat(jax.eval_shape(lambda: parameters(spec))).items()
    }
    assert found == json.loads(GOLDEN.read_text())[name]
