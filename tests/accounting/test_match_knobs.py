"""Tests for jtransformer.accounting.match: every quantity and every knob."""

import dataclasses
import math

import pytest

from jtransformer.accounting import (
    KNOBS,
    flops,
    match,
    parameters,
    quantity,
)
from jtransformer.spec import (
    Classifier,
    DotProduct,
    Encoder,
    EncoderDecoder,
    LatentAttention,
    Learned,
    ModelSpec,
    SpecError,
    TokenHead,
)

ANY = math.inf
BY_WIDTH = dict(equal="parameters", by="width", tolerance=0)
SMALL = ModelSpec(width=32, heads=4, layers=2, ffn_width=64)


def test_a_width_takes_its_heads_along():
    """Heads keep their width; what is given a number stays, and heads are whole groups of it."""
    for K, widths in ((None, {40: 5, 48: 6}), (1, {40: 5}), (4, {64: 8})):
        model = dataclasses.replace(SMALL, key_value_heads=K)
        for width, heads in widths.items():
            target = dataclasses.replace(model, width=width, heads=heads)
            found = match(target, model, equal="parameters", by="width", tolerance=0)
            assert found.spec == target and found.value == width
            assert (found.spec.H, found.spec.ffn_width) == (SMALL.H, SMALL.ffn_width)
    grouped = dataclasses.replace(SMALL, key_value_heads=4)
    five = dataclasses.replace(SMALL, width=40, heads=5)
    assert match(five, grouped, equal="parameters", by="width", tolerance=ANY).value == 32
    # Heads that share out more than the width keep that, too.
    wide = dataclasses.replace(SMALL, head_width=16)
    found = match(wide, dataclasses.replace(wide, width=64, heads=8), **BY_WIDTH).spec
    assert (found.width, found.heads, found.head_width) == (32, 4, 16)


def test_heads_pay_at_a_fixed_width():
    """At a fixed head width, too: heads that share out the width cost the same, however many."""
    assert parameters(dataclasses.replace(SMALL, heads=8)) == parameters(SMALL)
    multi_query = dataclasses.replace(SMALL, key_value_heads=1)
    found = match(SMALL, multi_query, equal="parameters", by="heads", tolerance=0.05)
    assert (found.value, found.spec.key_value_heads, found.spec.K) == (7, 1, 1)
    assert (found.spec.width, found.spec.head_width) == (32, 8)
    # 2 * 32 * 8 * (N + K) entries a layer: 4 + 4 heads against 7 + 1.
    assert found.residual == 0
    same = match(SMALL, SMALL, equal="parameters", by="heads", tolerance=0).spec
    assert same == SMALL and same.head_width is None


def test_layers_are_those_that_the_head_reads():
    two = dataclasses.replace(SMALL, stack=EncoderDecoder(encoder_layers=3))
    more = dataclasses.replace(two, layers=5)
    found = match(more, two, equal="parameters", by="layers", tolerance=0)
    assert found.spec == more and found.spec.stack == two.stack


def test_worked_rounding_of_two_thirds():
    """ACT-02: two thirds, rounded up to the usual 256, is half as much again at a width of 128."""
    for D, rounded, excess in ((128, 512, 0.5), (512, 1536, 0.125)):
        dense = ModelSpec(width=D, ffn_width=4 * D, heads=4, layers=6)
        gated = dataclasses.replace(dense, ffn="swiglu", ffn_width=rounded)
        assert rounded == 256 * math.ceil(8 * D / 3 / 256)
        assert parameters(gated).ffn / parameters(dense).ffn - 1 == excess
        rule = dict(equal="parameters", by="ffn_width", tolerance=0.001)
        exact = match(dense, gated, **rule)
        assert abs(3 * exact.value - 8 * D) < 3 and abs(exact.residual) < 0.001
        with pytest.raises(SpecError, match="the best multiple of 256 of ffn_width is"):
            match(dense, gated, multiple_of=256, **rule)


@pytest.mark.parametrize(
    "alone",
    [
        dict(ffn_bias=True),
        dict(qkv_bias=True, attention_out_bias=True),
        dict(head=TokenHead(tied=False)),
        dict(head=TokenHead(bias=True)),
        dict(position=Learned(max_length=64)),
    ],
)
def test_what_one_arm_alone_has_is_paid_for(alone):
    """Biases, a head of its own, a table of positions: counted, so that the width gives way."""
    base = dataclasses.replace(SMALL, vocabulary=30)
    candidate = dataclasses.replace(base, **alone)
    extra = parameters(candidate).total - parameters(base).total
    unit = 2 * (2 * 32 + candidate.ffn_bias)
    found = match(base, candidate, equal="parameters", by="ffn_width", tolerance=0.01)
    assert extra > 0 and abs(64 - found.value - extra / unit) <= 0.5
    # What stands outside the layers costs nothing of what is counted between them.
    outside = candidate.head != base.head or candidate.position != base.position
    inside = match(base, candidate, equal="non_embedding_parameters", by="ffn_width", tolerance=0.1)
    assert (inside.value == 64) == outside


def test_equal_parameters_are_not_equal_operations():
    """Layers share nothing, but scores cost operations and no parameters."""
    deep = dataclasses.replace(SMALL, layers=6)
    rule = dict(by="ffn_width", tolerance=0.05)
    by_size = match(SMALL, dataclasses.replace(deep, layers=3), equal="parameters", **rule)
    operations = [quantity(m, "training_flops", length=512) for m in (SMALL, by_size.spec)]
    assert operations[1] / operations[0] > 1.2
    with pytest.raises(SpecError, match="= 'ffn_width' cannot make .* training_flops equal to"):
        match(SMALL, deep, equal="training_flops", length=512, **rule)


def test_the_first_knob_that_reaches_the_tolerance_pays():
    gated = dataclasses.replace(SMALL, ffn="swiglu")
    rule = dict(equal="parameters", tolerance=0.02)
    first = match(SMALL, gated, by=("ffn_width", "layers"), **rule)
    assert first == match(SMALL, gated, by="ffn_width", **rule)
    assert first == match(SMALL, gated, by=("layers", "ffn_width"), **rule)
    near = dict(rule, tolerance=0.2)
    one, other = (match(SMALL, gated, by=by, **near).by for by in (KNOBS[:2], KNOBS[1::-1]))
    assert (one, other) == ("ffn_width", "layers")
    coarse = match(SMALL, gated, by=("ffn_width", "heads"), multiple_of=(1000, 1), **near)
    assert (coarse.by, coarse.value % 1000) == ("heads", coarse.value)


def test_error_names_the_best_of_every_knob():
    gated = dataclasses.replace(SMALL, ffn="swiglu")
    rule = dict(equal="parameters", multiple_of=(64, 1))
    with pytest.raises(SpecError) as caught:
        match(SMALL, gated, by=("ffn_width", "layers"), tolerance=0.01, **rule)
    alone = [
        match(SMALL, gated, equal="parameters", by=by, multiple_of=multiple_of, tolerance=ANY)
        for by, multiple_of in (("ffn_width", 64), ("layers", 1))
    ]
    assert str(caught.value) == (
        f"match.by = 'ffn_width, layers' cannot make {parameters(gated).total} parameters equal to "
        f"{parameters(SMALL).total} within 1.000%: the best multiple of 64 of ffn_width is "
        f"{alone[0].value}, which misses by {alone[0].residual:+.3%}, the best "
        f"layers is {alone[1].value}, which misses by {alone[1].residual:+.3%}; allow a finer "
        "multiple_of, a larger tolerance or another knob."
    )


@pytest.mark.parametrize(
    ("model", "by"),
    [
        (SMALL, "ffn_width"),
        (dataclasses.replace(SMALL, key_value_heads=1), "heads"),
        (dataclasses.replace(SMALL, key_value_heads=2), "width"),
        (dataclasses.replace(SMALL, attention=LatentAttention()), "heads"),
        (dataclasses.replace(SMALL, attention=LatentAttention()), ("layers", "width")),
        (dataclasses.replace(SMALL, stack=Encoder()), "layers"),
    ],
)
def test_error_a_knob_without_effect(model, by):
    """Even where the two are equal already: such a knob would never pay."""
    knob = by if isinstance(by, str) else by[-1]
    with pytest.raises(SpecError, match=f"^match.by = '{knob}' has no effect on the kv_bytes of"):
        match(SMALL, model, equal="kv_bytes", by=by, tolerance=0.5, length=8)


WORDS = {
    ("equal", "flops"): "match.equal = 'flops' is unknown; did you mean 'training_flops'? allowed:",
    ("equal", None): "match.equal = None is unknown; allowed: inference_flops, kv_bytes,",
    ("by", "ffn_widht"): "match.by = 'ffn_widht' is unknown; did you mean 'ffn_width'? allowed:",
    ("by", "model.width"): "match.by = 'model.width' is unknown",
    ("by", 5): "match.by = 5 is unknown",
    ("by", ()): "match.by = () must name at least one knob",
    ("by", ("width", "width")): "match.by = ('width', 'width') must name at least one knob",
    ("by", ("width", "")): "match.by = '' is unknown",
    ("multiple_of", 0): "match.multiple_of must be an integer of at least 1, got 0.",
    ("multiple_of", True): "match.multiple_of must be an integer of at least 1, got True.",
    ("multiple_of", (2, 3)): "match.multiple_of = (2, 3) has 2 numbers for 1 knobs; give",
    ("multiple_of", 10**12): "match.multiple_of = 1000000000000 leaves no layers: it would be a",
    ("length", None): "match.length is missing: training_flops are per token",
    ("length", 0): "match.length must be at least 1, got 0.",
    ("source_length", 4): "match.source_length = 4 would do nothing: neither model has a source.",
}


@pytest.mark.parametrize("name, value", WORDS)
def test_error_arguments(name, value):
    rule = dict(equal="training_flops", by="layers", tolerance=0.1, length=8) | {name: value}
    with pytest.raises(SpecError) as caught:
        match(SMALL, SMALL, **rule)
    assert str(caught.value).startswith(WORDS[name, value]) and str(caught.value).endswith(".")


def test_error_a_length_that_nothing_reads():
    for what in ("length", "source_length"):
        two = dataclasses.replace(SMALL, stack=EncoderDecoder())
        with pytest.raises(SpecError, match=f"{what} = 8 would do nothing, because parameters dep"):
            match(two, two, equal="parameters", by="layers", tolerance=0.1, **{what: 8})


def test_a_source_is_read_by_the_model_that_has_one():
    two = dataclasses.replace(SMALL, stack=EncoderDecoder(encoder_layers=1), layers=1)
    rule = dict(equal="training_flops", by="ffn_width", tolerance=0.01, length=8)
    short, long = (match(two, SMALL, source_length=S, **rule).value for S in (4, 40))
    assert short < long
    assert match(SMALL, two, source_length=4, **rule).value > 1


def test_live_length_and_window():
    """Scores grow with the length, and a cache ends with its window."""
    windowed = dataclasses.replace(SMALL, attention=DotProduct(window=4))
    rule = dict(equal="kv_bytes", by="layers", tolerance=0)
    assert match(SMALL, windowed, length=4, **rule).value == 2
    assert match(SMALL, windowed, length=16, **rule).value == 8
    deep = dataclasses.replace(SMALL, layers=4)
    rule = dict(equal="training_flops", by="ffn_width", tolerance=0.5)
    assert match(deep, SMALL, length=8, **rule).value < match(deep, SMALL, length=64, **rule).value


def test_inference_is_what_the_model_does():
    """A decoder of tokens decodes; what has no token head is run forward once."""
    windowed = dataclasses.replace(SMALL, attention=DotProduct(window=4))
    figures = flops(windowed, length=8)
    assert quantity(windowed, "inference_flops", length=8) == figures.decoding < figures.forward
    for other in (dict(stack=Encoder()), dict(head=Classifier())):
        model = dataclasses.replace(SMALL, **other)
        forward = flops(model, length=8).forward
        assert quantity(model, "inference_flops", length=8) == forward
