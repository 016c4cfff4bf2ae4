"""Values at the edge of what their dtype holds, options that are NumPy's, and axes of length 0."""

import math
from inspect import unwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer import functional as F
from jtransformer.functional._angles import angles

FAR = 2**32


@pytest.mark.parametrize("form", ["expanded", "absorbed"])
def test_padding_of_a_latent_reaches_no_gradient(normal, form):
    q, latent, w_k, w_v = normal((1, 3, 2, 4), (1, 4, 5), (5, 2, 4), (5, 2, 3))
    valid = jnp.array([[True, True, True, False]])
    mask = F.Visibility(jnp.arange(3)[None], jnp.arange(4)[None], causal=False, key_valid=valid)

    def slopes(latent):
        def total(w_k, w_v):
            return F.latent_attention(q, latent, w_k, w_v, mask=mask, form=form).sum()

        return quickly(jax.grad(total, argnums=(0, 1)))(w_k, w_v)

    for spoilt, clean in zip(slopes(latent.at[:, 3].set(jnp.nan)), slopes(latent), strict=True):
        np.testing.assert_array_equal(spoilt, clean)


def test_the_lowest_bias_shows_no_hidden_key_on_the_fused_path():
    k = jnp.ones((1, 2, 1, 2))
    v = jnp.array([[[[1.0, 1.0]], [[100.0, 100.0]]]])
    bias = jnp.array([[float(jnp.finfo(jnp.float32).min), 0.0]])
    mask = jnp.array([[True, False]])
    out = F.dot_product_attention(k[:, :1], k, v, mask=mask, bias=bias, backend="fused")
    np.testing.assert_array_equal(out, v[:, :1])


@pytest.mark.parametrize("x", [1e20, -1e20, 3e38])
def test_activations_have_a_slope_at_large_inputs(x):
    for function in (F.gelu, F.gelu_tanh, F.silu, F.elu_plus_one):
        assert float(quickly(jax.grad(function))(jnp.float32(x))) == float(x > 0), function


def test_a_label_of_64_bits_is_not_taken_for_another_token():
    with jax.enable_x64(True):
        logits = jnp.array([[1.0, 2.0, 3.0]])
        for label in (FAR + 2, 2, -FAR):
            sums = quickly(F.cross_entropy)(logits, jnp.array([label]))
            assert np.isnan(sums.nll_sum) == (label != 2)


def test_a_distance_of_64_bits_is_in_the_last_bucket():
    far = np.array([-FAR, FAR, -FAR + 1])
    buckets = unwrap(F.t5_bucket)(far, bidirectional=True)
    np.testing.assert_array_equal(buckets, [15, 31, 15])
    ahead = unwrap(F.t5_bucket)(np.array([FAR - 1], np.uint32), bidirectional=True)
    np.testing.assert_array_equal(ahead, [31])


def test_a_length_of_any_integer_type_rewinds_a_cache():
    ring = F.KVCache.create(B=1, K=1, H=1, window=5, chunk=3)
    three = jnp.ones((1, 3, 1, 1))
    for _ in range(8):
        ring = ring.append(three, three)
    rewind = unwrap(F.KVCache.rewind)
    for lost in (np.uint8(3), np.uint32(3), np.int64(3), np.array([FAR + 22])):
        with pytest.raises(ValueError, match="A row can be rewound"):
            rewind(ring, lost)
    with pytest.raises(ValueError, match="length must be integers, got dtype=float64"):
        rewind(ring, np.array([21.7]))
    large = F.KVCache.create(B=1, K=1, H=1, window=200, chunk=3).append(three, three)
    assert rewind(large, jnp.array([1], jnp.int8)).length == 1


def test_angles_are_exact_at_unsigned_positions():
    position, radians = 3_000_000_000, 10_000.0 ** (-np.arange(8) / 8)
    found = unwrap(angles)(jnp.array([position], jnp.uint32), radians, jnp.dtype(jnp.float32))
    np.testing.assert_allclose(np.cos(found), np.cos([position * radians]), atol=1e-6)


def test_options_of_numpy_do_not_choose_the_dtype(normal, key):
    (x,) = normal((2, 4), dtype=jnp.bfloat16)
    rate = np.float64(0.1)
    assert F.dropout(x, rate=rate, key=key).dtype == jnp.bfloat16
    assert F.residual(x, jnp.tanh, dropout_rate=rate, key=key).dtype == jnp.bfloat16
    with jax.enable_x64(True):
        logits = jnp.ones((2, 3), jnp.float32)
        sums = F.cross_entropy(logits, jnp.array([0, 1]), label_smoothing=rate, z_loss=rate)
        assert sums.loss_sum.dtype == jnp.float32
        kept = F.sampling_log_probabilities(logits, temperature=rate, top_p=rate)
        assert kept.dtype == jnp.float32
    np.testing.assert_array_equal(unwrap(F.alibi_slopes)(np.int64(6)), F.alibi_slopes(6))


def test_a_branch_of_another_dtype_joins_the_stream_in_that_of_the_stream(normal):
    (x,) = normal((2, 4), dtype=jnp.bfloat16)
    for out in (
        F.residual(x, lambda h: h.astype(jnp.float32)),
        F.parallel_residual(x, [jnp.tanh, lambda h: h.astype(jnp.float32)]),
    ):
        assert out.dtype == jnp.bfloat16


@pytest.mark.parametrize("backend", ["plain", "blockwise", "fused"])
def test_an_empty_batch_gives_an_empty_batch(backend):
    q = jnp.ones((0, 256, 2, 4))
    assert F.dot_product_attention(q, q, q, backend=backend).shape == q.shape


def test_an_empty_kernel_is_drawn_empty(key):
    assert F.draw_fan_in(key, (0, 4), fan_in_axes=(0,)).shape == (0, 4)
    assert F.draw_xavier(key, (0, 4, 4), fan_in_axes=(1,), stacked_axes=(0,)).shape == (0, 4, 4)


Q = jnp.ones((1, 2, 1, 2))
LOGITS, LABELS = jnp.ones((1, 3)), jnp.zeros(1, jnp.int32)
REFUSED = {
    "soft_cap must be positive and finite, got inf": lambda: F.dot_product_attention(
        Q, Q, Q, soft_cap=math.inf
    ),
    "epsilon must be at least 0, got epsilon=nan": lambda: F.layer_norm(Q, epsilon=math.nan),
    "z_loss must be at least 0, got nan": lambda: F.cross_entropy(LOGITS, LABELS, z_loss=math.nan),
    "deviation must be at least 0, got deviation=nan": lambda: F.draw_normal(
        jax.random.key(0), (2,), deviation=math.nan
    ),
    "below a finite beta_fast, got": lambda: F.YarnScaling(
        factor=8.0, original_length=4096, beta_fast=math.inf
    ),
    "pad must fit the dtype of sampled, got pad=-1 for uint8": lambda: unwrap(F.emit)(
        jnp.array([1], jnp.uint8), jnp.array([True]), eos=3, pad=-1
    ),
    "eos must fit the dtype of sampled, got eos=300 for uint8": lambda: unwrap(F.emit)(
        jnp.array([1], jnp.uint8), jnp.array([True]), eos=300, pad=0
    ),
    "needs a real function of at least one entry, got complex64": lambda: F.spectral_norm(
        lambda x: jax.lax.complex(x, x), jnp.ones(2), key=jax.random.key(0)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_no_rule_can_compare_is_refused(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()
