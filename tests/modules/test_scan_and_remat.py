"""Layers in a scan are those of a loop, and what is computed again is what was kept."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly
from tiny_model import STACKS, VARIANTS, T, V, changed, drawn, needed, tokens_of

from jtransformer.modules import build, stack_layers, unstack_layers
from jtransformer.spec import Dropout, ModelSpec, Rope

EVERYWHERE = Dropout(embedding=0.2, attention=0.2, ffn=0.2, residual=0.2)
LOOPED = {
    "two stacks": changed(STACKS["two_scanned"], rematerialize="nothing", dropout=EVERYWHERE),
    "window and heads": changed(
        VARIANTS["scanned"],
        position=Rope(window_theta=9.0),
        rematerialize="nothing",
        dropout=EVERYWHERE,
    ),
    "latent": VARIANTS["latent"],
}


def value_and_gradients(spec, variables, key):
    """Computes logits and gradients; dropout is on where the spec has it."""

    def loss(variables):
        given = needed(spec, key)
        logits = build(spec).apply(variables, tokens_of(key), key=key, **given).logits
        return jnp.mean(jnp.sin(logits)), logits

    return quickly(jax.value_and_grad(loss, has_aux=True))(variables)


def assert_near(ours, theirs, atol):
    for path, (a, b) in zip(
        jax.tree_util.tree_leaves_with_path(ours),
        zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, atol=atol, err_msg=str(path[0]))


@pytest.mark.parametrize(
    "name", ["two stacks", "window and heads", pytest.param("latent", marks=pytest.mark.slow)]
)
def test_a_scan_is_the_loop_forward_and_backward(key, name):
    loop = changed(LOOPED[name], scan_layers=False)
    scan = changed(loop, scan_layers=True)
    (_, logits), gradients = value_and_gradients(loop, drawn(loop), key)
    stacked = stack_layers(scan, drawn(loop))
    assert_near(stacked, drawn(scan), 0)
    (_, other), others = value_and_gradients(scan, stacked, key)
    np.testing.assert_allclose(other, logits, atol=1e-5)
    assert_near(others, stack_layers(scan, gradients), 1e-5)


@pytest.mark.parametrize(
    ("scan_layers", "rematerialize"),
    [
        (False, "elementwise"),
        (True, "everything"),
        (True, "attention"),
        pytest.param(False, "attention", marks=pytest.mark.slow),
        pytest.param(False, "everything", marks=pytest.mark.slow),
        pytest.param(True, "elementwise", marks=pytest.mark.slow),
    ],
)
def test_what_is_computed_again_is_what_was_kept(key, scan_layers, rematerialize):
    plain = changed(LOOPED["window and heads"], scan_layers=scan_layers)
    again = changed(plain, rematerialize=rematerialize)
    assert plain != again
    (_, logits), gradients = value_and_gradients(plain, drawn(plain), key)
    (_, other), others = value_and_gradients(again, drawn(again), key)
    # The dropout is the same, or they would differ by far more.
    np.testing.assert_allclose(other, logits, atol=1e-6)
    assert_near(others, gradients, 1e-6)


def kept_bytes(spec):
    """Counts what the backward pass of a model keeps, the parameters left out."""
    variables, tokens = drawn(spec), jnp.zeros((1, T), jnp.int32)
    _, pullback = jax.eval_shape(
        lambda v: jax.vjp(lambda v: build(spec).apply(v, tokens).logits, v), variables
    )
    return sum(leaf.size for leaf in jax.tree.leaves(pullback))


def test_live_each_policy_keeps_less():
    kept = [
        kept_bytes(changed(rematerialize=name)) for name in ("nothing", "elementwise", "everything")
    ]
    assert kept[0] > kept[1] > kept[2]


def products(spec):
    """Counts the matrix products of a forward and backward pass."""
    variables, tokens = drawn(spec), jnp.zeros((1, T), jnp.int32)
    loss = jax.grad(lambda v: jnp.sum(build(spec).apply(v, tokens).logits ** 2))
    return quickly(loss).lower(variables).as_text().count("dot_general")


def test_elementwise_repeats_no_matrix_product():
    assert products(changed(rematerialize="elementwise")) == products(changed())
    assert products(changed(rematerialize="everything")) > products(changed())


def equations(jaxpr):
    total = len(jaxpr.eqns)
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                total += equations(inner) if isinstance(inner, jax.extend.core.Jaxpr) else 0
    return total


def program_size(spec):
    model, tokens = build(spec), jnp.zeros((1, T), jnp.int32)
    loss = jax.grad(lambda v: jnp.sum(model.apply(v, tokens).logits))
    shapes = jax.eval_shape(model.init, jax.random.key(0), tokens)
    return equations(jax.make_jaxpr(loss)(shapes).jaxpr)


def test_the_program_of_a_scan_does_not_grow_with_depth():
    scan = VARIANTS["scanned"]
    deep = changed(scan, layers=12)
    assert program_size(deep) == program_size(scan)
    assert program_size(changed(deep, scan_layers=False)) > 3 * program_size(
        changed(scan, scan_layers=False)
    )


def test_both_start_with_the_same_numbers():
    scan = STACKS["two_scanned"]
    ours, theirs = (
        quickly(build(spec).init)(jax.random.key(0), jnp.zeros((1, T), jnp.int32))
        for spec in (scan, changed(scan, scan_layers=False))
    )
    assert_near(ours, stack_layers(scan, theirs), 0)
    assert_near(unstack_layers(scan, ours), theirs, 0)


@pytest.mark.parametrize("name", ["pre", "encoder_decoder"])
def test_stacking_and_back_is_nothing(name):
    spec = (VARIANTS | STACKS)[name]
    variables = drawn(spec)
    back = unstack_layers(spec, stack_layers(spec, variables))
    assert jax.tree.structure(back) == jax.tree.structure(variables)
    assert_near(back, variables, 0)


def test_error_layers_that_are_not_there():
    spec = ModelSpec(vocabulary=V, width=12, layers=2, heads=3, ffn_width=20)
    variables = drawn(spec)
    with pytest.raises(ValueError, match="must hold 3 looped layers, got layer_0, layer_1"):
        stack_layers(dataclasses.replace(spec, layers=3), variables)
    with pytest.raises(ValueError, match="must hold 2 stacked layers, got none"):
        unstack_layers(spec, variables)


def test_a_first_layer_with_a_tree_of_its_own_is_not_stacked():
    spec = changed(embedding_norm=True, first_norm=False)
    with pytest.raises(ValueError, match="cannot be stacked with first_norm=False"):
        stack_layers(spec, drawn(spec))
