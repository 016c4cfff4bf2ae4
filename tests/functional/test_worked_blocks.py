"""Blocks worked out by hand, composed of the functions, with every intermediate value.

In two dimensions a norm hides differences, so intermediate values are compared, never the
output alone.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer import functional as F

pytestmark = pytest.mark.usefixtures("float64")

BLOCKS = {
    "pre_ln_causal_relu_eps0": ("pre", F.layer_norm, True, F.relu, 0.0),
    "pre_ln_bidirectional_relu_eps0": ("pre", F.layer_norm, False, F.relu, 0.0),
    "pre_ln_causal_relu_eps1e-5": ("pre", F.layer_norm, True, F.relu, 1e-5),
    "post_ln_causal_relu_eps1e-5": ("post", F.layer_norm, True, F.relu, 1e-5),
    "pre_rms_causal_relu_eps1e-6": ("pre", F.rms_norm, True, F.relu, 1e-6),
    "pre_ln_causal_gelu_eps1e-5": ("pre", F.layer_norm, True, F.gelu, 1e-5),
    "pre_rms_bidirectional_relu_eps1e-6": ("pre", F.rms_norm, False, F.relu, 1e-6),
}


def noting(record, name, function):
    """The function, writing its result into `record` under `name`."""

    def noted(x):
        record[name] = function(x)
        return record[name]

    return noted


def one_head_block(figures, placement, norm, causal, activation, epsilon):
    """Both sublayers, the end of the stack and the loss; returns every intermediate value."""
    x, w1, w2, w_out = (jnp.array(figures[name], float) for name in ("x", "w1", "w2", "w_out"))
    mask = F.causal_mask(2) if causal else None
    norm = functools.partial(norm, epsilon=epsilon)
    record = {}

    def attention(h):
        heads = h[None, :, None]  # all four projections are the identity
        record["attention_weights"] = F.attention_weights(heads, heads, mask=mask)[0, 0]
        return F.dot_product_attention(heads, heads, heads, mask=mask)[0, :, 0]

    def feed_forward(h):
        return F.feed_forward(h, w1, w2, activation=activation)

    sublayers = ("attention_out", attention, "1"), ("ffn_out", feed_forward, "2")
    for name, sublayer, number in sublayers:
        side = "norm_in" if placement == "pre" else "norm_out"
        wiring = {side: noting(record, f"norm{number}", norm)}
        x = F.residual(x, noting(record, name, sublayer), **wiring)
        record[f"residual{number}"] = x
    record["final"] = norm(x) if placement == "pre" else x
    record["logits"] = F.linear(record["final"], w_out)
    record["probs"] = jax.nn.softmax(record["logits"])
    sums = F.cross_entropy(record["logits"], jnp.array(figures["targets"]))
    record["nll"] = sums.loss_sum / sums.weight_sum
    return record


@pytest.mark.parametrize("name", BLOCKS)
def test_worked_block(golden, name):
    figures = golden("worked_block")
    record = one_head_block(figures, *BLOCKS[name])
    assert len(figures[name]) >= 8
    for what, expected in figures[name].items():
        np.testing.assert_allclose(record[what], expected, atol=1e-12, err_msg=what)


def test_every_worked_block_is_tested(golden):
    assert {name for name in golden("worked_block") if "eps" in name} == set(BLOCKS)


def two_head_block(figures, x, *, placement="post", causal=False, off=None, norm=None):
    """A block of two heads of width 2 on a stream of width 4; returns its intermediate values.

    Args:
        figures: The weights.
        x: The stream `T D`.
        placement: `post`, or `pre` with a norm at the end.
        causal: Whether the mask is causal.
        off: Number of a head, from 1, whose output is set to zero before `w_o`.
        norm: The norm; None is layer norm.
    """
    norm = norm or functools.partial(F.layer_norm, epsilon=figures["epsilon"])
    wq, wk, wv = (jnp.swapaxes(jnp.array(figures[name]), 0, 1) for name in ("wq", "wk", "wv"))
    wo = jnp.array(figures["wo"]).reshape(2, 2, 4)
    w1, w2 = jnp.array(figures["w1"]), jnp.array(figures["w2"])
    mask = F.causal_mask(len(x)) if causal else None
    record = {}

    def attention(h):
        q, k, v = (F.linear(h[None], kernel) for kernel in (wq, wk, wv))
        record["weights"] = F.attention_weights(q, k, mask=mask)[0]
        heads_on = None if off is None else jnp.arange(2) != off - 1
        heads = F.dot_product_attention(q, k, v, mask=mask, heads_on=heads_on)[0]
        record["heads"] = jnp.swapaxes(heads, 0, 1)
        record["attention"] = F.linear(heads, wo, axes=2)
        return record["attention"]

    def feed_forward(h):
        record["ffn"] = F.feed_forward(h, w1, w2, activation=F.relu)
        return record["ffn"]

    wiring = {"norm_in" if placement == "pre" else "norm_out": norm}
    x = F.residual(x, attention, **wiring)
    record["after_norm1"] = x
    x = F.residual(x, feed_forward, **wiring)
    record["output"] = norm(x) if placement == "pre" else x
    return record


def test_two_head_post_norm_block(golden):
    figures = golden("two_head_block")["block"]
    record = two_head_block(figures, jnp.array(figures["x"]))
    for what in ("weights", "heads", "attention", "after_norm1", "ffn", "output"):
        np.testing.assert_allclose(record[what], figures[what], atol=1e-12, err_msg=what)


def test_two_head_block_variants(golden):
    figures = golden("two_head_block")
    assert len(figures["variants"]) == 13
    for name, expected in figures["variants"].items():
        record = two_head_block(
            figures["block"],
            jnp.array(figures["block"]["x"]),
            placement=name.split("_")[0],
            causal="causal" in name,
            off=1 if "head1_off" in name else 2 if "head2_off" in name else None,
            norm=functools.partial(F.rms_norm, epsilon=1e-6) if "rms" in name else None,
        )
        np.testing.assert_allclose(record["output"], expected, atol=1e-9, err_msg=name)


def test_permutation_is_followed_with_full_visibility_only(golden):
    figures = golden("two_head_block")
    law = figures["permutation_law"]
    rows, x = jnp.array(law["rows"]), jnp.array(figures["block"]["x"])
    for name, causal in (("full_max_difference", False), ("causal_max_difference", True)):
        block = functools.partial(two_head_block, figures["block"], causal=causal)
        difference = jnp.abs(block(x[rows])["output"] - block(x)["output"][rows]).max()
        np.testing.assert_allclose(difference, law[name], atol=1e-9)
        pooled = [block(each)["output"].mean(axis=0) for each in (x[rows], x)]
        assert np.allclose(*pooled, atol=1e-9) == (not causal)


def test_two_sample_batch_reads_and_scores_by_two_arrays(golden, normal):
    figures = golden("two_sample_batch")
    names = ("source_valid", "input_valid", "loss_weights")
    source_valid, valid, scored = (
        jnp.array([figures[name][row] for row in "AB"], bool) for name in names
    )
    assert scored.sum() == figures["targets"] == 9
    # The EOS of B is a key like any other, though what follows it is not scored.
    assert figures["decoder_input"]["B"][3] == "EOS"
    np.testing.assert_array_equal(np.argwhere(valid != scored), [[1, 3]])
    line = jnp.arange(6)[None]
    drawn = F.visible(line, line, key_valid=valid)
    np.testing.assert_array_equal(drawn[0, 0], np.tril(np.ones((6, 6))))
    of_B = [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]] + [[1, 1, 1, 1, 0, 0]] * 3
    np.testing.assert_array_equal(drawn[1, 0], of_B)
    cross = F.cross_mask(6, source_valid)
    np.testing.assert_array_equal(cross[1, 0], [[1, 1, 0, 0, 0, 0]] * 6)
    target, memory, table = normal((2, 6, 4), (2, 6, 4), (7, 4), dtype=jnp.float64)

    def read(target, memory, mask):
        target, memory = target[:, :, None], memory[:, :, None]
        own = F.dot_product_attention(target, target, target, mask=mask)
        return (own + F.dot_product_attention(target, memory, memory, mask=cross))[:, :, 0]

    def loss(target, memory, mask=drawn):
        logits = F.readout(read(target, memory, mask), table)
        labels = jnp.zeros((2, 6), jnp.int32)
        sums = F.cross_entropy(logits, labels, scored.astype(jnp.float64))
        return sums.loss_sum, sums.weight_sum

    slopes = quickly(jax.grad(loss, argnums=(0, 1), has_aux=True))
    (by_target, by_memory), weight_sum = slopes(target, memory)
    assert weight_sum == 9
    # Nothing comes from padding, nor from the EOS: it stands after all that is scored.
    np.testing.assert_array_equal((by_target != 0).any(2), scored)
    np.testing.assert_array_equal((by_memory != 0).any(2), source_valid)
    # Where the future is visible the EOS is read, as a validity by scoring would forbid.
    both_ways = [F.visible(line, line, causal=False, key_valid=keys) for keys in (valid, scored)]
    losses = [quickly(loss)(target, memory, mask)[0] for mask in both_ways]
    assert not np.allclose(*losses, atol=1e-3)
