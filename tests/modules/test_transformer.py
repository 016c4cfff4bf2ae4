"""Tests for jtransformer.modules.transformer: laws, liveness, and the worked block."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_model import BASE, EVERY_VARIANT, VARIANTS, B, Jitted, T, V, spread, started, tokens_of

from jtransformer.modules import build
from jtransformer.spec import (
    LayerNorm,
    ModelSpec,
    NoPosition,
    RMSNorm,
)

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden/worked_block.json").read_text())


def block_variables(golden, placement, norm):
    norms = {"scale": jnp.ones(2)} | ({} if norm == "rms" else {"bias": jnp.zeros(2)})
    identity = jnp.eye(2)
    slot = "norm_in" if placement == "pre" else "norm_out"
    layer = {
        "attention": {
            **{name: {"kernel": identity[:, None]} for name in ("query", "key", "value")},
            "out": {"kernel": identity[None]},
        },
        "ffn": {
            "in": {"kernel": jnp.asarray(golden["w1"], jnp.float32)},
            "out": {"kernel": jnp.asarray(golden["w2"], jnp.float32)},
        },
        f"attention_{slot}": norms,
        f"ffn_{slot}": norms,
    }
    table = jnp.concatenate([jnp.asarray(golden["x"], jnp.float32), jnp.zeros((1, 2))])
    parameters = {
        "embedding": {"table": table},
        "layer_0": layer,
        "head": {"kernel": jnp.asarray(golden["w_out"], jnp.float32)},
    }
    return {"params": parameters | ({"final_norm": norms} if placement == "pre" else {})}


@pytest.mark.parametrize(
    ("case", "placement", "norm", "ffn"),
    [
        ("pre_ln_causal_relu_eps1e-5", "pre", "layer", "relu"),
        ("post_ln_causal_relu_eps1e-5", "post", "layer", "relu"),
        ("pre_rms_causal_relu_eps1e-6", "pre", "rms", "relu"),
        ("pre_ln_causal_gelu_eps1e-5", "pre", "layer", "gelu"),
    ],
)
def test_worked_block_with_every_intermediate(case, placement, norm, ffn):
    spec = ModelSpec(
        vocabulary=3,
        width=2,
        layers=1,
        heads=1,
        ffn=ffn,
        ffn_width=3,
        norm_placement=placement,
        norm=RMSNorm() if norm == "rms" else LayerNorm(),
        position=NoPosition(),
        tied_head=False,
    )
    expected, variables = GOLDEN[case], block_variables(GOLDEN, placement, norm)
    out, captured = build(spec).apply(
        variables, jnp.array([[0, 1]]), capture_intermediates=True, mutable=["intermediates"]
    )
    inside = captured["intermediates"]
    layer = inside["layer_0"]
    slot = "norm_in" if placement == "pre" else "norm_out"
    found = {
        "attention_out": layer["attention"]["__call__"][0],
        "ffn_out": layer["ffn"]["__call__"][0],
        "residual2": layer["__call__"][0],
        "final": out.hidden,
        "logits": out.logits,
        "probs": jax.nn.softmax(out.logits),
    }
    if placement == "pre":
        found["norm1"] = layer[f"attention_{slot}"]["__call__"][0]
        found["norm2"] = layer[f"ffn_{slot}"]["__call__"][0]
    else:
        found["residual1"] = layer[f"attention_{slot}"]["__call__"][0]
    for name, value in found.items():
        np.testing.assert_allclose(value[0], expected[name], atol=2e-6, err_msg=name)
    nll = -np.mean(np.log([found["probs"][0, 0, 1], found["probs"][0, 1, 0]]))
    np.testing.assert_allclose(nll, expected["nll"], atol=2e-6)


@EVERY_VARIANT
def test_a_token_leaves_earlier_logits_bitwise_unchanged(key, spec):
    model, variables = started(spec)
    tokens = tokens_of(key)
    before = model.apply(variables, tokens).logits
    for t in range(1, T):
        changed = model.apply(variables, tokens.at[:, t].set((tokens[:, t] + 1) % V)).logits
        np.testing.assert_array_equal(changed[:, :t], before[:, :t])
        assert not np.allclose(changed[:, t], before[:, t])


@EVERY_VARIANT
def test_the_last_position_depends_on_every_token(key, spec):
    model, variables = started(spec)
    variables = spread(variables, key)
    tokens = tokens_of(key)
    last = model.apply(variables, tokens).logits[:, -1]
    for t in range(T):
        changed = model.apply(variables, tokens.at[:, t].set((tokens[:, t] + 1) % V)).logits[:, -1]
        assert not np.allclose(changed, last)


@EVERY_VARIANT
def test_padding_and_other_rows_do_not_matter(key, spec):
    model, variables = started(spec)
    tokens = tokens_of(key)
    valid = jnp.array([[True] * T, [True] * 4 + [False] * 3])
    full = model.apply(variables, tokens, valid=valid).logits
    other = tokens.at[1, 4:].set((tokens[1, 4:] + 1) % V)
    np.testing.assert_array_equal(
        model.apply(variables, other, valid=valid).logits[1, :4], full[1, :4]
    )
    alone = model.apply(variables, tokens[1:, :4]).logits
    np.testing.assert_allclose(full[1:, :4], alone, atol=1e-5)


@EVERY_VARIANT
def test_packed_documents_do_not_see_each_other(key, spec):
    model, variables = started(spec)
    tokens = tokens_of(key)
    segments = jnp.array([[0, 0, 0, 1, 1, 1, 1]] * B)
    positions = jnp.array([[0, 1, 2, 0, 1, 2, 3]] * B)
    packed = model.apply(variables, tokens, segments=segments, positions=positions).logits
    first = model.apply(variables, tokens[:, :3]).logits
    second = model.apply(variables, tokens[:, 3:]).logits
    np.testing.assert_allclose(packed, jnp.concatenate([first, second], axis=1), atol=1e-5)


@EVERY_VARIANT
def test_jit_equals_eager(key, spec):
    model, variables = started(spec)
    tokens = tokens_of(key)
    eager = build(spec).apply(variables, tokens)
    np.testing.assert_allclose(model.apply(variables, tokens).logits, eager.logits, atol=1e-5)


@EVERY_VARIANT
def test_every_parameter_receives_a_gradient(key, spec):
    model, variables = started(spec)
    tokens = tokens_of(key)

    def loss(variables):
        logits = model.apply(variables, tokens[:, :-1]).logits
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1))

    gradients = jax.jit(jax.grad(loss))(spread(variables, key))
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        names = [entry.key for entry in path]
        # Attention weights do not depend on a shift of all scores of a query, so q·b_k is free.
        if names[-2:] == ["key", "bias"]:
            assert float(jnp.max(jnp.abs(gradient))) < 1e-5
        else:
            assert float(jnp.max(jnp.abs(gradient))) > 1e-7, names


def test_tied_gradient_is_the_sum_of_both_paths(key):
    tied, untied = BASE, dataclasses.replace(BASE, tied_head=False)
    model, variables = started(tied)
    table = variables["params"]["embedding"]["table"]
    split = {"params": variables["params"] | {"head": {"kernel": table.T}}}
    tokens = jnp.where(tokens_of(key) == 3, 4, tokens_of(key))  # 3 is never an input.

    def loss(module, variables):
        return jnp.sum(jax.nn.log_softmax(module.apply(variables, tokens).logits)[..., 3])

    both = jax.grad(lambda v: loss(model, v))(variables)["params"]["embedding"]["table"]
    parts = jax.grad(lambda v: loss(Jitted(untied), v))(split)["params"]
    total = parts["embedding"]["table"] + parts["head"]["kernel"].T
    np.testing.assert_allclose(both, total, atol=1e-5)
    assert float(jnp.max(jnp.abs(both[3]))) > 0


def test_loss_at_initialisation_is_near_uniform(key):
    spec = dataclasses.replace(BASE, vocabulary=256, width=64, heads=4, ffn_width=128)
    model, variables = started(spec)
    tokens = jax.random.randint(key, (8, 32), 0, 256)
    logits = model.apply(variables, tokens).logits
    labels = jax.random.randint(jax.random.key(1), (8, 32, 1), 0, 256)
    nll = -np.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels, -1))
    np.testing.assert_allclose(nll, np.log(256) + np.var(logits) / 2, atol=0.15)


def test_error_more_tokens_than_learned_positions(key):
    model, variables = started(VARIANTS["learned"])
    with pytest.raises(ValueError, match=f"{T + 1} tokens are more than position.max_length={T}"):
        model.apply(variables, jnp.zeros((1, T + 1), jnp.int32))
