"""Tests for jtransformer.stats.ladder on whole work directories whose losses follow known laws."""

import math

import numpy as np
import pytest
from ladder_fixture import EMBEDDING, SIZES, law, load_ladder
from sweep_fixture import noisy_losses, write_sweep

from jtransformer.records import load_sweep
from jtransformer.stats import analyse, ladder

BASE = law(1.5, 0.6, 0.3)
# Per doubling, from the smallest scale on.
LAWS = {
    "pre": BASE,
    "grows": lambda size: BASE(size) - 0.01 * math.log2(size / 2000),
    "shrinks": lambda size: BASE(size) + 0.1 - 0.01 * math.log2(size / 4000),
    "holds": lambda size: BASE(size) + 0.05,
}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return load_ladder(tmp_path_factory.mktemp("ladder"), LAWS, sd=0.0005)


@pytest.fixture(scope="module")
def found(parts):
    return ladder(parts)


def arm(found, label):
    return next(one for one in found.arms if one.label == label)


def test_known_trends_get_their_words(found):
    assert {one.label: one.trend and one.trend.word for one in found.arms} == {
        "pre": None,
        "grows": "grows",
        "shrinks": "shrinks",
        "holds": "holds",
    }
    np.testing.assert_allclose(arm(found, "grows").trend.slope.value, -0.01, atol=5e-4)
    assert found.comparisons == 3 and found.complete and found.baseline == "pre"


def test_known_laws_lie_within_their_intervals(found):
    fit = arm(found, "pre").fit
    assert fit.floor.low < 1.5 + 0.01 and fit.floor.high > 1.5 - 0.01
    assert fit.exponent.low < 0.3 < fit.exponent.high
    minus = arm(found, "holds").exponent
    assert minus.low < 0 < minus.high
    assert arm(found, "pre").exponent is None


def test_the_slopes_p_is_holms(found):
    raw = {one.label: one.trend.slope.p for one in found.arms if one.trend}
    adjusted = {one.label: one.trend.p_adjusted for one in found.arms if one.trend}
    smallest = min(raw, key=raw.get)
    np.testing.assert_allclose(adjusted[smallest], min(3 * raw[smallest], 1.0))
    assert all(adjusted[label] >= p for label, p in raw.items())


def test_sizes_are_those_between_embeddings_and_head(found, parts):
    assert found.axis == "non_embedding_parameters" and found.sizes == SIZES
    assert found.beyond == 4 * 256_000
    assert ladder(parts[::-1]).sizes == SIZES and list(ladder(parts[::-1]).sizes) == list(SIZES)


def test_all_parameters_count_where_the_inner_ones_do_not_vary(tmp_path):
    parts = load_ladder(tmp_path, {"pre": BASE})
    for index, (_, analysis) in enumerate(parts):
        (own,) = analysis.arms
        object.__setattr__(own, "components", {"embedding": 1000 * 2**index, "attention": 512})
        object.__setattr__(own, "parameters", 1000 * 2**index + 512)
    assert ladder(parts).axis == "parameters"


def retokened(parts, tokens):
    for index, (record, _) in enumerate(parts):
        for run in record.runs:
            run.status["result"]["tokens"] = tokens(index)
    return parts


def test_tokens_are_the_scale_where_they_vary_alone(tmp_path):
    equal = dict.fromkeys(SIZES, 16_000)
    parts = retokened(load_ladder(tmp_path, {"pre": BASE}, equal), lambda i: 10_000 * 4**i)
    found = ladder(parts)
    assert found.axis == "tokens" and list(found.sizes.values()) == [1e4, 4e4, 16e4, 64e4]


def test_operations_are_the_scale_where_both_vary(tmp_path):
    found = ladder(retokened(load_ladder(tmp_path, {"pre": BASE}), lambda i: 10_000 * 4**i))
    assert found.axis == "training_flops"
    assert list(found.sizes.values()) == [6 * 4_000 * 16**i * 10_000 for i in range(4)]


def test_scales_that_do_not_vary_are_no_ladder(tmp_path):
    assert ladder(load_ladder(tmp_path, LAWS, dict.fromkeys(SIZES, 16_000))) is None
    record = load_sweep(write_sweep(tmp_path / "one", noisy_losses({"pre": 0.0, "post": 0.1})))
    assert ladder([(record, analyse(record))]) is None


def ended(tmp_path, where, outcome):
    """The ladder if some runs end otherwise."""
    return ladder(load_ladder(tmp_path, LAWS, ends=lambda *run: outcome if where(*run) else None))


def test_a_diverged_scale_is_left_out_and_named(tmp_path):
    found = ended(tmp_path, lambda arm, seed: arm == "huge-grows" and seed == 1, "diverged")
    own = arm(found, "grows")
    assert own.left_out == {"huge": "diverges in 1 of 3 runs"}
    assert {point.scale for point in own.points} == {"tiny", "small", "large"}
    assert own.trend.scales == ("tiny", "small", "large") and own.fit.floor is None
    assert own.exponent is None, "of other scales than the baseline's"
    assert arm(found, "pre").fit.floor is not None


def test_a_diverged_baseline_takes_its_scale_out_of_the_differences(tmp_path):
    found = ended(tmp_path, lambda arm, _: arm == "tiny-pre", "diverged")
    assert arm(found, "pre").left_out == {"tiny": "diverges in 3 of 3 runs"}
    assert arm(found, "grows").trend.scales == ("small", "large", "huge")
    assert len(arm(found, "grows").points) == 12 and "tiny" not in arm(found, "grows").differences


def test_a_half_finished_ladder_says_what_it_lacks(tmp_path):
    found = ended(tmp_path, lambda arm, _: arm.startswith(("large", "huge")), "pending")
    assert not found.complete
    own = arm(found, "grows")
    assert own.fit is None and own.unfitted == "2 of the 3 scales that a power law needs"
    assert own.left_out == dict.fromkeys(("large", "huge"), "has no finished run")
    assert own.trend.scales == ("tiny", "small")


@pytest.mark.parametrize("outcome", ["pending", "diverged"])
def test_nothing_is_claimed_of_a_ladder_without_figures(tmp_path, outcome):
    found = ended(tmp_path, lambda arm, seed: True, outcome)
    assert all(one.fit is None and one.trend is None and not one.points for one in found.arms)


def test_one_seed_has_no_interval_and_no_word(tmp_path):
    found = ladder(load_ladder(tmp_path, LAWS, seeds=1))
    for one in found.arms:
        assert one.unfitted == "no interval from one seed"
        assert one.trend is None or one.trend.word == "cannot tell"
        assert one.trend is None or one.trend.slope.low is None


@pytest.mark.parametrize("margin, word", [(None, "cannot tell"), (0.5, "holds")])
def test_the_declared_margin_is_what_holds(tmp_path, margin, word):
    laws = {"pre": BASE, "post": lambda size: BASE(size) + 0.01}
    found = ladder(load_ladder(tmp_path, laws, sd=0.02, verdict=dict(margin=margin)))
    assert (found.declared, found.margin) == (margin is not None, margin or 0.005)
    np.testing.assert_allclose(found.tolerance * 6, found.margin)
    assert arm(found, "post").trend.word == word


def test_the_same_records_give_the_same_bits(parts, found):
    assert ladder(parts) == found


def test_the_fixture_is_what_it_says(parts):
    assert parts[0][0].manifest["arms"][0]["parameters"] == EMBEDDING + 4_000
