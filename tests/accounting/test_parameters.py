"""Tests for jtransformer.accounting.parameters."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import pytest

from jtransformer.accounting import parameters
from jtransformer.modules import build
from jtransformer.spec import LayerNorm, Learned, ModelSpec, NoPosition, RMSNorm, Sinusoidal

# The worked counts of the definitions; each is of the whole model, or of one layer where named.
GPT_2018, GPT2_SMALL = 116_534_784, 124_439_808
LLAMA_LAYER = 3_163_136

CHOICES = {
    "norm_placement": ("pre", "post", "sandwich", "branch"),
    "norm": (LayerNorm(), RMSNorm()),
    "ffn": (
        "relu", "relu_squared", "gelu", "gelu_tanh", "silu",
        "swiglu", "geglu", "reglu", "glu", "bilinear",
    ),
    "ffn_width": (7, 20),
    "attention_bias": (False, True),
    "ffn_bias": (False, True),
    "position": (NoPosition(), Sinusoidal(), Learned(max_length=13)),
    "tied_head": (False, True),
    "layers": (1, 3),
    "heads": (1, 2, 6),
}  # fmt: skip
PART = {"embedding": "embedding", "position": "position", "head": "head", "final_norm": "norms"}


def pairs_of(setting):
    """The pairs (field, index of its value) that a setting, complete or not, holds."""
    items = [(name, setting[name]) for name in CHOICES if name in setting]
    return set(itertools.combinations(items, 2))


def pairwise():
    """Yields few settings that together hold every pair of values of every two fields."""
    sizes = {name: range(len(values)) for name, values in CHOICES.items()}
    missing = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(CHOICES, 2)
        for i, j in itertools.product(sizes[a], sizes[b])
    }
    while missing:
        setting = dict(min(missing))
        for name in [name for name in sizes if name not in setting]:
            trials = [{**setting, name: index} for index in sizes[name]]
            gains = [len(pairs_of(trial) & missing) for trial in trials]
            setting = trials[gains.index(max(gains))]
        missing -= pairs_of(setting)
        yield {name: CHOICES[name][index] for name, index in setting.items()}


MODELS = [ModelSpec(vocabulary=17, width=12, **setting) for setting in pairwise()]


def layer_of(**settings):
    """The parameters of one layer: what a second one adds."""
    one, two = (parameters(ModelSpec(layers=layers, heads=8, **settings)) for layers in (1, 2))
    return two.total - one.total


def leaves_by_part(model):
    """Counts the leaves of the initialised tree, by the component that owns them."""
    tokens = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    tree = jax.eval_shape(build(model).init, jax.random.key(0), tokens)["params"]
    counts = dict.fromkeys(dataclasses.asdict(parameters(model)), 0)
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        words = [entry.key for entry in path]
        part = PART.get(words[0]) or ("norms" if "norm" in words[1] else words[1])
        counts[part] += math.prod(leaf.shape)
    return counts


@pytest.mark.parametrize(
    ("width", "ffn_width", "count"), [(512, 2048, 3_152_384), (768, 3072, 7_087_872)]
)
def test_worked_biased_layers(width, ffn_width, count):
    sizes = dict(width=width, ffn_width=ffn_width, attention_bias=True, ffn_bias=True)
    D, F = width, ffn_width
    assert 4 * D * D + 2 * D * F + F + 9 * D == count
    for placement in ("pre", "post", "branch"):
        for ffn in ("relu", "relu_squared", "gelu", "gelu_tanh", "silu"):
            assert layer_of(norm_placement=placement, ffn=ffn, **sizes) == count
    # Two more norms of scale and bias.
    assert layer_of(norm_placement="sandwich", **sizes) == count + 4 * D


def test_worked_gated_layers():
    gated = dict(width=768, ffn_width=2048, ffn="swiglu", attention_bias=True)
    assert layer_of(**gated) == 7_084_032
    llama = dict(width=512, ffn_width=1376, ffn="swiglu", norm=RMSNorm())
    D, F = 512, 1376
    assert layer_of(**llama) == 4 * D * D + 3 * D * F + 2 * D == LLAMA_LAYER


def test_worked_whole_models():
    gpt2 = ModelSpec(
        vocabulary=50257, width=768, layers=12, heads=12, ffn="gelu_tanh", ffn_width=3072,
        attention_bias=True, ffn_bias=True, position=Learned(max_length=1024), tied_head=True,
    )  # fmt: skip
    assert parameters(gpt2).total == GPT2_SMALL
    gpt = dataclasses.replace(
        gpt2, norm_placement="post", vocabulary=40478, position=Learned(max_length=512)
    )
    assert parameters(gpt).total == GPT_2018
    untied = dataclasses.replace(gpt, tied_head=False)
    assert parameters(untied).total == GPT_2018 + 40478 * 768
    assert parameters(untied).head == 40478 * 768


def test_all_pairs_of_choices_are_covered():
    assert len(MODELS) < 60
    for a, b in itertools.combinations(CHOICES, 2):
        found = {(getattr(model, a), getattr(model, b)) for model in MODELS}
        assert found == set(itertools.product(CHOICES[a], CHOICES[b]))


def test_every_component_equals_the_initialised_tree():
    for model in MODELS:
        counts, leaves = parameters(model), leaves_by_part(model)
        assert dataclasses.asdict(counts) == leaves, model
        assert counts.total == sum(leaves.values())


def test_law_the_count_does_not_depend_on_heads():
    for model in MODELS[:10]:
        counts = {
            parameters(dataclasses.replace(model, heads=heads)) for heads in (1, 2, 3, 4, 6, 12)
        }
        assert len(counts) == 1


@pytest.mark.parametrize(
    "change",
    [
        dict(vocabulary=18), dict(width=16), dict(layers=3), dict(ffn_width=257), dict(ffn="glu"),
        dict(norm_placement="sandwich"), dict(norm_placement="post"), dict(norm=RMSNorm()),
        dict(attention_bias=True), dict(ffn_bias=True), dict(position=Learned()),
        dict(tied_head=False),
    ],
)  # fmt: skip
def test_live_what_changes_the_count(change):
    assert parameters(ModelSpec(**change)).total != parameters(ModelSpec()).total


@pytest.mark.parametrize(
    "change",
    [
        dict(ffn="relu"), dict(position=NoPosition()), dict(scale_embedding=True),
        dict(initialization="gpt2"), dict(norm=LayerNorm(epsilon=1e-3)),
        dict(norm_placement="branch"), dict(heads=1),
    ],
)  # fmt: skip
def test_null_what_does_not(change):
    assert parameters(ModelSpec(**change)) == parameters(ModelSpec())


def test_counts_are_exact_integers_at_any_size():
    counts = parameters(ModelSpec(width=2**40, heads=1, ffn_width=2**42, layers=1000))
    assert counts.ffn == 1000 * 2 * 2**82 and isinstance(counts.total, int)
