"""Tests for jtransformer.modules.transformer: the laws of decoders, and the worked block."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly
from tiny_model import (
    BASE,
    EVERY_VARIANT,
    STACKS,
    VARIANTS,
    B,
    T,
    V,
    changed,
    drawn,
    model_of,
    needed,
    started,
    tokens_of,
)

from jtransformer.modules import build
from jtransformer.spec import (
    LayerNorm,
    LinearAttention,
    ModelSpec,
    NoPosition,
    RMSNorm,
    Rope,
    TokenHead,
)

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden/worked_block.json").read_text())
ALL = jnp.ones((B, T), bool)
ONE = jnp.zeros((B, T), jnp.int32)
COUNTED = jnp.tile(jnp.arange(T, dtype=jnp.int32)[None], (B, 1))


def logits_of(spec, variables, tokens, *, valid=ALL, segments=ONE, positions=COUNTED):
    """Computes logits by one program for all laws; linear attention has no segments."""
    given = {} if isinstance(spec.attention, LinearAttention) else {"segments": segments}
    return model_of(spec).apply(variables, tokens, valid=valid, positions=positions, **given).logits


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
        head=TokenHead(tied=False),
    )
    expected, variables = GOLDEN[case], block_variables(GOLDEN, placement, norm)
    out = model_of(spec).apply(variables, jnp.array([[0, 1]]), intermediates=("layer_0/*",))
    inside = {name.removeprefix("layer_0/"): x for name, x in out.intermediates.items()}
    found = {
        "attention_out": inside["attention/output"],
        "ffn_out": inside["ffn/output"],
        "residual2": inside["stream"],
        "final": out.hidden,
        "logits": out.logits,
        "probs": jax.nn.softmax(out.logits),
    }
    if placement == "pre":
        found |= {"norm1": inside["attention/input"], "norm2": inside["ffn/input"]}
    else:
        found["residual1"] = inside["attention/stream"]
    for name, value in found.items():
        np.testing.assert_allclose(value[0], expected[name], atol=2e-6, err_msg=name)
    nll = -np.mean(np.log([found["probs"][0, 0, 1], found["probs"][0, 1, 0]]))
    np.testing.assert_allclose(nll, expected["nll"], atol=2e-6)


@EVERY_VARIANT
def test_a_token_moves_its_own_and_the_last_logits_and_no_earlier_bit(key, spec):
    variables, tokens = drawn(spec), tokens_of(key)
    before = logits_of(spec, variables, tokens)
    for t in range(T):
        other = tokens.at[:, t].set((tokens[:, t] + 1) % V)
        after = logits_of(spec, variables, other)
        np.testing.assert_array_equal(after[:, :t], before[:, :t])
        assert not np.allclose(after[:, t], before[:, t])
        assert not np.allclose(after[:, -1], before[:, -1])


@EVERY_VARIANT
def test_padding_and_other_rows_do_not_matter(key, spec):
    variables, tokens = drawn(spec), tokens_of(key)
    valid = jnp.array([[True] * T, [True] * 4 + [False] * 3])
    full = logits_of(spec, variables, tokens, valid=valid)
    other = tokens.at[1, 4:].set((tokens[1, 4:] + 1) % V)
    np.testing.assert_array_equal(
        logits_of(spec, variables, other, valid=valid)[1, :4], full[1, :4]
    )
    # On the left, with positions that count the real tokens; the first row has other content.
    shifted = jnp.roll(tokens, 3, axis=1).at[0].set(3)
    left = logits_of(
        spec,
        variables,
        shifted,
        valid=jnp.roll(valid, 3, axis=1),
        positions=jnp.maximum(COUNTED - 3, 0),
    )
    np.testing.assert_allclose(left[1, 3:], full[1, :4], atol=1e-5)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "linear"])
def test_packed_documents_do_not_see_each_other(key, name):
    spec = VARIANTS[name]
    variables, tokens = drawn(spec), tokens_of(key)
    packed = logits_of(
        spec,
        variables,
        tokens,
        segments=jnp.array([[0, 0, 0, 1, 1, 1, 1]] * B),
        positions=jnp.array([[0, 1, 2, 0, 1, 2, 3]] * B),
    )
    first = logits_of(spec, variables, tokens)
    second = logits_of(spec, variables, jnp.roll(tokens, -3, axis=1))
    expected = jnp.concatenate([first[:, :3], second[:, :4]], axis=1)
    np.testing.assert_allclose(packed, expected, atol=1e-5)


FEW = ("untied", "grouped", "t5", "deepnorm", "one_norm", "latent")


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec, marks=() if name in FEW else pytest.mark.slow, id=name)
        for name, spec in VARIANTS.items()
    ],
)
def test_every_parameter_receives_a_gradient(key, spec):
    tokens = tokens_of(key)

    def loss(variables):
        logits = build(spec).apply(variables, tokens[:, :-1]).logits
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1))

    gradients = quickly(jax.grad(loss))(drawn(spec))
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        names = [entry.key for entry in path]
        # Attention weights do not depend on a shift of all scores of a query, so q·b_k is free
        # unless positions turn it.
        if names[-2:] == ["key", "bias"] and not isinstance(spec.position, Rope):
            assert float(jnp.max(jnp.abs(gradient))) < 1e-5
        else:
            assert float(jnp.max(jnp.abs(gradient))) > 1e-7, names


def test_jit_equals_eager(key):
    variables, tokens = drawn(BASE), tokens_of(key)
    eager = build(BASE).apply(variables, tokens).logits
    np.testing.assert_allclose(model_of(BASE).apply(variables, tokens).logits, eager, atol=1e-5)


def test_tied_gradient_is_the_sum_of_both_paths(key):
    untied = changed(head=TokenHead(tied=False))
    variables = drawn(BASE)
    table = variables["params"]["embedding"]["table"]
    split = {"params": variables["params"] | {"head": {"kernel": table.T}}}
    tokens = jnp.where(tokens_of(key) == 3, 4, tokens_of(key))  # 3 is never an input.

    def gradients(spec, variables):
        def loss(variables):
            return jnp.sum(jax.nn.log_softmax(build(spec).apply(variables, tokens).logits)[..., 3])

        return quickly(jax.grad(loss))(variables)["params"]

    both = gradients(BASE, variables)["embedding"]["table"]
    parts = gradients(untied, split)
    total = parts["embedding"]["table"] + parts["head"]["kernel"].T
    np.testing.assert_allclose(both, total, atol=1e-5)
    assert float(jnp.max(jnp.abs(both[3]))) > 0


def test_loss_at_initialisation_is_near_uniform(key):
    spec = changed(vocabulary=256, width=64, heads=4, ffn_width=128)
    model, variables = started(spec)
    tokens = jax.random.randint(key, (8, 32), 0, 256)
    logits = model.apply(variables, tokens).logits
    labels = jax.random.randint(jax.random.key(1), (8, 32, 1), 0, 256)
    nll = -np.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels, -1))
    np.testing.assert_allclose(nll, np.log(256) + np.var(logits) / 2, atol=0.15)


@pytest.mark.parametrize("name", ["grouped", "t5", "deepnorm", "scanned", "one_norm", "latent"])
def test_relative_positions_do_not_notice_a_shift(key, name):
    """Rotary, T5's, Shaw's, ALiBi's and plain relative biases know distances alone."""
    spec, tokens = VARIANTS[name], tokens_of(key)
    found = logits_of(spec, drawn(spec), tokens, positions=COUNTED + 5)
    np.testing.assert_allclose(found, logits_of(spec, drawn(spec), tokens), atol=2e-5)
    # They do notice where distances change.
    other = logits_of(spec, drawn(spec), tokens, positions=3 * COUNTED)
    assert not np.allclose(other, found, atol=1e-3)


def test_padding_on_the_left_has_the_positions_that_count_real_tokens(key):
    """The fault of one counter for all rows: position is not the column."""
    variables, tokens = drawn(BASE), tokens_of(key)
    valid = jnp.array([[False, False] + [True] * 5, [True] * T])
    found = model_of(BASE).apply(variables, tokens, valid=valid).logits
    alone = model_of(BASE).apply(variables, jnp.roll(tokens, -2, axis=1)).logits
    np.testing.assert_allclose(found[0, 2:], alone[0, :5], atol=1e-5)


def test_grouped_heads_read_the_key_head_of_their_group(key):
    """Query head n reads key head n // (N / K): heads that share one are neighbours."""
    grouped = changed(heads=4, head_width=3, key_value_heads=2)
    full = changed(heads=4, head_width=3)
    variables = drawn(grouped)

    def repeated(path, leaf):
        names = [entry.key for entry in path]
        return jnp.repeat(leaf, 2, axis=1) if names[-2] in ("key", "value") else leaf

    same = jax.tree_util.tree_map_with_path(repeated, variables)
    tokens = tokens_of(key)
    np.testing.assert_allclose(
        model_of(grouped).apply(variables, tokens).logits,
        model_of(full).apply(same, tokens).logits,
        atol=1e-5,
    )


@pytest.mark.parametrize("name", [*VARIANTS, *STACKS])
def test_bfloat16_stays_bfloat16(name):
    spec = (VARIANTS | STACKS)[name]
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.bfloat16), drawn(spec))
    given = needed(spec, jax.random.key(0)) | {"valid": ALL}
    model = build(spec)
    out = jax.eval_shape(lambda v: model.apply(v, tokens_of(jax.random.key(0)), **given), shapes)
    assert out.logits.dtype == out.hidden.dtype == jnp.bfloat16
