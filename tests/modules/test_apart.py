"""A model taken apart: its pieces, put together again by hand, are the model."""

import jax
import numpy as np
import pytest
from probed import parameters_of, sample_of
from quickly import quickly
from thinned import thinned
from tiny_model import BASE, STACKS, VARIANTS, V, model_of

from jtransformer.modules.apart import looped, observe, sublayer
from jtransformer.probes.sites import layers_of, prefix_of, sublayers_of
from jtransformer.spec import DotProduct

SPECS = VARIANTS | STACKS


def sample(spec):
    return sample_of(spec, source_vocabulary=spec.source_vocabulary or V)


@pytest.mark.parametrize("name", thinned(SPECS, str, one_of=2))
def test_each_sublayer_by_itself_gives_what_it_gave_in_the_model(name):
    spec = SPECS[name]
    given = sample(spec)

    def pieces(parameters):
        twin, own = looped(spec, parameters)
        output, calls = observe(twin, own, given.tokens, given.inputs, ("*",))
        kept, found = output.intermediates, {}
        for call in calls:
            prefix = prefix_of(call.part)
            at, layer = f"{prefix}layer_{call.layer}", layers_of(call.part, own)[call.layer]
            before = f"{prefix}layer_{call.layer - 1}/stream" if call.layer else f"{prefix}embedded"
            for name in sublayers_of(call.part):
                branch = sublayer(twin, call, name, "branch")
                found[f"{at}/{name}/output"] = branch(layer, kept[f"{at}/{name}/input"], call.own)
                if spec.sublayers == "sequential":
                    after = f"{at}/{name}/stream"
                    whole = sublayer(twin, call, name, "stream")
                    found[after] = whole(layer, kept[before], call.own)
                    before = after
            if spec.sublayers == "sequential":
                found[f"{at}/stream"] = found[before]
            else:
                whole = sublayer(twin, call, "layer", "stream")
                found[f"{at}/stream"] = whole(layer, kept[before], call.own)
        ends = ("/output", "/stream")
        return found, {name: x for name, x in kept.items() if name.endswith(ends)}, output.logits

    found, expected, logits = quickly(pieces)(parameters_of(spec))
    assert set(found) == set(expected)
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], atol=2e-6, err_msg=name)
    whole = model_of(spec).apply({"params": parameters_of(spec)}, given.tokens, **given.inputs)
    np.testing.assert_allclose(logits, whole.logits, atol=1e-5)


def test_a_mask_is_that_of_the_layer():
    spec = VARIANTS["grouped"]
    assert isinstance(spec.attention, DotProduct)
    given = sample(spec)
    masks = []

    def masked(parameters):
        calls = observe(spec, parameters, given.tokens, given.inputs, ()).calls
        masks.extend((call.layer, call.windowed) for call in calls)
        return [call.mask(spec, "attention").draw()[:, 0] for call in calls]

    windowed, full = jax.jit(masked)(parameters_of(spec))
    assert masks == [(0, True), (1, False)]
    valid = np.asarray(given.inputs["valid"])
    at = np.arange(valid.shape[1])
    causal = (at[None, :] <= at[:, None])[None] & valid[:, None, :]
    near = causal & (at[:, None] - at[None, :] < 3)[None]
    real = valid[:, :, None]
    np.testing.assert_array_equal(full & real, causal & real)
    np.testing.assert_array_equal(windowed & real, near & real)


def test_a_looped_model_is_its_own_twin_but_for_what_changes_no_number():
    assert looped(BASE, {"a": 1}) == (BASE, {"a": 1})
    twin, _ = looped(VARIANTS["scanned"], parameters_of(VARIANTS["scanned"]))
    assert (twin.scan_layers, twin.rematerialize) == (False, "nothing")
