"""The loss without a head: beside models that have the head switched off, and what is exact."""

import dataclasses

import jax
import numpy as np
import pytest
from probed import loss_of, parameters_of, sample_of
from quickly import quickly
from tiny_model import BASE, STACKS, VARIANTS, V, changed

from jtransformer.modules import stack_layers
from jtransformer.probes import head_ablation
from jtransformer.spec import DotProduct

GROUPED = changed(key_value_heads=1, norm_placement="post")


def sample(spec):
    return sample_of(spec, source_vocabulary=spec.source_vocabulary or V)


def grown(spec, parameters=None):
    loss = loss_of(spec, sample(spec))
    own = parameters_of(spec) if parameters is None else parameters
    return quickly(lambda own: head_ablation(spec, own, loss))(own)


def loss_at(spec, parameters):
    return float(quickly(loss_of(spec, sample(spec)))(parameters))


def test_it_is_the_loss_of_a_model_whose_head_is_switched_off():
    found, own = grown(GROUPED)["decoder"]["attention"], parameters_of(GROUPED)
    assert found.shape == (GROUPED.layers, GROUPED.heads)
    for layer, head in ((0, 0), (0, 2), (1, 1)):
        off = DotProduct(heads_off=f"{layer}.{head}")
        without = loss_at(dataclasses.replace(GROUPED, attention=off), own)
        np.testing.assert_allclose(
            found[layer, head], without - loss_at(GROUPED, own), rtol=1e-3, atol=1e-6
        )
    assert len(set(np.asarray(found).ravel().tolist())) == found.size


def rows_zeroed(tree, place, head):
    """Zeroes the rows of an output matrix that belong to a head, and nothing else."""
    name, *rest = place
    if not rest:
        kernel = np.array(tree[name]["out"]["kernel"])
        kernel[head] = 0
        return tree | {name: tree[name] | {"out": tree[name]["out"] | {"kernel": kernel}}}
    return tree | {name: rows_zeroed(tree[name], rest, head)}


@pytest.mark.parametrize(
    ("spec", "stack", "place"),
    [
        (VARIANTS["linear"], "decoder", ("layer_1", "attention")),
        (VARIANTS["latent"], "decoder", ("layer_0", "attention")),
        (STACKS["encoder_decoder"], "encoder", ("encoder", "layer_0", "attention")),
        (STACKS["encoder_decoder"], "decoder", ("decoder", "layer_1", "cross_attention")),
    ],
    ids=["linear", "latent", "encoder", "cross"],
)
def test_a_head_whose_rows_are_zero_changes_nothing(spec, stack, place):
    own, layer = parameters_of(spec), int(place[-2].removeprefix("layer_"))
    zeroed = rows_zeroed(own, place, 1)
    before, after = (grown(spec, tree)[stack][place[-1]] for tree in (own, zeroed))
    assert after[layer, 1] == 0
    assert (np.asarray(before) != 0).all()
    assert (np.asarray(after) != 0).sum() == after.size - 1
    expected = loss_at(spec, zeroed) - loss_at(spec, own)
    np.testing.assert_allclose(before[layer, 1], expected, rtol=1e-3, atol=1e-6)


def test_layers_of_a_scan_are_switched_off_one_by_one():
    looped = BASE
    scanned = dataclasses.replace(looped, scan_layers=True)
    stacked = stack_layers(looped, {"params": parameters_of(looped)})["params"]
    np.testing.assert_allclose(
        grown(scanned, stacked)["decoder"]["attention"],
        grown(looped)["decoder"]["attention"],
        atol=2e-6,
    )


def test_null_the_parameters_are_left_alone_and_compiling_is_no_matter():
    spec = changed(layers=1)
    own, loss = parameters_of(spec), loss_of(spec, sample(spec))
    before = jax.tree.map(np.array, own)
    found = head_ablation(spec, own, loss)
    jax.tree.map(np.testing.assert_array_equal, own, before)
    np.testing.assert_allclose(
        found["decoder"]["attention"], grown(spec)["decoder"]["attention"], atol=1e-6
    )
