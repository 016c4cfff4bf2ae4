"""Statistics of one layer: values by NumPy, what is planted, and what must not count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once

from jtransformer import functional as F
from jtransformer.functional import activations
from jtransformer.probes import statistics

B, N, T, S, D, FW, V = 2, 3, 5, 7, 6, 8, 11
COUNTED = np.array([[True, True, False, True, True], [True, False, True, True, False]])
stream_size = at_once(statistics.stream_size)
attention_entropy = at_once(statistics.attention_entropy)
keys_seen = statistics.keys_seen
silent_units = at_once(statistics.silent_units)
logit_scale = at_once(statistics.logit_scale)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def spoilt(x):
    """Puts NaN where nothing counts."""
    return np.where(COUNTED[:, :, None], x, np.float32(np.nan))


def test_the_size_of_the_stream():
    x = drawn(B, T, D)
    x[..., 4] *= 9
    found = stream_size(spoilt(x), COUNTED)
    picked = x[COUNTED].astype(np.float64)
    channels = np.sqrt(np.mean(picked**2, axis=0))
    np.testing.assert_allclose(found.rms, np.sqrt(np.mean(picked**2)), rtol=1e-5)
    np.testing.assert_allclose(found.outlier_ratio, channels.max() / np.median(channels), rtol=1e-5)
    assert found.outlier_channel == 4


@pytest.mark.parametrize("channel", [0, 3])
def test_an_outlier_channel_is_found(channel):
    x = np.ones((B, T, D), np.float32)
    x[..., channel] = -20
    found = stream_size(x, COUNTED)
    assert found.outlier_channel == channel
    np.testing.assert_allclose(found.outlier_ratio, 20, rtol=1e-6)


def test_the_entropy_of_equal_weights_is_the_logarithm_of_the_keys():
    seen = np.array([[1, 2, 3, 4, 5], [5, 5, 5, 5, 7]])
    weights = (np.arange(S) < seen[..., None]) / seen[..., None]
    weights = np.broadcast_to(weights[:, None], (B, N, T, S)).astype(np.float32)
    found = attention_entropy(weights, COUNTED, seen)
    np.testing.assert_allclose(found.nats, np.full(N, np.log(seen)[COUNTED].mean()), rtol=1e-6)
    np.testing.assert_allclose(found.relative, np.ones(N), rtol=1e-6)


def test_the_entropy_of_one_key_alone_is_zero():
    weights = np.zeros((B, N, T, S), np.float32)
    weights[..., 3] = 1
    found = attention_entropy(weights, COUNTED, np.full((B, T), S))
    np.testing.assert_array_equal(found.nats, 0)
    np.testing.assert_array_equal(found.relative, 0)


def test_entropy_by_hand_with_blind_and_padded_queries():
    weights = np.exp(2 * drawn(B, N, T, S))
    weights /= weights.sum(-1, keepdims=True)
    seen = np.full((B, T), S)
    weights[0, :, 1], seen[0, 1] = 0, 0
    weights[1, :, 2], seen[1, 2] = np.eye(S)[0], 1
    hidden = np.where(COUNTED[:, None, :, None], weights, np.nan)
    found = attention_entropy(hidden, COUNTED, seen)
    nats, relative = [[] for _ in range(N)], [[] for _ in range(N)]
    for b, t in zip(*np.nonzero(COUNTED), strict=True):
        for n in range(N):
            row = [float(w) for w in weights[b, n, t] if w > 0]
            entropy = -sum(w * np.log(w) for w in row)
            if seen[b, t] >= 1:
                nats[n].append(entropy)
            if seen[b, t] >= 2:
                relative[n].append(entropy / np.log(seen[b, t]))
    assert [len(x) for x in (nats[0], relative[0])] == [6, 5]
    np.testing.assert_allclose(found.nats, [np.mean(x) for x in nats], rtol=1e-5)
    np.testing.assert_allclose(found.relative, [np.mean(x) for x in relative], rtol=1e-5)


def test_the_keys_that_queries_see_are_counted():
    positions, valid = jnp.arange(T)[None], jnp.asarray(np.arange(T) < [[5], [3]])
    mask = F.Visibility(positions, positions, window=2, key_valid=valid)
    expected = [[1, 2, 2, 2, 2], [1, 2, 2, 1, 0]]
    np.testing.assert_array_equal(keys_seen(mask, (B, T, T)), expected)
    np.testing.assert_array_equal(keys_seen(mask.draw(), (B, T, T)), expected)
    np.testing.assert_array_equal(keys_seen(F.causal_mask(T), (B, T, T)), [[1, 2, 3, 4, 5]] * B)
    np.testing.assert_array_equal(keys_seen(None, (B, T, S)), np.full((B, T), S))


def test_a_dead_unit_is_found():
    units = drawn(B, T, FW)
    units[..., 2], units[..., 5] = -1, -1
    units[1, 2, 5] = 0.5  # alive at one counted position
    units[0, 2, 2] = 3.0  # alive where nothing counts
    found = silent_units(activations.relu(jnp.asarray(units)), COUNTED)
    picked = np.maximum(units[COUNTED], 0)
    np.testing.assert_allclose(found.dead_fraction, 1 / FW, rtol=1e-6)
    assert (picked == 0).all(0).mean() == 1 / FW
    np.testing.assert_allclose(found.zero_fraction, (picked == 0).mean(), rtol=1e-6)


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh", "sigmoid", "relu", "identity"])
def test_a_saturated_gate_is_one_on_a_flat_slope(name):
    gates = 4 * drawn(B, T, FW, seed=3)
    activation = getattr(activations, name)
    found = at_once(statistics.saturated_fraction)(spoilt(gates), COUNTED, activation=activation)
    x, step = gates[COUNTED].astype(np.float64), 1e-3
    with jax.enable_x64(True):
        rise = activation(jnp.asarray(x + step)) - activation(jnp.asarray(x - step))
    flat = np.abs(np.asarray(rise) / (2 * step)) < 0.05
    np.testing.assert_allclose(found, flat.mean(), rtol=1e-6)
    assert (found > 0) == (name != "identity")


def test_the_scale_of_logits():
    logits = 3 * drawn(B, T, V)
    found = logit_scale(spoilt(logits), COUNTED)
    picked = logits[COUNTED].astype(np.float64)
    np.testing.assert_allclose(found.sd, picked.std(-1).mean(), rtol=1e-5)
    np.testing.assert_allclose(found.largest, np.abs(picked).max(), rtol=1e-6)
    rows = logit_scale(logits[:, 0], np.array([True, False]))
    np.testing.assert_allclose(rows.sd, logits[0, 0].std(), rtol=1e-5)


STATISTICS = {
    "stream": lambda counted: stream_size(drawn(B, T, D), counted)[:2],
    "entropy": lambda counted: attention_entropy(
        np.full((B, N, T, S), 1 / S, np.float32), counted, np.full((B, T), S)
    ),
    "silent": lambda counted: silent_units(drawn(B, T, FW), counted),
    "gate": lambda counted: at_once(statistics.saturated_fraction)(
        drawn(B, T, FW), counted, activation=activations.silu
    ),
    "logits": lambda counted: logit_scale(drawn(B, T, V), counted),
}


@pytest.mark.parametrize("measure", STATISTICS.values(), ids=STATISTICS)
def test_of_no_position_there_is_no_value(measure):
    for value in jax.tree.leaves(measure(np.zeros((B, T), bool))):
        assert np.isnan(value).all()
    for value in jax.tree.leaves(measure(COUNTED)):
        assert np.isfinite(value).all()


def test_low_precision_is_measured_in_float32():
    x = jnp.full((B, T, D), 300, jnp.float16)
    found = stream_size(x, COUNTED)
    assert found.rms.dtype == jnp.float32
    np.testing.assert_allclose(found.rms, 300, rtol=1e-6)
