"""Tests that a diagram says what the model is."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import model_grid
import numpy as np
import pytest
import tiny_model
from tiny_model import S, T, V, changed

from jtransformer import functional as F
from jtransformer.accounting import parameters
from jtransformer.drawing import Box, Layers, Residual, boxes_of, describe, masks
from jtransformer.modules import build
from jtransformer.modules.intermediates import all_names
from jtransformer.modules.parts import deepnorm_of, parts_of
from jtransformer.spec import (
    Classifier,
    DotProduct,
    Embedder,
    Encoder,
    EncoderDecoder,
    PrefixDecoder,
    Rope,
    Tagger,
    presets,
)

MORE = {
    "parallel sandwich": changed(sublayers="parallel", norm_placement="sandwich"),
    "parallel post": changed(sublayers="parallel", norm_placement="post", ffn="swiglu"),
    "none": changed(norm_placement="none", stream_scale=0.0, head=Embedder(embedding_width=5)),
    "deepnorm of two": changed(stack=EncoderDecoder(), norm_placement="deepnorm"),
    "pooled": changed(stack=Encoder(pooler=True), head=Classifier(pooling="first")),
    "tagger": changed(stack=Encoder(pooler=True), head=Tagger(), final_norm=False),
    "late norm": changed(
        layers=5,
        stack=Encoder(),
        embedding_norm=True,
        first_norm=False,
        attention=DotProduct(window=3, window_pattern="full,window", heads_off="3.1,3.0"),
        position=Rope(window_theta=9.0),
    ),
}
MODELS = tiny_model.VARIANTS | tiny_model.STACKS | MORE
EVERY_MODEL = pytest.mark.parametrize("spec", MODELS.values(), ids=MODELS)


def model_of(name):
    spec = presets.PRESETS[name]()
    return getattr(spec, "model", spec)


def expanded(nodes, count):
    """Yields every box of some nodes with its layer, those drawn once repeated."""
    for node in nodes:
        if isinstance(node, Box):
            yield None, node
            for row in node.rows:
                yield from expanded([part for part in row if part is not None], count)
        elif isinstance(node, Residual):
            parts = (*node.before, *itertools.chain(*node.branches), node.add, *node.after)
            yield from expanded(parts, count)
        else:
            assert isinstance(node, Layers)
            first = None
            for _ in range(node.repeat):
                layer = next(count) if node.is_layer else None
                for inner, box in expanded(node.nodes, count):
                    yield (inner if layer is None else layer), box
                    first = layer if first is None else first
            assert first in (None, node.first)


def boxes_with_layers(spec):
    """Yields the stack, layer and box of everything that is drawn."""
    for stack in describe(spec).stacks:
        for layer, box in expanded(stack.nodes, itertools.count()):
            yield stack, layer, box


SHAPES = {}


def shapes_of(spec):
    """Returns the shapes of the parameters; to trace a model takes a while, so tests share it."""
    if spec not in SHAPES:
        SHAPES[spec] = tiny_model.shapes_of(spec)
    return SHAPES[spec]


def tree_of(spec):
    """Returns the shapes of the parameters of a looped model by their path."""
    shapes = shapes_of(dataclasses.replace(spec, scan_layers=False))["params"]
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    return {"/".join(entry.key for entry in path): leaf.shape for path, leaf in leaves}


@pytest.mark.parametrize("name", presets.PRESETS)
def test_the_boxes_have_the_parameters_that_are_counted(name):
    diagram = describe(model_of(name), name)
    found = sum(box.parameters * times for box, times in boxes_of(diagram))
    assert found == diagram.total == parameters(model_of(name)).total


def test_the_boxes_of_any_model_have_the_parameters_that_are_counted():
    for model in model_grid.models(60):
        diagram = describe(model)
        keys = [box.key for box, _ in boxes_of(diagram)]
        assert len(set(keys)) == len(keys)
        assert sum(box.parameters * times for box, times in boxes_of(diagram)) == diagram.total


@EVERY_MODEL
def test_every_parameter_of_the_program_lies_in_one_box(spec):
    sizes = {}
    for path, shape in tree_of(spec).items():
        module = path.rpartition("/")[0]
        sizes[module] = sizes.get(module, 0) + int(np.prod(shape))
    for _, layer, box in boxes_with_layers(spec):
        own = [path.replace("layer_*", f"layer_{layer}") for path in box.paths]
        assert box.parameters == sum(sizes.pop(path) for path in own), box.key
    assert not sizes


@EVERY_MODEL
def test_the_norms_are_those_of_the_program(spec):
    drawn = [
        path.replace("layer_*", f"layer_{layer}")
        for _, layer, box in boxes_with_layers(spec)
        for path in box.paths
        if box.role == "norm"
    ]
    modules = {path.rpartition("/")[0] for path in tree_of(spec)}
    assert sorted(drawn) == sorted(path for path in modules if "norm" in path)


@EVERY_MODEL
def test_values_leave_the_boxes_as_they_come_to_be_in_the_program(spec):
    """Names, order and shapes are those of the intermediates that the program returns."""
    drawn = {}
    for stack, layer, box in boxes_with_layers(spec):
        prefix = f"{stack.key}/" if stack.key else ""
        place = prefix if layer is None else f"{prefix}layer_{layer}/"
        for value in box.values:
            name = value.name if value.name == "logits" else place + value.name
            assert name not in drawn
            drawn[name] = value.shape
    apply = functools.partial(
        build(spec).apply, intermediates=("*",), **tiny_model.needed(spec, jax.random.key(0))
    )
    tokens = jax.ShapeDtypeStruct((tiny_model.B, T), jnp.int32)
    returned = jax.eval_shape(apply, shapes_of(spec), tokens).intermediates
    assert list(drawn) == all_names(spec)
    sizes = {"B": tiny_model.B, "T": T, "S": S}
    shapes = {name: tuple(sizes.get(axis, axis) for axis in drawn[name]) for name in drawn}
    assert shapes == {name: value.shape for name, value in returned.items()}


@EVERY_MODEL
def test_the_stream_is_scaled_as_in_the_program(spec):
    parts = parts_of(spec)
    for stack in describe(spec).stacks:
        part = parts.encoder if stack.key == "encoder" else parts.main
        factors = deepnorm_of(spec, part)
        scale = spec.stream_scale if factors is None else factors.stream_scale
        sums = [box for _, box in expanded(stack.nodes, itertools.count()) if box.role == "sum"]
        wanted = "" if scale == 1 else f"{scale:.6g} "
        if scale == 0:
            assert {box.title for box in sums} == {"branch alone: no residual path"}
        else:
            assert {box.title.partition("stream")[0] for box in sums} == {wanted}
        assert any("DeepNorm" in fact for fact in stack.facts) == (factors is not None)


def test_the_number_of_sums_is_that_of_the_wiring():
    def sums(**changes):
        return [box for _, _, box in boxes_with_layers(changed(**changes)) if box.role == "sum"]

    assert len(sums()) == 2 * 2
    assert len(sums(sublayers="parallel")) == 2
    assert len(sums(stack=EncoderDecoder(encoder_layers=1))) == 2 + 2 * 3


MASKED = {
    "pattern": changed(attention=DotProduct(window=3, window_pattern="window,full")),
    "prefix": changed(stack=PrefixDecoder()),
    "encoder": changed(stack=Encoder(), attention=DotProduct(window=4)),
    "two stacks": changed(stack=EncoderDecoder(encoder_layers=1)),
}


@pytest.mark.parametrize("spec", MASKED.values(), ids=MASKED)
def test_masks_are_what_the_program_sees(spec):
    cells = masks.CELLS
    tokens = jax.random.randint(jax.random.key(0), (1, cells), 0, V)
    given = {"source": tokens} if spec.has_encoder else {}
    if isinstance(spec.stack, PrefixDecoder):
        given["prefix_length"] = masks.PREFIX
    apply = tiny_model.model_of(spec).apply
    out = apply(tiny_model.drawn(spec), tokens, intermediates=("*/weights",), **given)
    seen = {}
    for stack, layer, box in boxes_with_layers(spec):
        if box.mask is not None:
            prefix = f"{stack.key}/" if stack.key else ""
            name = box.key.rpartition("/")[0].rpartition("/")[2]
            seen[f"{prefix}layer_{layer}/{name}/weights"] = np.array(box.mask.cells)
            assert box.mask.step == 1
    assert seen.keys() == out.intermediates.keys()
    for name, weights in out.intermediates.items():
        np.testing.assert_array_equal(np.asarray(weights[0] > 0), np.stack(3 * [seen[name]]))


def test_scores_have_the_scale_that_is_written():
    spec = tiny_model.VARIANTS["latent"]  # The one kind whose scale is not that of the head width.
    tokens = jax.random.randint(jax.random.key(0), (1, T), 0, V)
    wanted = ("layer_0/attention/*",)
    out = tiny_model.model_of(spec).apply(tiny_model.drawn(spec), tokens, intermediates=wanted)
    values = {name.rpartition("/")[2]: x for name, x in out.intermediates.items()}
    products = jnp.einsum("BTNH,BSNH->BNTS", values["query"], values["key"])
    shared = jnp.broadcast_to(values["key_turned"], values["query_turned"].shape)
    products += jnp.einsum("BTNH,BSNH->BNTS", values["query_turned"], shared)
    (read,) = [box for box, _ in boxes_of(describe(spec)) if box.mask is not None]
    scale = float(read.facts[0].removeprefix("scores: query · key / √")) ** -0.5
    np.testing.assert_allclose(values["scores"], scale * products, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ffn", F.FFN_KINDS)
def test_the_activation_is_that_of_the_program(ffn):
    kind = F.FFN_KINDS[ffn]
    titles = [box.title for box, _ in boxes_of(describe(changed(ffn=ffn))) if box.role == "ffn"]
    name, *gate = titles[1].split(" of gate, times up")
    assert getattr(F, name) is kind.activation and bool(gate) == kind.gated


def test_a_wide_window_is_drawn_at_every_so_many_th_token():
    (box,) = [box for box, _ in boxes_of(describe(model_of("modernbert_base")))
              if box.mask and box.mask.step > 1]  # fmt: skip
    step = box.mask.step
    places = step * np.arange(masks.CELLS)
    near = np.abs(places[:, None] - places) < 65
    np.testing.assert_array_equal(np.array(box.mask.cells), near)
    assert f"every {step}th token" in " ".join(box.facts)


def test_shared_tables_are_counted_once_and_joined():
    links = {(link.start, link.end, link.what) for link in describe(model_of("t5_small")).links}
    assert links == {
        ("encoder/embedding", "decoder/embedding", "table"),
        ("decoder/embedding", "decoder/head", "table"),
        ("encoder/memory", "decoder/layers_0/cross_attention", "memory"),
    }
    assert not describe(model_of("llama2_7b")).links
