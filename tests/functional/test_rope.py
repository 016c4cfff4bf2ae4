"""Tests for jtransformer.functional.rope."""

from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F
from jtransformer.functional.rope_scaling import YarnScaling

dot_product_attention = at_once(F.dot_product_attention)
rope = at_once(F.rope)

B, T, N, H = 2, 5, 3, 8
POSITIONS = jnp.tile(jnp.arange(T)[None], (B, 1))
FAR = 131_072
PAIRINGS = ["half", "interleaved"]
turn = quickly(rope, static_argnames=("theta", "pairing", "rotary_width", "scaling"))
BOTH = pytest.mark.parametrize("pairing", PAIRINGS)


def reference(x, positions, theta, pairing):
    """The paper's form: each plane is a complex number times exp(i * angle)."""
    x = np.asarray(x, np.float64)
    H = x.shape[-1]
    half = pairing == "half"
    real, imag = (x[..., : H // 2], x[..., H // 2 :]) if half else (x[..., ::2], x[..., 1::2])
    angle = np.asarray(positions, float)[:, :, None, None] * theta ** (-np.arange(0, H, 2) / H)
    z = (real + 1j * imag) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], -1) if half else z.view(np.float64).reshape(x.shape)


@BOTH
@pytest.mark.parametrize("theta", [10_000.0, 500.0, 1.0])
def test_matches_complex_rotation(normal, theta, pairing):
    (x,) = normal((B, T, N, H))
    expected = reference(x, POSITIONS, theta, pairing)
    np.testing.assert_allclose(
        turn(x, POSITIONS, theta=theta, pairing=pairing), expected, atol=2e-6
    )


@BOTH
@pytest.mark.parametrize("last", [FAR, 1_000_005, 2**31 - 1])
def test_far_positions_are_exact(normal, pairing, last):
    width = 64
    (x,) = normal((1, 64, 1, width))
    positions = jnp.linspace(0, 1, 64)[None] * (last // 2)
    positions = last - positions.astype(jnp.int32)
    expected = reference(x, positions, 10_000.0, pairing)
    np.testing.assert_allclose(turn(x, positions, pairing=pairing), expected, atol=5e-6)


@BOTH
def test_negative_positions_turn_back(normal, pairing):
    (x,) = normal((B, T, N, H))
    for shift in (3, FAR):
        there = turn(x, POSITIONS + shift, pairing=pairing)
        back = turn(there, -POSITIONS - shift, pairing=pairing)
        np.testing.assert_allclose(back, x, atol=5e-6)


@pytest.mark.usefixtures("float64")
@BOTH
def test_worked_values(golden, pairing):
    figures = golden("rope")
    q, k = (jnp.array(figures[name])[None, None, None] for name in "qk")

    def turned(x, position):
        turned = turn(x, jnp.array([[position]]), theta=figures["base"], pairing=pairing)
        return turned.ravel()

    expected = figures[pairing]
    np.testing.assert_allclose(turned(q, 5), expected["q_at_5"], atol=1e-14)
    np.testing.assert_allclose(turned(k, 2), expected["k_at_2"], atol=1e-14)
    for name, score in expected.items():
        if name.startswith("score_"):
            i, j = (int(position) for position in name.split("_")[1:])
            np.testing.assert_allclose(turned(q, i) @ turned(k, j), score, atol=1e-9)


@BOTH
def test_worked_scores_in_float32_far_out(golden, pairing):
    figures = golden("rope")
    q, k = (jnp.array(figures[name], jnp.float32)[None, None, None] for name in "qk")
    turned = [
        turn(x, jnp.array([[p]]), pairing=pairing) for x, p in ((q, 1_000_005), (k, 1_000_002))
    ]
    score = jnp.vdot(*turned)
    np.testing.assert_allclose(score, figures[pairing]["score_1000005_1000002"], atol=1e-5)


def test_pairings_by_hand():
    """Weights of one pairing read with the other give other numbers, without an error."""
    # Frequencies 1 and 0.01.
    x = jnp.array([1.0, 2.0, 3.0, 4.0])[None, None, None]
    one = jnp.ones((1, 1), int)
    half = [-1.984111, 1.959901, 2.462378, 4.019800]
    np.testing.assert_allclose(turn(x, one).ravel(), half, atol=1e-6)
    interleaved = [-1.142640, 1.922076, 2.959851, 4.029800]
    found = turn(x, one, pairing="interleaved").ravel()
    np.testing.assert_allclose(found, interleaved, atol=1e-6)


def test_pairings_differ_by_a_permutation_of_channels(normal):
    (x,) = normal((B, T, N, H))
    order = np.arange(H).reshape(2, H // 2).T.ravel()
    half = turn(x, POSITIONS)[..., order]
    np.testing.assert_array_equal(turn(x[..., order], POSITIONS, pairing="interleaved"), half)


@BOTH
def test_scores_depend_on_offset_only(normal, pairing):
    q, k = normal(*[(B, T, N, H)] * 2)

    def scores(shift):
        turned = [turn(x, POSITIONS + shift, pairing=pairing) for x in (q, k)]
        return jnp.einsum("BTNH,BSNH->BNTS", *turned)

    for shift in (17, FAR):
        np.testing.assert_allclose(scores(shift), scores(0), atol=1e-5)


@BOTH
def test_partial_turns_the_first_channels_as_a_narrow_head_and_passes_the_rest(normal, pairing):
    (x,) = normal((B, T, N, H))
    for width in (2, 6):
        for dtype in (jnp.float32, jnp.bfloat16):
            out = turn(x.astype(dtype), POSITIONS + FAR, pairing=pairing, rotary_width=width)
            narrow = turn(x.astype(dtype)[..., :width], POSITIONS + FAR, pairing=pairing)
            np.testing.assert_array_equal(out[..., :width], narrow)
            np.testing.assert_array_equal(out[..., width:], x.astype(dtype)[..., width:])


def test_partial_leaves_the_rest_unstretched(normal):
    (x,) = normal((B, T, N, H))
    scaling = YarnScaling(factor=4.0, original_length=64)
    out = turn(x, POSITIONS, rotary_width=4, scaling=scaling)
    np.testing.assert_array_equal(out[..., 4:], x[..., 4:])
    assert not np.allclose(out[:, 0, :, :4], x[:, 0, :, :4])


@pytest.mark.usefixtures("float64")
@BOTH
def test_worked_scores_of_a_partial_rotation(golden, pairing):
    figures = golden("rope")
    # By complex numbers: the first four channels turn by 1 and 0.01 radians per token.
    expected = dict(half=1.2862576363429081, interleaved=4.0319172864567845)[pairing]
    for at in ((5, 2), (20, 17), (1_000_005, 1_000_002)):
        turned = [
            turn(
                jnp.array(figures[name])[None, None, None],
                jnp.array([[position]]),
                pairing=pairing,
                rotary_width=4,
            )
            for name, position in zip("qk", at, strict=True)
        ]
        np.testing.assert_allclose(jnp.vdot(*turned), expected, atol=1e-9)


@BOTH
def test_attention_over_unturned_values_does_not_feel_a_shift(normal, pairing):
    q, k, v = normal(*[(B, T, N, H)] * 3)

    def read(shift, turn_values):
        at = POSITIONS + shift
        heads = [turn(x, at, pairing=pairing) for x in (q, k)]
        values = turn(v, at, pairing=pairing) if turn_values else v
        return dot_product_attention(*heads, values)

    np.testing.assert_allclose(read(17, False), read(0, False), atol=1e-5)
    assert not np.allclose(read(17, True), read(0, True), atol=0.1)


@BOTH
def test_lengths_are_kept(normal, pairing):
    (x,) = normal((B, T, N, H))
    norms = [jnp.linalg.norm(each, axis=-1) for each in (x, turn(x, POSITIONS, pairing=pairing))]
    np.testing.assert_allclose(*norms, rtol=1e-5)


@BOTH
def test_null_position_zero_is_identity(normal, pairing):
    (x,) = normal((B, T, N, H))
    np.testing.assert_array_equal(rope(x, jnp.zeros_like(POSITIONS), pairing=pairing), x)


def test_one_row_of_positions_serves_the_batch(normal):
    (x,) = normal((B, T, N, H))
    np.testing.assert_array_equal(rope(x, POSITIONS[:1]), rope(x, POSITIONS))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_does_not_reach_the_angles(dtype):
    """Positions cast to bfloat16 before the angle is formed merge: 15962 becomes 15936."""
    # 15962 is 15936 in bfloat16; its cosine is -0.908016, that of the other -0.267950.
    x = jnp.array([1.0, 0.0], dtype)[None, None, None]
    out = rope(x, jnp.array([[15_962]]))
    assert out.dtype == dtype
    np.testing.assert_allclose(out.ravel()[0].astype(float), -0.908016, atol=4e-3)


@pytest.mark.parametrize("position_dtype", [jnp.int8, jnp.int16])
def test_integer_types_of_positions(normal, position_dtype):
    (x,) = normal((B, T, N, H))
    np.testing.assert_array_equal(rope(x, POSITIONS.astype(position_dtype)), rope(x, POSITIONS))


@pytest.mark.parametrize(
    ("width", "options", "message"),
    [
        (7, {}, "even head width, got H=7"),
        (8, dict(theta=0.0), "theta must be positive, got theta=0.0"),
        (7, dict(rotary_width=8), "rotary_width=8, H=7"),
        (8, dict(rotary_width=3), "rotary_width must be even and in 2 … H, got rotary_width=3"),
        (8, dict(rotary_width=0), "got rotary_width=0, H=8"),
        (8, dict(pairing="thirds"), "Unknown pairing 'thirds'; use 'half' or 'interleaved'"),
    ],
)
def test_wrong_arguments_are_named(width, options, message):
    with pytest.raises(ValueError, match=message):
        unwrap(rope)(jnp.ones((B, T, N, width)), POSITIONS, **options)


def test_error_positions_that_would_be_misread():
    x = jnp.ones((2, 5, 3, 8))
    with pytest.raises(ValueError, match="axes B T, B full or 1, got positions.shape="):
        unwrap(rope)(x, jnp.arange(5))
    with pytest.raises(ValueError, match=r"got positions.shape=\(3, 5\) for x.shape=\(2, 5, 3, 8"):
        unwrap(rope)(x, jnp.zeros((3, 5), int))
    with pytest.raises(ValueError, match=r"got positions.shape=\(2, 5\) for x.shape=\(1, 5, 3, 8"):
        unwrap(rope)(x[:1], jnp.zeros((2, 5), int))
    with pytest.raises(ValueError, match="positions must be integers"):
        unwrap(rope)(x, jnp.arange(5.0)[None])
