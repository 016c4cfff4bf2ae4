"""Tests for the rules over several fields, in jtransformer.spec.model and .run, and presets."""

import dataclasses
import time

import pytest

from jtransformer.spec import (
    GATED_FFNS,
    Constant,
    DataSpec,
    DotProduct,
    Encoder,
    EncoderDecoder,
    JsonLines,
    LatentAttention,
    Learned,
    LossSpec,
    ModelSpec,
    PrefixDecoder,
    PrefixLM,
    Rope,
    RunSpec,
    Seq2Seq,
    SpecError,
    T5Bias,
    TextFile,
    TextPairs,
    TokenHead,
    TrainingSpec,
    WarmupCosine,
    presets,
)


def message(make, **settings):
    with pytest.raises(SpecError) as caught:
        make(**settings)
    return str(caught.value)


def test_error_heads_must_divide_the_width():
    assert message(ModelSpec, width=12, heads=5) == (
        "heads must divide the width, got heads=5, width=12; use one of 1, 2, 3, 4, 6, 12, or "
        "set head_width."
    )
    for heads in (1, 2, 3, 4, 6, 12):
        assert ModelSpec(width=12, heads=heads).H * heads == 12


def test_error_of_an_enormous_width_does_not_search_for_ever():
    began = time.monotonic()
    assert "use one of 1, 2, 4," in message(ModelSpec, width=2**60, heads=3)
    assert time.monotonic() - began < 1


def test_error_bytes_need_256_tokens():
    small = ModelSpec(vocabulary=255)
    assert message(RunSpec, model=small).startswith("model.vocabulary must be at least 256")
    assert RunSpec(model=ModelSpec(vocabulary=256))


def test_error_learned_positions_must_reach_the_length():
    def learned(max_length):
        return dict(
            model=ModelSpec(position=Learned(max_length=max_length)), data=DataSpec(length=33)
        )

    assert message(RunSpec, **learned(32)) == (
        "model.position.learned.max_length must reach data.length, got max_length=32, "
        "data.length=33; use at least 33."
    )
    assert RunSpec(**learned(33))
    source = dict(
        model=ModelSpec(position=Learned(max_length=10), stack=EncoderDecoder()),
        data=DataSpec(source=TextPairs(path="x"), rows="padded", length=8, source_length=12),
        objective=Seq2Seq(),
    )
    assert message(RunSpec, **source) == (
        "model.position.learned.max_length must reach data.source_length, got max_length=10, "
        "data.source_length=12; use at least 12."
    )


@pytest.mark.parametrize("schedule", [Constant, WarmupCosine])
def test_error_warmup_must_end_within_the_run(schedule):
    training = TrainingSpec(steps=7)
    text = message(RunSpec, schedule=schedule(warmup_steps=8), training=training)
    assert text.startswith(f"schedule.{schedule.kind}.warmup_steps must not exceed training.steps")
    assert RunSpec(schedule=schedule(warmup_steps=7), training=training)


def test_error_a_window_that_reaches_no_layer():
    late = DotProduct(window=4, window_pattern="full,full,window")
    assert message(ModelSpec, layers=2, attention=late) == (
        "attention.dot_product.window = 4 would do nothing, as window_pattern 'full,full,window' "
        "gives it to none of 2 layers; name an earlier one, or leave window out."
    )
    assert ModelSpec(layers=3, attention=late)
    assert ModelSpec(layers=2, attention=late, stack=EncoderDecoder(encoder_layers=3))


def test_error_a_base_for_layers_with_a_window():
    local = DotProduct(window=4, window_pattern="full,full,window")
    rope = Rope(window_theta=500.0)
    assert message(ModelSpec, position=rope) == (
        "position.rope.window_theta = 500.0 would do nothing, as no layer has a window; leave it "
        "out, or set attention.dot_product.window."
    )
    latent = LatentAttention(rotary_width=4)
    assert "no layer has a window" in message(ModelSpec, position=rope, attention=latent)
    for one in (DotProduct(window=4), DotProduct(window=4, window_pattern="window,window,full")):
        assert message(ModelSpec, position=rope, attention=one) == (
            "position.rope.window_theta = 500.0 leaves nothing to theta=10000.0, as every layer "
            "has the window; set theta alone, or give full attention to a layer."
        )
    assert ModelSpec(layers=3, position=rope, attention=local)
    deep = EncoderDecoder(encoder_layers=3)
    assert ModelSpec(layers=2, position=rope, attention=local, stack=deep)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(embedding_norm=False), "without a norm, as embedding_norm=False; set embedding_norm"),
        (dict(norm_placement="post"), "nothing, as norm_placement 'post' has no norm before att"),
        (dict(norm_placement="branch"), "nothing, as norm_placement 'branch' has no norm before"),
        (dict(sublayers="parallel_one_norm"), "feed-forward network too; use sublayers 'parallel'"),
        (dict(scan_layers=True), "layers of one program have the same; use scan_layers=False."),
    ],
)
def test_error_a_first_norm_that_cannot_be_left_out(change, said):
    settings = dict(embedding_norm=True, first_norm=False)
    text = message(ModelSpec, **settings | change)
    assert text.startswith("first_norm = False") and said in text
    assert ModelSpec(**settings | change | dict(first_norm=True))
    for kept in ({}, dict(norm_placement="sandwich"), dict(sublayers="parallel")):
        assert not ModelSpec(**settings, **kept).first_norm


def test_error_a_bias_of_no_transform():
    assert message(ModelSpec, head=TokenHead(transform_bias=False)) == (
        "head.tokens.transform_bias = False would do nothing, as transform=False; leave it at "
        "True, or set transform."
    )


def test_error_buckets_of_two_directions():
    few = T5Bias(buckets=2)
    assert ModelSpec(position=few)
    for stack in (Encoder(), PrefixDecoder(), EncoderDecoder()):
        assert "use at least 4" in message(ModelSpec, position=few, stack=stack)
        assert ModelSpec(position=T5Bias(buckets=4), stack=stack)


@pytest.mark.parametrize("heads", ["0", "0.1,", "0.1.2", "²0.1", "0.٣", f"{'9' * 5000}.0"])
def test_error_heads_off_are_pairs_of_numbers(heads):
    assert "write layer.head" in message(DotProduct, heads_off=heads)


def test_error_a_text_file_needs_a_name():
    assert message(DataSpec, source=TextFile()).startswith("source.text_file.path is empty")
    unnamed = JsonLines(path="a", field="")
    assert message(DataSpec, source=unnamed).startswith("source.json_lines.field is empty")


def test_error_shares_of_a_prefix_that_is_a_source():
    pairs = dict(
        model=ModelSpec(stack=PrefixDecoder()),
        data=DataSpec(source=TextPairs(path="pairs"), rows="padded"),
    )
    assert RunSpec(**pairs, objective=PrefixLM())
    assert message(RunSpec, **pairs, objective=PrefixLM(largest_prefix=0.5)) == (
        "objective.prefix_lm.largest_prefix = 0.5 would do nothing with source.kind 'text_pairs', "
        "whose sources are the prefixes; leave it out."
    )


def test_placements_and_gates_are_known_to_the_model():
    ends = {
        name: ModelSpec(norm_placement=name).has_final_norm
        for name in ("pre", "post", "sandwich", "branch", "deepnorm", "none")
    }
    ended = {"pre", "sandwich", "branch"}
    assert ends == {name: name in ended for name in ends}
    assert not ModelSpec(final_norm=False).has_final_norm
    assert ModelSpec(norm_placement="post", final_norm=True).has_final_norm
    gated = {name for name in ("relu", "gelu", *GATED_FFNS) if ModelSpec(ffn=name).gated}
    assert gated == {"glu", "bilinear", "reglu", "geglu", "geglu_tanh", "swiglu"}


def test_preset_null_and_live():
    assert presets.decoder_lm() == RunSpec()
    run = presets.decoder_lm(width=96, layers=3)
    changed = ModelSpec(width=96, layers=3, heads=6, ffn_width=384)
    assert run == dataclasses.replace(RunSpec(), model=changed)
    for width in (0, -16, True):
        assert message(presets.decoder_lm, width=width).startswith("width must be")


@pytest.mark.parametrize(
    ("probed", "said"),
    [
        ((3, 1), "probe_steps must rise, got [3, 1]; use [1, 3]."),
        ((1, 1), "probe_steps must rise, got [1, 1]; use [1]."),
        ((0, 8), "probe_steps must lie between 0 and training.steps, got [0, 8] and steps=7; "
         "leave out the others."),
        ((-1, 7), "probe_steps must lie between 0 and training.steps, got [-1, 7] and steps=7; "
         "leave out the others."),
    ],
)  # fmt: skip
def test_error_steps_that_are_never_probed(probed, said):
    assert message(TrainingSpec, steps=7, probe_steps=probed) == said
    assert TrainingSpec(steps=7, probe_steps=(0, 7)).probe_steps == (0, 7)


def test_error_microbatches_divide_the_batch():
    assert message(TrainingSpec, batch_size=12, microbatches=8) == (
        "microbatches must divide batch_size, got microbatches=8, batch_size=12; use 4."
    )
    for parts in (1, 2, 3, 4, 6, 12):
        assert TrainingSpec(batch_size=12, microbatches=parts).microbatches == parts
    assert message(TrainingSpec, batch_size=2**61 - 1, microbatches=2**62).endswith("use 1.")


def test_error_a_chunk_of_all_positions_would_do_nothing():
    sizes = dict(training=TrainingSpec(batch_size=8, microbatches=2), data=DataSpec(length=16))
    assert RunSpec(**sizes, loss=LossSpec(chunk=63))
    assert message(RunSpec, **sizes, loss=LossSpec(chunk=64)) == (
        "loss.chunk = 64 would do nothing: an update computes the logits of 64 positions at a "
        "time; use fewer, or None."
    )
    # The targets of span corruption are no `data.length` long.
    run = presets.span_corruption()
    positions = 16 * 15
    assert dataclasses.replace(run, loss=LossSpec(chunk=positions - 1))
    with pytest.raises(SpecError, match=f"the logits of {positions} positions"):
        dataclasses.replace(run, loss=LossSpec(chunk=positions))
