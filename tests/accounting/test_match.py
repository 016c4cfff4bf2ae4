"""Tests for jtransformer.accounting.match: the feed-forward width for equal parameters."""

import dataclasses
import itertools
import time

import pytest

from jtransformer.accounting import match, parameters
from jtransformer.spec import EncoderDecoder, Learned, ModelSpec, RMSNorm, SpecError

REFERENCES = (
    ModelSpec(width=8, ffn_width=32, heads=2),
    ModelSpec(
        width=8, ffn_width=37, heads=2, ffn_bias=True, qkv_bias=True, attention_out_bias=True
    ),
    ModelSpec(width=12, ffn_width=5, heads=3, ffn="swiglu", norm=RMSNorm(), layers=3),
)
TWO_STACKS = EncoderDecoder(encoder_layers=1)
CANDIDATES = [
    ModelSpec(width=8, heads=2, ffn_width=1, ffn=ffn, ffn_bias=bias, **wiring)
    for ffn, bias, wiring in itertools.product(
        ("relu", "swiglu"),
        (False, True),
        (
            dict(),
            dict(norm_placement="sandwich", scan_layers=True, stack=TWO_STACKS, key_value_heads=1),
        ),
    )
]
LAST = 600
WIDE = ModelSpec(width=512, ffn_width=2048, heads=8, layers=1)
ANY = dict(equal="parameters", by="ffn_width", tolerance=0.99)


def ffn_of(model):
    return parameters(model).ffn


def with_width(model, width):
    return dataclasses.replace(model, ffn_width=width)


@pytest.fixture(scope="module")
def counts():
    """The parameters of every candidate at every width, by trying all of them."""
    return {
        candidate: [parameters(with_width(candidate, width)).total for width in range(1, LAST)]
        for candidate in CANDIDATES
    }


def best_of_all(target, counts, multiple_of):
    """Returns the best width; of two equally good ones the smaller."""
    widths = range(multiple_of, LAST, multiple_of)
    misses = [abs(counts[width - 1] - target) for width in widths]
    return widths[misses.index(min(misses))]


@pytest.mark.parametrize("multiple_of", [1, 2, 3, 8, 64])
def test_matches_a_search_over_all_widths(multiple_of, counts):
    for reference, candidate in itertools.product(REFERENCES, CANDIDATES):
        target = parameters(reference).total
        best = best_of_all(target, counts[candidate], multiple_of)
        assert best + multiple_of < LAST, "the search must not end at its edge"
        count = counts[candidate][best - 1]
        rule = dict(ANY, multiple_of=multiple_of)
        if abs(count - target) / target > 0.99:
            with pytest.raises(SpecError, match=f"the best .*ffn_width is {best},"):
                match(reference, candidate, **rule)
            continue
        found = match(reference, candidate, **rule)
        assert found.value == best and found.spec == with_width(candidate, best)
        assert found.residual == pytest.approx((count - target) / target, abs=1e-15)


def test_the_smaller_of_two_equally_good_widths_wins():
    # One unit of width is 2 * 2 * 8 = 32 parameters; the target lies in the middle of two.
    reference = ModelSpec(width=8, ffn_width=41, heads=2)
    candidate = dataclasses.replace(reference, ffn_width=1)
    found = match(reference, candidate, **ANY, multiple_of=2)
    miss = 32 / parameters(reference).total
    assert (found.value, found.residual) == (40, -miss)
    assert parameters(with_width(candidate, 42)).total - parameters(reference).total == 32


def test_null_a_model_matches_itself():
    for reference in (*REFERENCES, *CANDIDATES, WIDE):
        found = match(reference, reference, equal="parameters", by="ffn_width", tolerance=0)
        assert found.spec == reference and found.residual == 0


def test_the_answer_does_not_depend_on_the_width_it_starts_from():
    for reference in REFERENCES:
        starts = (CANDIDATES[3], with_width(CANDIDATES[3], 999))
        assert len({match(reference, start, **ANY) for start in starts}) == 1


def test_worked_gated_widths():
    """ACT-02: the feed-forward part of a gated model against a dense one of 2048."""
    gated = dataclasses.replace(WIDE, ffn="swiglu")
    assert ffn_of(WIDE) == 2_097_152
    expected = {1: (1365, -0.000244), 64: (1344, -0.015625), 256: (1280, -0.0625)}
    for multiple_of, (width, relative) in expected.items():
        found = match(WIDE, gated, **ANY, multiple_of=multiple_of)
        assert found.value == width
        assert ffn_of(found.spec) / ffn_of(WIDE) - 1 == pytest.approx(relative, abs=1e-6)
    assert ffn_of(with_width(gated, 1365)) == 2_096_640
    # What rounding up to the usual multiples would have cost instead, as many texts do it.
    for width, relative in [(1408, 0.03125), (1536, 0.125)]:
        assert ffn_of(with_width(gated, width)) / ffn_of(WIDE) - 1 == relative


def test_worked_gated_widths_with_biases():
    biased = dataclasses.replace(WIDE, ffn_bias=True)
    assert ffn_of(biased) == 2_099_712
    found = match(biased, dataclasses.replace(biased, ffn="swiglu"), **ANY)
    assert found.value == 1365
    assert parameters(found.spec).total - parameters(biased).total == 170


def test_worked_exact_match():
    dense = ModelSpec(width=768, ffn_width=3072, heads=12)
    found = match(dense, dataclasses.replace(dense, ffn="geglu"), **dict(ANY, tolerance=0))
    assert (found.value, found.residual) == (2048, 0)
    assert ffn_of(found.spec) == dense.layers * 4_718_592


def test_live_tolerance_and_multiple():
    gated = dataclasses.replace(WIDE, ffn="swiglu", width=512)
    residual = match(WIDE, gated, **ANY, multiple_of=64).residual
    within = dict(equal="parameters", by="ffn_width", multiple_of=64)
    assert match(WIDE, gated, **within, tolerance=abs(residual)).residual == residual
    with pytest.raises(SpecError, match="cannot make"):
        match(WIDE, gated, **within, tolerance=abs(residual) * 0.999)


def test_error_says_what_can_be_reached():
    reference = ModelSpec(width=64, ffn_width=256)
    gated = dataclasses.replace(reference, ffn="swiglu")
    with pytest.raises(SpecError) as caught:
        match(reference, gated, equal="parameters", by="ffn_width", multiple_of=64, tolerance=0.01)
    best = parameters(with_width(gated, 192)).total
    target = parameters(reference).total
    assert str(caught.value) == (
        f"match.by = 'ffn_width' cannot make {parameters(gated).total} parameters equal to "
        f"{target} within 1.000%: the best multiple of 64 of ffn_width is 192, which misses by "
        f"{best / target - 1:+.3%}; allow a finer multiple_of, a larger tolerance or another knob."
    )


def test_unreachable_targets_end_quickly():
    """Far too large and far too small."""
    large = ModelSpec(width=4096, layers=1000, heads=1, ffn_width=10**9, position=Learned())
    small = ModelSpec(width=8, heads=1)
    began = time.monotonic()
    for reference, candidate in [(large, small), (small, large)]:
        with pytest.raises(SpecError, match="cannot make"):
            match(reference, candidate, **dict(ANY, tolerance=0.1))
    assert time.monotonic() - began < 1
