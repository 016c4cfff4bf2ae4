"""What each way of rematerialisation hands to the backward pass, and that gradients stay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly
from tiny_model import STACKS, VARIANTS, B, S, T, changed, drawn, needed, tokens_of

from jtransformer.modules import build
from jtransformer.spec import Dropout

MODELS = VARIANTS | STACKS
KINDS = ("grouped", "t5", "deepnorm", "linear", "latent", "encoder_decoder")
"""Models with every kind of attention between them."""


def loss_of(spec, key=None):
    seed = jax.random.key(0)
    tokens, given = tokens_of(seed), needed(spec, seed)

    def loss(variables):
        logits = build(spec).apply(variables, tokens, key=key, **given).logits
        return jnp.mean(jnp.sin(logits))

    return loss


def handed_on(spec, key=None):
    """Returns the shapes of what JAX keeps for the backward pass."""

    def kept(variables):
        return jax.tree.leaves(jax.vjp(loss_of(spec, key), variables)[1])

    return [x.shape for x in jax.eval_shape(kept, drawn(spec))]


def pairs(shapes):
    """Returns the shapes of rows that have an axis of queries and one of keys; a bias has none."""
    both = {(T, T), (T, S)}
    # Rows come first, or behind the layers that a scan stacks; a head or two stand between.
    with_rows = [x for x in shapes if any(x[a : a + 1] == (B,) and len(x) > 3 + a for a in (0, 1))]
    return [x for x in with_rows if x[-2:] in both]


def dropping(spec):
    """Returns a model that drops weights, if it has any."""
    has_none = spec.attention.kind == "linear"
    return spec if has_none else changed(spec, dropout=Dropout(attention=0.3))


@pytest.mark.parametrize("scan_layers", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [*KINDS[:-1], pytest.param(KINDS[-1], marks=pytest.mark.slow)])
def test_attention_hands_on_no_scores_and_all_that_others_do(name, scan_layers):
    # Not as many layers as rows, or what a scan stacks would be taken for rows.
    plain = changed(dropping(MODELS[name]), scan_layers=scan_layers, layers=B + 1)
    again = changed(plain, rematerialize="attention")
    key = jax.random.key(1)
    before, after = handed_on(plain, key), handed_on(again, key)
    assert pairs(before) and not pairs(after)
    # The matrices of a feed-forward network keep their inputs, as they do elsewhere.
    hidden = [[shape for shape in shapes if plain.ffn_width in shape] for shapes in (before, after)]
    assert hidden[0] == hidden[1] != []
    everything = handed_on(changed(plain, rematerialize="everything"), key)
    assert not [shape for shape in everything if shape[-1:] == (plain.ffn_width,) and B in shape]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "t5" else pytest.mark.slow) for n in KINDS]
)
def test_attention_that_is_computed_again_has_the_gradient_of_that_which_is_kept(name):
    plain = dropping(MODELS[name])
    again = changed(plain, rematerialize="attention")
    key = jax.random.key(1)
    found, expected = (
        quickly(jax.value_and_grad(loss_of(spec, key)))(drawn(plain)) for spec in (again, plain)
    )
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
