"""Norms by layer: each parameter is counted once, in its place."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probed import loss_of, parameters_of, sample_of
from quickly import quickly
from thinned import thinned
from tiny_model import BASE, STACKS, VARIANTS

from jtransformer.probes import gradient_norms, update_ratios
from jtransformer.probes.sizes import norms

SPECS = VARIANTS | STACKS
SOME = pytest.mark.parametrize("name", thinned(SPECS, str, one_of=3))


def leaves_of(tree):
    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {"/".join(entry.key for entry in path): np.asarray(x, np.float64) for path, x in found}


def norm_of(leaves, pattern, layer=None):
    """Returns the norm of all leaves whose path matches; of one layer of those that are stacked."""
    picked = [x if layer is None else x[layer] for n, x in leaves.items() if re.match(pattern, n)]
    assert picked, pattern
    return np.sqrt(sum(np.sum(np.square(x)) for x in picked))


GROUPS = {
    "layer": "",
    "attention": "attention[/_]",
    "cross_attention": "(cross_attention[/_]|memory_norm/)",
    "ffn": "ffn[/_]",
    "ffn_last": "ffn/(out|down)/kernel",
}


def expected_norms(spec, tree):
    """The norms, leaf by leaf, from the paths of the parameters as text."""
    leaves, stacks = leaves_of(tree), {}
    if spec.has_encoder:
        depths = {"encoder": spec.stack.encoder_layers, "decoder": spec.layers}
    else:
        depths = {"encoder" if spec.stack.kind == "encoder" else "decoder": spec.layers}
    for stack, depth in depths.items():
        scope = f"{stack}/" if spec.has_encoder else ""
        crosses = spec.has_encoder and stack == "decoder"
        for group, inside in GROUPS.items():
            if group == "cross_attention" and not crosses:
                continue
            stacks.setdefault(stack, {})[group] = [
                norm_of(leaves, f"{scope}layers/{inside}", layer)
                if spec.scan_layers
                else norm_of(leaves, f"{scope}layer_{layer}/{inside}")
                for layer in range(depth)
            ]
    return stacks


@SOME
def test_norms_are_those_of_the_leaves(name):
    spec = SPECS[name]
    tree = parameters_of(spec)
    found = norms(spec, tree)
    expected = expected_norms(spec, tree)
    assert {stack: set(groups) for stack, groups in found.stacks.items()} == {
        stack: set(groups) for stack, groups in expected.items()
    }
    for stack, groups in expected.items():
        for group, values in groups.items():
            np.testing.assert_allclose(found.stacks[stack][group], values, rtol=1e-5)


@SOME
def test_every_parameter_is_counted_once(name):
    spec = SPECS[name]
    tree = parameters_of(spec)
    found = norms(spec, tree)
    total = sum(np.sum(np.square(x)) for x in leaves_of(tree).values())
    by_layer = sum(np.sum(np.square(groups["layer"])) for groups in found.stacks.values())
    outside = sum(np.square(value) for value in found.outside.values())
    np.testing.assert_allclose(by_layer + outside, total, rtol=1e-5)
    for groups in found.stacks.values():
        parts = [np.square(groups[name]) for name in groups if name not in ("layer", "ffn_last")]
        np.testing.assert_allclose(sum(parts), np.square(groups["layer"]), rtol=1e-5)


def test_what_lies_outside_the_layers_has_its_own_name():
    assert set(norms(BASE, parameters_of(BASE)).outside) == {"embedding", "final_norm"}
    spec = STACKS["two_scanned"]
    assert set(norms(spec, parameters_of(spec)).outside) == {
        "embedding", "encoder/final_norm", "encoder/position_bias", "decoder/final_norm",
        "decoder/position_bias",
    }  # fmt: skip


@pytest.mark.parametrize("name", thinned(("encoder_decoder", "pre", "scanned"), str, one_of=3))
def test_gradient_norms_are_those_of_the_gradient(name):
    spec = SPECS[name]
    loss, parameters = loss_of(spec, sample_of(spec)), parameters_of(spec)

    def both(parameters):
        return gradient_norms(spec, parameters, loss), jax.grad(loss)(parameters)

    found, gradients = quickly(both)(parameters)
    for stack, groups in expected_norms(spec, gradients).items():
        for group, values in groups.items():
            np.testing.assert_allclose(found.stacks[stack][group], values, rtol=1e-4)
    embedding = norm_of(leaves_of(gradients), "embedding/")
    np.testing.assert_allclose(found.outside["embedding"], embedding, rtol=1e-4)


def test_a_vanishing_or_exploding_gradient_has_a_norm():
    tree = parameters_of(BASE)
    plain = norms(BASE, tree)
    for factor in (1e-30, 1e30):
        scaled = norms(BASE, jax.tree.map(lambda x, factor=factor: x * factor, tree))
        for group, values in plain.stacks["decoder"].items():
            np.testing.assert_allclose(scaled.stacks["decoder"][group], values * factor, rtol=1e-5)


def test_zero_has_norm_zero_and_no_ratio():
    tree = jax.tree.map(jnp.zeros_like, parameters_of(BASE))
    np.testing.assert_array_equal(norms(BASE, tree).stacks["decoder"]["layer"], 0)
    ratio = update_ratios(BASE, tree, parameters_of(BASE))
    assert np.isnan(ratio.stacks["decoder"]["layer"]).all()


def test_an_update_of_one_percent_is_one_percent_everywhere():
    before = parameters_of(VARIANTS["scanned"])
    ratios = update_ratios(VARIANTS["scanned"], before, jax.tree.map(lambda x: x * 1.01, before))
    for value in jax.tree.leaves(ratios):
        np.testing.assert_allclose(value, 0.01, rtol=1e-3)


def test_null_an_update_that_moves_nothing_is_zero():
    before = parameters_of(BASE)
    for value in jax.tree.leaves(update_ratios(BASE, before, before)):
        np.testing.assert_array_equal(value, 0)


def test_an_update_of_one_matrix_shows_in_its_groups_alone():
    before = parameters_of(BASE)
    kernel = before["layer_1"]["ffn"]["out"]["kernel"]
    moved = {"ffn": before["layer_1"]["ffn"] | {"out": {"kernel": kernel + 0.1}}}
    ratios = update_ratios(BASE, before, before | {"layer_1": before["layer_1"] | moved})
    size = np.sqrt(np.sum(np.square(np.asarray(kernel, np.float64))))
    expected = 0.1 * np.sqrt(kernel.size) / size
    np.testing.assert_allclose(ratios.stacks["decoder"]["ffn_last"], [0, expected], rtol=1e-4)
    np.testing.assert_array_equal(ratios.stacks["decoder"]["attention"], [0, 0])
    assert (ratios.stacks["decoder"]["ffn"] > 0).tolist() == [False, True]
    assert (ratios.stacks["decoder"]["layer"] > 0).tolist() == [False, True]
    assert not any(ratios.outside.values())
