"""All probes together: every kind of model, and the record as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_grid import models
from probed import loss_of, parameters_of, sample_of
from quickly import quickly
from tiny_model import BASE, STACKS, VARIANTS, changed

from jtransformer.probes import (
    CAVEAT,
    Choice,
    Measured,
    activity,
    head_names,
    measure,
    to_record,
)
from jtransformer.spec import Precision

SPECS = VARIANTS | STACKS
QUICK = {"one": VARIANTS["branch"], "linear": changed(VARIANTS["linear"], layers=1),
         "two": STACKS["encoder_decoder"]}  # fmt: skip
PROGRAMS = {}


def sample(spec):
    source_vocabulary = spec.source_vocabulary or spec.vocabulary
    return sample_of(spec, vocabulary=spec.vocabulary, source_vocabulary=source_vocabulary)


def chosen(spec):
    return Choice(iterations=3, maps=head_names(spec)[-1:])


def nudged(parameters):
    return jax.tree.map(lambda x: x + 0.01, parameters)


def program_of(spec, choice):
    def program(own, updated, given):
        return measure(
            spec,
            own,
            given,
            loss_of(spec, given),
            key=jax.random.key(0),
            updated=updated,
            choice=choice,
        )

    return program


def measured(spec, *, choice=None, parameters=None):
    """Measures by a compiled program that tests share."""
    choice = choice or chosen(spec)
    own = parameters_of(spec) if parameters is None else parameters
    updated = nudged(own) if choice == chosen(spec) else None
    if (spec, choice) not in PROGRAMS:
        PROGRAMS[spec, choice] = quickly(program_of(spec, choice))
    return PROGRAMS[spec, choice](own, updated, sample(spec))


def is_number(value):
    return isinstance(value, float) and np.isfinite(value)


def check(spec, record):
    """Every list has its layers and heads, and what is missing has its reason."""
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    depths = {"encoder" if spec.stack.kind == "encoder" else "decoder": spec.layers}
    if spec.has_encoder:
        depths = {"encoder": spec.stack.encoder_layers, "decoder": spec.layers}
    assert set(record["stacks"]) == set(depths)
    for stack, L in depths.items():
        found = record["stacks"][stack]
        crosses = spec.has_encoder and stack == "decoder"
        attentions = ["attention", "cross_attention"] if crosses else ["attention"]
        sublayers = [*attentions, "ffn"]
        assert list(found["gradient_norm"]) == ["layer", *sublayers, "ffn_last"]
        by_layer = [*found["gradient_norm"].values(), *found["update_ratio"].values()]
        whole = sublayers if spec.sublayers == "sequential" else ["layer"]
        assert list(found["spectral_norm"]["stream"]) == whole
        assert list(found["spectral_norm"]["branch"]) == sublayers
        for level in found["spectral_norm"].values():
            by_layer += [values for norms in level.values() for values in norms.values()]
        by_layer += [values for values in found["ffn"].values() if values is not None]
        assert all(len(values) == L for values in by_layer)
        assert all(len(values) == L + 1 for values in found["stream"].values())
        by_head = [*found["ablation"].values()]
        by_head += [
            x for name in ("entropy", "relative_entropy") for x in found[name].values() if x
        ]
        assert list(found["ablation"]) == list(found["entropy"]) == attentions
        assert all(np.shape(values) == (L, spec.heads) for values in by_head)
        flat = [x for values in (*by_layer, found["stream"]["rms"]) for x in values]
        assert all(map(is_number, flat)), stack
        for name in ("ffn/zero_fraction", "ffn/saturated_fraction", "entropy/attention"):
            group, _, measure_name = name.partition("/")
            assert (found[group][measure_name] is None) == (name in record["reasons"])
    assert (record["logits"] is None) == ("logits" in record["reasons"])
    assert is_number(record["loss"]) and record["caveat"] == CAVEAT


def check_kind(spec):
    record = to_record(spec, measured(spec))
    check(spec, record)
    assert len(record["maps"]) == len(chosen(spec).maps)


@pytest.mark.parametrize("spec", QUICK.values(), ids=QUICK)
def test_some_kinds_of_model_can_be_measured(spec):
    check_kind(spec)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_every_variant_can_be_measured(spec):
    check_kind(spec)


@pytest.mark.slow
def test_every_kind_of_model_can_be_measured():
    """Traced alone, which is what can go wrong for a kind; compiling them all takes an hour."""
    for spec in models(40):
        own = parameters_of(spec)
        program = program_of(spec, chosen(spec))
        shapes = jax.eval_shape(program, own, nudged(own), sample(spec))
        ones = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), shapes)
        check(spec, to_record(spec, ones))


def test_the_record_holds_what_was_measured():
    spec = QUICK["one"]
    found = measured(spec)
    record = to_record(spec, found)
    stack, arrays = record["stacks"]["decoder"], found.activity.stacks["decoder"]
    pairs = [
        (record["loss"], found.loss),
        (record["logits"]["sd"], found.activity.logits.sd),
        (record["logits"]["largest"], found.activity.logits.largest),
        (record["outside"]["embedding"]["gradient_norm"], found.gradients.outside["embedding"]),
        (record["outside"]["embedding"]["update_ratio"], found.updates.outside["embedding"]),
        (stack["gradient_norm"]["ffn_last"], found.gradients.stacks["decoder"]["ffn_last"]),
        (stack["update_ratio"]["attention"], found.updates.stacks["decoder"]["attention"]),
        (stack["stream"]["outlier_ratio"], arrays.stream.outlier_ratio),
        (stack["entropy"]["attention"], arrays.entropy["attention"].nats),
        (stack["relative_entropy"]["attention"], arrays.entropy["attention"].relative),
        (stack["ffn"]["saturated_fraction"], arrays.saturated),
        (stack["ablation"]["attention"], found.ablation["decoder"]["attention"]),
    ]
    for level in ("stream", "branch"):
        norms = found.jacobians["decoder"][level]["ffn"]
        pairs += [(stack["spectral_norm"][level]["ffn"]["value"], norms.value)]
        pairs += [(stack["spectral_norm"][level]["ffn"]["residual"], norms.residual)]
    for written, value in pairs:
        np.testing.assert_array_equal(np.float32(written), value)
    assert record["row"] == found.activity.row == 0
    assert stack["positions"] == arrays.positions
    (drawn,) = record["maps"]
    weights = drawn.pop("weights")
    assert drawn == {"stack": "decoder", "layer": 1, "sublayer": "attention", "head": 2}
    expected = found.activity.maps["layer_1/attention/head_2"]
    np.testing.assert_allclose(weights, expected, atol=5.1e-6)
    assert weights[0][0] == 1.0 and weights[0][1] == 0.0


def test_null_what_is_not_chosen_is_not_measured_and_the_rest_stays():
    spec = QUICK["one"]
    all_of_it = measured(spec)
    less = measured(spec, choice=Choice(iterations=None, ablation=False))
    assert less.jacobians is None and less.ablation is None and less.updates is None
    np.testing.assert_array_equal(less.loss, all_of_it.loss)
    for found, expected in zip(
        jax.tree.leaves((less.gradients, less.activity)),
        jax.tree.leaves((all_of_it.gradients, all_of_it.activity._replace(maps={}))),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    record = to_record(spec, less)
    stack = record["stacks"]["decoder"]
    for name in ("spectral_norm", "ablation", "update_ratio"):
        assert stack[name] is None and name in record["reasons"]
    assert record["outside"]["embedding"]["update_ratio"] is None


def test_null_measuring_leaves_the_parameters_alone():
    spec = QUICK["one"]
    own = parameters_of(spec)
    before = jax.tree.map(np.array, own)
    measured(spec, parameters=own)
    jax.tree.map(np.testing.assert_array_equal, own, before)


def test_what_is_not_finite_is_none():
    spec = QUICK["one"]
    broken = jax.tree.map(lambda x: x * jnp.nan, parameters_of(spec))
    record = to_record(spec, measured(spec, parameters=broken))
    assert record["loss"] is None
    assert record["stacks"]["decoder"]["gradient_norm"]["ffn"] == [None, None]
    assert record["stacks"]["decoder"]["spectral_norm"]["branch"]["ffn"]["value"] == [None, None]
    json.dumps(record, allow_nan=False)


def test_a_head_that_does_not_exist_is_refused_before_any_work():
    def loss(parameters):
        raise AssertionError("the loss was called")

    choice = Choice(maps=("layer_9/attention/head_0",))
    with pytest.raises(ValueError, match="layer_9/attention/head_0"):
        measure(BASE, {}, sample(BASE), loss, key=jax.random.key(0), choice=choice)


def test_measured_is_a_tree_of_arrays():
    found = measured(QUICK["one"])
    assert isinstance(found, Measured)
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(found))


@pytest.mark.parametrize(
    "name", ["branch", pytest.param("encoder_decoder", marks=pytest.mark.slow)]
)
def test_parts_in_bfloat16_are_measured_in_float32(name):
    """Traced alone: a product of two types would be refused."""
    low = Precision(stream="bfloat16", attention="bfloat16", ffn="bfloat16", head="bfloat16")
    spec = changed(SPECS[name], precision=low)
    own = parameters_of(spec)
    program = program_of(spec, chosen(spec))
    found = jax.eval_shape(program, own, nudged(own), sample(spec))
    plain = jax.eval_shape(
        program_of(SPECS[name], chosen(SPECS[name])), own, nudged(own), sample(spec)
    )
    kinds = jax.tree.map(lambda x: str(x.dtype), found._replace(activity=None))
    assert kinds == jax.tree.map(lambda x: str(x.dtype), plain._replace(activity=None))
    measures = found.activity._replace(maps={}), plain.activity._replace(maps={})
    assert jax.tree.map(jnp.dtype, measures[0]) == jax.tree.map(jnp.dtype, measures[1])


def test_saturation_of_gates_is_that_of_the_same_gates_in_float32():
    spec = VARIANTS["branch"]
    low = changed(spec, precision=Precision(ffn="bfloat16"))
    ours, theirs = (
        quickly(lambda own, spec=one: activity(spec, own, sample(spec)))(parameters_of(one))
        for one in (low, spec)
    )
    for found, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0.1, atol=0.1)
