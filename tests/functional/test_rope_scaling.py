"""Tests for jtransformer.functional.rope_scaling, and of the extensions inside rope."""

import dataclasses
import math
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax.numpy as jnp
import numpy as np
import pytest
from catalogue.positions import speeds
from quickly import at_once

from jtransformer import functional as F
from jtransformer.functional.rope_scaling import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    YarnScaling,
    attention_factor,
    rope_frequencies,
)

rope = at_once(F.rope)

LINEAR, NTK = LinearScaling(factor=4.0), NTKScaling(factor=8.0)
LLAMA3 = Llama3Scaling(factor=8.0, original_length=8192)
YARN = YarnScaling(factor=16.0, original_length=4096)
PAPER = YarnScaling(factor=16.0, original_length=4096, ramp="rotations")
GPT_OSS = YarnScaling(factor=32.0, original_length=4096, ramp="planes")
EACH = pytest.mark.parametrize(
    "scaling",
    [LINEAR, NTK, LLAMA3, YARN, PAPER, GPT_OSS],
    ids="linear ntk llama3 yarn paper gpt_oss".split(),
)
PAIRINGS = pytest.mark.parametrize("pairing", ["half", "interleaved"])


@pytest.mark.parametrize(
    ("width", "theta", "scaling", "radians_per_token"),
    [
        # Computed in float32 by transformers 5.24 (ROPE_INIT_FUNCTIONS), an independent code.
        (128, 5e5, LLAMA3, {0: 1.0, 24: 7.2926651e-3, 29: 2.1665706e-3, 63: 3.0689259e-7}),
        (
            64,
            5e5,
            dataclasses.replace(LLAMA3, factor=32.0),
            {13: 4.8394212e-3, 16: 4.2955671e-4, 20: 8.5702559e-6, 31: 9.4183065e-8},
        ),
        (
            128,
            1e6,
            YarnScaling(factor=4.0, original_length=32_768),
            {16: 3.1622779e-2, 24: 5.3753215e-3, 32: 6.0294115e-4, 40: 4.4456985e-5},
        ),
        (128, 1e4, YARN, {16: 0.1, 24: 2.7061801e-2, 32: 5.673077e-3, 63: 7.2173871e-6}),
        (64, 1.5e5, GPT_OSS, {8: 5.0813273e-2, 12: 6.7949593e-3, 16: 4.5648392e-4}),
        (
            16,
            1e4,
            YarnScaling(factor=4.0, original_length=100),
            {0: 1.0, 1: 0.23717082, 2: 4.9999997e-2, 3: 7.9056947e-3},
        ),
        (128, 1e4, LINEAR, {0: 0.25, 16: 0.025, 63: 2.8869548e-5}),
        (128, 1e4, NTK, {0: 1.0, 16: 5.8971725e-2, 63: 1.4434774e-5}),
    ],
)
def test_frequencies_of_published_models(width, theta, scaling, radians_per_token):
    found = rope_frequencies(width, theta=theta, scaling=scaling)
    expected = list(radians_per_token.values())
    np.testing.assert_allclose(found[list(radians_per_token)], expected, rtol=5e-7)


@EACH
@pytest.mark.parametrize(("width", "theta"), [(64, 1e4), (128, 5e5), (6, 700.0)])
def test_frequencies_equal_the_papers_pieces(width, theta, scaling):
    expected = list(speeds(width, theta, scaling))
    found = rope_frequencies(width, theta=theta, scaling=scaling)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@EACH
def test_null_a_factor_of_one_is_no_extension(normal, scaling):
    scaling = dataclasses.replace(scaling, factor=1.0)
    for width in (4, 30, 128):
        plain = rope_frequencies(width, theta=5e5)
        np.testing.assert_array_equal(rope_frequencies(width, theta=5e5, scaling=scaling), plain)
    assert attention_factor(scaling) == 1.0
    (x,) = normal((1, 3, 2, 64))
    positions = jnp.array([[0, 9, 4_000]])
    np.testing.assert_array_equal(rope(x, positions, scaling=scaling), rope(x, positions))


CHANGES = {
    LINEAR: dict(factor=2.0),
    NTK: dict(factor=2.0),
    LLAMA3: dict(
        factor=2.0, original_length=4096, low_frequency_factor=2.0, high_frequency_factor=8.0
    ),
    YARN: dict(
        factor=2.0,
        original_length=32_768,
        beta_fast=16.0,
        beta_slow=0.1,
        ramp="planes",
        attention_factor=1.0,
    ),
}


@pytest.mark.parametrize(
    ("scaling", "field"), [(scaling, field) for scaling in CHANGES for field in CHANGES[scaling]]
)
def test_live_each_setting_changes_the_output(normal, scaling, field):
    (x,) = normal((1, 3, 2, 64))
    changed = dataclasses.replace(scaling, **{field: CHANGES[scaling][field]})
    positions = jnp.array([[0, 900, 4_000]])
    before, after = (rope(x, positions, scaling=each) for each in (scaling, changed))
    assert not np.allclose(before, after, atol=1e-3)
    assert set(CHANGES[scaling]) == {each.name for each in dataclasses.fields(scaling)}


def test_live_every_ramp_of_yarn_is_its_own():
    ramps = [
        rope_frequencies(64, scaling=dataclasses.replace(YARN, ramp=ramp))
        for ramp in ("whole_planes", "planes", "rotations")
    ]
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        assert np.abs(ramps[a] / ramps[b] - 1).max() > 0.02


def test_what_turns_often_is_kept_and_what_turns_rarely_is_slowed_fully():
    plain = rope_frequencies(128, theta=5e5)
    turns = 8192 * plain / (2 * math.pi)
    slowed = rope_frequencies(128, theta=5e5, scaling=LLAMA3)
    np.testing.assert_array_equal(slowed[turns > 4], plain[turns > 4])
    np.testing.assert_allclose(slowed[turns < 1], plain[turns < 1] / 8, rtol=1e-15)
    between = (turns > 1) & (turns < 4)
    assert between.sum() == 6
    assert ((plain / 8 < slowed) & (slowed < plain))[between].all()


def test_llama3_is_the_papers_yarn_without_its_temperature():
    same = YarnScaling(
        factor=8.0,
        original_length=8192,
        beta_fast=4.0,
        beta_slow=1.0,
        attention_factor=1.0,
        ramp="rotations",
    )
    frequencies = [rope_frequencies(128, theta=5e5, scaling=each) for each in (LLAMA3, same)]
    np.testing.assert_array_equal(*frequencies)
    assert attention_factor(same) == attention_factor(LLAMA3) == 1.0


def test_ntk_keeps_the_first_plane_and_slows_the_last_as_linear_does():
    plain, ntk = (rope_frequencies(64, scaling=scaling) for scaling in (None, NTK))
    assert ntk[0] == plain[0]
    np.testing.assert_allclose(ntk[-1], plain[-1] / 8, rtol=1e-14)
    assert (np.diff(plain / ntk) > 0).all()


def test_linear_turns_as_at_divided_positions(normal):
    (x,) = normal((1, 5, 2, 8))
    positions = jnp.arange(5)[None]
    extended = rope(x, 4 * positions, scaling=LINEAR)
    np.testing.assert_allclose(extended, rope(x, positions), atol=1e-6)


def test_attention_factor_multiplies_queries_and_keys_and_squares_in_the_scores(normal):
    q, k = normal(*[(1, 4, 1, 8)] * 2)
    positions = jnp.arange(4)[None]

    def scores(**change):
        scaling = dataclasses.replace(YARN, **change)
        return jnp.einsum("BTNH,BSNH->BNTS", *(rope(x, positions, scaling=scaling) for x in (q, k)))

    # 0.1 ln 16 + 1 = 1.277259.
    plain = scores(attention_factor=1.0)
    np.testing.assert_allclose(scores(), 1.2772588722**2 * plain, rtol=2e-5)
    np.testing.assert_allclose(scores(attention_factor=1.5), 2.25 * plain, rtol=2e-5)


GOLDEN = {
    # Offset 3 and offset 10, computed from the pieces' formulas with complex numbers in float64.
    LINEAR: dict(half=(0.8681722266318239, -4.350157971564625), interleaved=(3.4134884799568916,)),
    NTK: dict(half=(-3.8423107780736836, -1.3129822937903404), interleaved=(3.6029351954854127,)),
    LLAMA3: dict(half=(-3.7994372113512864, -1.2547955819549932), interleaved=(3.02887948554093,)),
    YARN: dict(half=(-6.149365566504479, -1.8811153349666532), interleaved=(5.022602896725779,)),
}
PAIRS = [(5, 2), (20, 17), (1_000_005, 1_000_002)]


def score_of(golden, dtype, at, **options):
    figures = golden("rope")
    turned = [
        rope(jnp.array(figures[name], dtype)[None, None, None], jnp.array([[position]]), **options)
        for name, position in zip("qk", at, strict=True)
    ]
    return jnp.vdot(*turned)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("scaling", GOLDEN)
@PAIRINGS
def test_golden_scores_depend_on_the_offset_only(golden, pairing, scaling):
    near, *further = GOLDEN[scaling][pairing]
    options = dict(pairing=pairing, scaling=scaling)
    for pair in PAIRS:
        np.testing.assert_allclose(score_of(golden, jnp.float64, pair, **options), near, atol=1e-9)
        np.testing.assert_allclose(score_of(golden, jnp.float32, pair, **options), near, atol=2e-5)
    for score in further:
        found = score_of(golden, jnp.float64, (20, 10), **options)
        np.testing.assert_allclose(found, score, atol=1e-12)


@EACH
@pytest.mark.parametrize("last", [131_072, 1_000_000, 2**31 - 1])
def test_cosines_and_sines_are_exact_far_out(scaling, last):
    # A plane holding (1, 0) turns into the cosine and the sine of its angle.
    ones = jnp.concatenate([jnp.ones((1, 64, 1, 32)), jnp.zeros((1, 64, 1, 32))], axis=-1)
    positions = last - np.linspace(0, last // 2, 64).astype(np.int32)
    turned = np.asarray(rope(ones, jnp.asarray(positions)[None], scaling=scaling))[0, :, 0]
    turned = turned.astype(np.float64) / attention_factor(scaling)
    radians = np.array(list(speeds(64, 10_000.0, scaling)))
    angle = positions[:, None] * radians
    # The reference's own error is that of its frequencies, 2e-16 of the angle.
    bound = 5e-7 + 1e-15 * last
    np.testing.assert_allclose(turned, np.hstack([np.cos(angle), np.sin(angle)]), atol=bound)


@EACH
def test_pairings_differ_by_a_permutation_of_channels(normal, scaling):
    (x,) = normal((2, 3, 2, 8))
    positions = jnp.array([[0, 1, 131_072]])
    order = np.arange(8).reshape(2, 4).T.ravel()
    half = rope(x, positions, scaling=scaling)[..., order]
    interleaved = rope(x[..., order], positions, pairing="interleaved", scaling=scaling)
    np.testing.assert_array_equal(interleaved, half)


def test_extensions_are_values():
    again = YarnScaling(factor=16.0, original_length=4096)
    assert again == YARN and hash(again) == hash(YARN) and again != PAPER
    with pytest.raises(dataclasses.FrozenInstanceError):
        again.factor = 2.0


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (LinearScaling, dict(factor=0.5), "a finite factor of at least 1, got factor=0.5"),
        (NTKScaling, dict(factor=math.inf), "a finite factor of at least 1, got factor=inf"),
        (Llama3Scaling, dict(factor=2.0, original_length=0), "got original_length=0"),
        (
            Llama3Scaling,
            dict(factor=2.0, original_length=9, low_frequency_factor=4.0),
            "got low_frequency_factor=4.0, high_frequency_factor=4.0",
        ),
        (YarnScaling, dict(factor=0.9, original_length=9), "got factor=0.9"),
        (YarnScaling, dict(factor=2.0, original_length=-1), "got original_length=-1"),
        (
            YarnScaling,
            dict(factor=2.0, original_length=9, beta_slow=40.0),
            "got beta_slow=40.0, beta_fast=32.0",
        ),
        (
            YarnScaling,
            dict(factor=2.0, original_length=9, attention_factor=0.0),
            "got attention_factor=0.0; None computes it",
        ),
    ],
)
def test_settings_that_make_no_sense_are_named(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind(**settings)


def test_an_unknown_ramp_is_named():
    unchecked = object.__new__(YarnScaling)
    vars(unchecked).update(vars(YARN), ramp="spline")
    with pytest.raises(ValueError, match="Unknown ramp 'spline'; use 'whole_planes', 'planes' or"):
        unchecked.__post_init__()


@pytest.mark.parametrize(
    ("width", "options", "message"),
    [
        (7, {}, "even rotary width of at least 2, got width=7"),
        (0, {}, "even rotary width of at least 2, got width=0"),
        (4, dict(theta=-1.0), "theta must be positive, got theta=-1.0"),
        (2, dict(scaling=NTK), "got width=2; use LinearScaling"),
        (4, dict(theta=1.0, scaling=YARN), "above 1, got theta=1.0; use ramp='rotations'"),
        (4, dict(scaling="yarn"), "Llama3Scaling or YarnScaling, got scaling='yarn'"),
    ],
)
def test_frequencies_that_do_not_exist_are_refused(width, options, message):
    with pytest.raises(ValueError, match=message):
        unwrap(rope_frequencies)(width, **options)
