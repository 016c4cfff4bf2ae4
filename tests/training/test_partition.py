"""Tests for jtransformer.training.partition: which axis of what lies where."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P
from meshed import MODELS, batches, model, program_of

from jtransformer.modules import build
from jtransformer.modules.initial import STACKED
from jtransformer.spec import (
    Adafactor,
    Encoder,
    LatentAttention,
    Layout,
    Learned,
    Muon,
    OptimizerSpec,
    Rope,
    RunSpec,
    TokenHead,
)
from jtransformer.training import (
    divisions,
    partition,
    partition_optimizer,
    partition_parameters,
)
from jtransformer.training.partition import RULES, names_of, partition_moments, sizes_over

BOTH = Layout(data=2, fsdp=2, tensor=2)
PLACES = {
    ("embedding", "table"): ((256, 24), P("tensor", "fsdp")),
    ("source_embedding", "table"): ((256, 24), P("tensor", "fsdp")),
    ("position", "table"): ((16, 24), P(None, "fsdp")),
    ("layer_1", "attention", "query", "kernel"): ((24, 4, 8), P("fsdp", "tensor", None)),
    ("layer_1", "attention", "key", "bias"): ((2, 8), P("tensor", None)),
    ("decoder", "layers", "cross_attention", "value", "kernel"): (
        (3, 24, 2, 8),
        P(None, "fsdp", "tensor", None),
    ),
    ("layers", "attention", "out", "kernel"): ((2, 4, 8, 24), P(None, "tensor", None, "fsdp")),
    ("layers", "attention", "out", "bias"): ((2, 24), P(None, None)),
    ("layers", "ffn", "up", "kernel"): ((2, 24, 32), P(None, "fsdp", "tensor")),
    ("layers", "ffn", "in", "bias"): ((2, 32), P(None, "tensor")),
    ("layer_0", "ffn", "down", "kernel"): ((32, 24), P("tensor", "fsdp")),
    ("layer_0", "ffn_norm_in", "scale"): ((24,), P(None)),
    ("head", "kernel"): ((24, 256), P("fsdp", "tensor")),
    # What an axis of the mesh does not divide stays whole, its neighbours do not.
    ("layer_0", "ffn", "in", "kernel"): ((24, 33), P("fsdp", None)),
    ("layer_0", "attention", "key", "kernel"): ((24, 1, 8), P("fsdp", None, None)),
}


def test_the_sizes_over_an_axis_are_those_of_the_table():
    tree = {
        "embedding": {"table": jnp.zeros((256, 24))},
        "ffn": {"up": {"kernel": jnp.zeros((24, 33))}},
        "layers": {"attention": {"out": {"kernel": jnp.zeros((2, 4, 8, 24))}}},
    }
    assert sizes_over(tree, "fsdp") == [24] and sizes_over(tree, "tensor") == [4, 33, 256]
    assert sizes_over(tree, "data") == []


@pytest.mark.parametrize("path", PLACES, ids="/".join)
def test_a_parameter_lies_where_its_path_says(path):
    shape, place = PLACES[path]
    assert partition(path, shape, BOTH) == place
    assert partition(path, shape, Layout()) == P(*[None] * len(shape))


WHOLE = {
    "latent": model(attention=LatentAttention(latent_width=8, rotary_width=4), position=Rope(),
                    key_value_heads=None),
    "learned": model(position=Learned(max_length=16), qkv_bias=True, ffn_bias=True,
                     stack=Encoder(pooler=True), head=TokenHead(transform=True, bias=True)),
    "gated": model(ffn="swiglu", scan_layers=True, ffn_bias=True),
    **MODELS,
}  # fmt: skip


def test_every_rule_is_of_some_parameter_and_divides_it():
    unused = dict(RULES)
    for spec in WHOLE.values():
        shapes = jax.eval_shape(build(spec).init, jax.random.key(0), jnp.zeros((1, 2), jnp.int32))
        for path, leaf in jax.tree_util.tree_leaves_with_path(shapes["params"]):
            names = names_of(path)
            place = partition(names, leaf.shape, Layout(fsdp=2, tensor=2))
            assert STACKED not in names or place[0] is None
            for rule in list(unused):
                if re.fullmatch(f"(.*/)?{rule}", "/".join(names)):
                    if divisions(place, Layout(fsdp=2, tensor=2)) > 1:
                        del unused[rule]
    assert not unused


@pytest.mark.parametrize("rule", [Muon(), Adafactor(factored_from=8), OptimizerSpec().rule],
                         ids=lambda rule: rule.kind)  # fmt: skip
def test_what_an_optimizer_keeps_of_a_parameter_lies_with_it(rule):
    spec = RunSpec(model=MODELS["scan, dropout"], optimizer=OptimizerSpec(rule=rule))
    state = program_of(spec, None).abstract(batches(spec, 8, 1)[0])[0]
    known = {
        names_of(path): (leaf.shape, place)
        for (path, leaf), place in zip(
            jax.tree_util.tree_leaves_with_path(state.parameters),
            jax.tree.leaves(partition_parameters(state.parameters, BOTH)),
            strict=True,
        )
    }
    found = partition_optimizer(state.optimizer, state.parameters, BOTH)
    kept = zip(
        jax.tree_util.tree_leaves_with_path(state.optimizer), jax.tree.leaves(found), strict=True
    )
    followed = 0
    for (path, leaf), place in kept:
        names = names_of(path)
        shape, own = next((known[names[n:]] for n in range(len(names)) if names[n:] in known),
                          (None, None))  # fmt: skip
        assert place == (own if leaf.shape == shape else P())
        followed += leaf.ndim > 1 and place == own and divisions(place, BOTH) > 1
    assert followed > 0 or rule.kind == "adafactor"


SHARDED = {
    P("fsdp", ("tensor", "data")): (("ffn", "up", "kernel"), (24, 64)),
    P(None, ("fsdp", "data"), None): (("layers", "ffn", "up", "kernel"), (2, 24, 3)),
    P(("data",)): (("final_norm", "scale"), (24,)),
    P(None): (("final_norm", "scale"), (23,)),
}


@pytest.mark.parametrize("place", SHARDED, ids=str)
def test_moments_are_divided_once_more_along_their_largest_part(place):
    path, shape = SHARDED[place]
    with_moments = Layout(data=2, fsdp=2, tensor=2, shard_optimizer=True)
    assert partition_moments(path, shape, with_moments) == place
    assert partition_moments(path, shape, BOTH) == partition(path, shape, BOTH)
