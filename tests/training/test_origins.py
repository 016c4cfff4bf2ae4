"""Tests of what a start says: what is taken, and what its numbers mean another thing by."""

import dataclasses

import pytest

from jtransformer import records
from jtransformer.spec import (
    DotProduct,
    Dropout,
    LayerNorm,
    ModelSpec,
    NoPosition,
    RMSNorm,
    Rope,
)
from jtransformer.training import Origin, taken_over
from jtransformer.training.origins import has_offset_scales, settings

OFFSET = ModelSpec(norm=RMSNorm(unit_offset=True))
SCALES = {"final_norm/scale": (8,), "a/query_norm/scale": (4,)}


def origin_of(model):
    return Origin("there", "0" * 64, "1" * 64, settings(model), has_offset_scales(model), SCALES)


def test_value_scales_are_taken_only_where_they_mean_the_same():
    assert taken_over(origin_of(OFFSET), OFFSET, SCALES, None)["new"] == {}
    other = taken_over(origin_of(OFFSET), ModelSpec(norm=RMSNorm()), SCALES, None)
    assert other["new"] == {"final_norm/scale": "added to 1 there"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(position=Rope(theta=5e5)), "position.rope.theta (10000.0 there instead of 500000.0)"),
        (
            dict(position=Rope(pairing="interleaved")),
            "position.rope.pairing (half there instead of interleaved)",
        ),
        (dict(position=NoPosition()), "position.kind (rope there instead of none)"),
        (
            dict(norm=LayerNorm(epsilon=1e-6)),
            "norm.layer_norm.epsilon (1e-05 there instead of 1e-06)",
        ),
        (dict(ffn="silu"), "ffn (gelu there instead of silu)"),
        (dict(attention=DotProduct(window=2)), "attention.dot_product.window (None there instead"),
        (dict(attention=DotProduct(scale=1.0)), "attention.dot_product.scale (None there instead"),
    ],
)
def test_sentence_says_what_the_numbers_mean_another_thing_by(change, said):
    there = ModelSpec(position=Rope(), ffn="gelu", norm=LayerNorm(epsilon=1e-5))
    start = taken_over(origin_of(there), dataclasses.replace(there, **change), SCALES, "1" * 64)
    assert start["new"] == {}
    assert f"used otherwise than there: {said}" in records.taken_sentence(start)


def test_null_what_changes_no_answer_is_not_said():
    there = ModelSpec(position=Rope())
    changes = dict(scan_layers=True, dropout=Dropout(residual=0.1), head_width=there.H, layers=9)
    here = dataclasses.replace(there, attention=DotProduct(scale=there.H**-0.5), **changes)
    assert taken_over(origin_of(there), here, SCALES, "1" * 64)["otherwise"] == {}
    # Ids of which nobody knows what they stand for are.
    unknown = taken_over(origin_of(there), here, SCALES, None)
    assert "data.tokenizer (not known there)" in records.taken_sentence(unknown)
