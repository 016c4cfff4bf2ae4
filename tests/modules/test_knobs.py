"""Tests that every field of a model spec does something, and its neutral value nothing."""

import dataclasses
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_model import BASE, B, T, V, spread, started, tokens_of

from jtransformer.functional import FFN_KINDS
from jtransformer.spec import (
    GATED_FFNS,
    LayerNorm,
    Learned,
    ModelSpec,
    NoPosition,
    RMSNorm,
    Sinusoidal,
)

CHANGES = {
    "vocabulary": {"vocabulary": V + 1},
    "width": {"width": 24},
    "layers": {"layers": 3},
    "heads": {"heads": 4},
    "norm_placement": {"norm_placement": "post"},
    "norm": {"norm": RMSNorm()},
    "ffn": {"ffn": "relu"},
    "ffn_width": {"ffn_width": 24},
    "attention_bias": {"attention_bias": True},
    "ffn_bias": {"ffn_bias": True},
    "position": {"position": NoPosition()},
    "scale_embedding": {"scale_embedding": True},
    "tied_head": {"tied_head": False},
    "initialization": {"initialization": "gpt2"},
}


def test_every_field_has_a_change():
    assert set(CHANGES) == {field.name for field in dataclasses.fields(ModelSpec)}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_live_each_field_changes_the_model(key, change):
    changed = dataclasses.replace(BASE, **change)
    outs, trees = [], []
    for spec in (BASE, changed):
        model, variables = started(spec)
        trees.append(jax.tree.map(jnp.shape, variables))
        outs.append(model.apply(spread(variables, key), tokens_of(key)).logits)
    # Where the trees differ, test_every_parameter_receives_a_gradient shows that it is used.
    assert trees[0] != trees[1] or not np.allclose(outs[0], outs[1], atol=1e-4)


def test_live_the_same_numbers_in_other_heads_are_another_model(key):
    model, variables = started(BASE)
    other, others = started(dataclasses.replace(BASE, heads=4))
    same = jax.tree.map(lambda ours, shape: ours.reshape(shape.shape), variables, others)
    tokens = tokens_of(key)
    ours, theirs = model.apply(variables, tokens).logits, other.apply(same, tokens).logits
    assert not np.allclose(ours, theirs, atol=1e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"norm": LayerNorm(epsilon=5e-3)},
        {"norm": RMSNorm(epsilon=5e-3)},
        {"ffn": "gelu_tanh"},
        {"position": Learned(max_length=T)},
    ],
    ids=str,
)
def test_live_settings_of_kinds(key, change):
    reference = {"norm": RMSNorm()} if isinstance(change.get("norm"), RMSNorm) else {}
    model, variables = started(dataclasses.replace(BASE, **reference))
    other, others = started(dataclasses.replace(BASE, **change))
    tokens = tokens_of(key)
    assert not np.array_equal(
        model.apply(variables, tokens).logits, other.apply(others, tokens).logits
    )


def test_null_positions_given_equal_positions_counted(key):
    for position in (Sinusoidal(), Learned(max_length=T), NoPosition()):
        model, variables = started(dataclasses.replace(BASE, position=position))
        tokens = tokens_of(key)
        given = model.apply(variables, tokens, positions=jnp.tile(jnp.arange(T)[None], (B, 1)))
        np.testing.assert_array_equal(given.logits, model.apply(variables, tokens).logits)


def test_null_all_valid_and_one_segment_change_nothing(key):
    model, variables = started(BASE)
    tokens = tokens_of(key)
    plain = model.apply(variables, tokens).logits
    masked = model.apply(
        variables, tokens, valid=jnp.ones((B, T), bool), segments=jnp.zeros((B, T), jnp.int32)
    )
    np.testing.assert_array_equal(masked.logits, plain)


def test_spec_and_functions_agree_on_which_networks_have_a_gate():
    named = typing.get_args(typing.get_type_hints(ModelSpec)["ffn"])
    assert set(named) == set(FFN_KINDS)
    assert {name for name in named if FFN_KINDS[name].gated} == set(GATED_FFNS)
