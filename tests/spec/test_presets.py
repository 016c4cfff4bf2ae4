"""Tests for jtransformer.spec.presets: published totals, published settings, golden files."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import preset_files
import pytest

from jtransformer.accounting import parameters
from jtransformer.data.specials import specials
from jtransformer.modules import build
from jtransformer.spec import (
    Adam,
    Encoder,
    EncoderDecoder,
    LossSpec,
    MaskedLM,
    ModelSpec,
    Noam,
    PrefixDecoder,
    PrefixLM,
    RunSpec,
    Seq2Seq,
    SpanCorruption,
    from_tree,
    presets,
    to_tree,
)
from jtransformer.spec.presets import PRESETS

# What the papers, their releases or the published checkpoints say.
TOTALS = {
    "gpt": 116_534_784,
    "gpt2_small": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_large": 774_030_080,
    "gpt2_xl": 1_557_611_200,
    "gpt_j_6b": 6_050_882_784,
    "pythia_160m": 162_322_944,
    "llama2_7b": 6_738_415_616,
    "llama3_8b": 8_030_261_248,
    "gemma_2b": 2_506_172_416,
    "olmo2_1b": 1_484_916_736,
    "qwen3_0_6b": 596_049_920,
    "bert_base": 109_482_240,
    "bert_base_mlm": 109_514_298,
    "bert_large": 335_141_888,
    "roberta_base": 124_645_632,
    "roberta_base_mlm": 124_697_433,
    "modernbert_base": 149_014_272,
    "modernbert_base_mlm": 149_655_232,
    "bart_base": 139_420_416,
    "bart_large": 406_291_456,
    "opus_mt_en_de": 73_944_309,
    "t5_small": 60_506_624,
    "t5_base": 222_903_552,
    "t5_large": 737_668_096,
    "t5_v1_1_small": 76_961_152,
    "t5_v1_1_base": 247_577_856,
}
RUNS = ("decoder_lm", "encoder_lm", "prefix_lm", "span_corruption", "translation")
EVERY = pytest.mark.parametrize("name", PRESETS)
ACCEPT = (
    "The preset {name} is not what tests/golden/presets holds of it. If that is meant, run "
    "`python tests/preset_files.py`, read the difference, and say in CHANGELOG.md, under "
    "'Changes to results', what moved and why."
)


def test_every_preset_is_public_and_of_one_kind():
    assert set(presets.__all__) == {*PRESETS, "PRESETS", "for_accelerator", "with_budget"}
    for name, make in PRESETS.items():
        assert make is getattr(presets, name)
        assert type(make()) is (RunSpec if name in RUNS else ModelSpec)
    assert set(PRESETS) == {*TOTALS, *RUNS, "transformer_base", "transformer_big"}


@pytest.mark.parametrize("name", TOTALS)
def test_published_totals(name):
    counted = parameters(PRESETS[name]()).total
    assert counted == TOTALS[name]
    assert f"{counted:,}" in (PRESETS[name].__doc__ or "")


def test_transformer_of_2017():
    base, big = presets.transformer_base(), presets.transformer_big()
    assert parameters(base).non_embedding == 44_138_496
    assert parameters(big).non_embedding == 176_357_376
    for vocabulary in (37_000, 32_000):
        counted = parameters(presets.transformer_base(vocabulary=vocabulary))
        assert counted.embedding == vocabulary * 512
        assert counted.total == 44_138_496 + vocabulary * 512
    assert parameters(presets.transformer_big(vocabulary=9)).embedding == 9 * 1024


def test_pythia_says_what_lies_in_its_stack():
    assert parameters(presets.pythia_160m()).non_embedding == 85_056_000


@EVERY
def test_golden_file(name):
    path = preset_files.FOLDER / f"{name}.json"
    assert path.read_text(encoding="utf-8") == preset_files.text(name), ACCEPT.format(name=name)
    assert path.read_text(encoding="utf-8").count("\n") < 210


def test_there_is_a_golden_file_of_nothing_else():
    assert {path.stem for path in preset_files.FOLDER.iterdir()} == set(PRESETS)


def check_golden_tree(name):
    """Compares the file with the tree that is initialised, its layers stacked to be quick."""
    spec = preset_files.model_of(PRESETS[name]())
    first_norm = spec.first_norm
    # Without its first norm a model has no layers that can be stacked, but as many once it has.
    spec = dataclasses.replace(spec, scan_layers=True, first_norm=True)
    tokens = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    tree = jax.eval_shape(build(spec).init, jax.random.key(0), tokens)["params"]
    real = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        words, shape = [entry.key for entry in path], list(leaf.shape)
        if "layers" in words:
            place, layers = words.index("layers"), shape.pop(0)
            lacks_first = not first_norm and words[place + 1] == "attention_norm_in"
            words[place] = f"layer_{{{int(lacks_first)}..{layers - 1}}}"
        real["/".join(words)] = shape
    held = json.loads((preset_files.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert {path: shape for path, (shape, _) in held["parameters"].items()} == real


@pytest.mark.parametrize("name", ["gpt2_small", "modernbert_base_mlm", "t5_small"])
def test_golden_file_is_the_initialised_tree(name):
    check_golden_tree(name)


@pytest.mark.slow
@EVERY
def test_golden_file_is_the_initialised_tree_of_every_preset(name):
    check_golden_tree(name)


@pytest.mark.parametrize("name", RUNS)
def test_runs_survive_a_file_and_hold_their_ids(name):
    run = PRESETS[name]()
    assert from_tree(json.loads(json.dumps(to_tree(run)))) == run
    pieces = 16 + 1 if name == "translation" else 256
    assert run.model.vocabulary == specials(pieces, run.data, run.objective).size


@pytest.mark.parametrize("name", RUNS)
def test_live_width_and_layers_of_a_run(name):
    made = PRESETS[name](width=96, layers=3).model
    assert (made.width, made.layers, made.heads, made.ffn_width) == (96, 3, 6, 384)
    if made.has_encoder:
        assert made.stack.encoder_layers == 3
    assert PRESETS[name](width=64, layers=2) == PRESETS[name]()
    assert PRESETS[name](width=50).model.heads == 1


def test_runs_differ_in_what_their_names_say():
    base = presets.decoder_lm()
    expected = {
        presets.encoder_lm: (Encoder(), MaskedLM(), 257),
        presets.prefix_lm: (PrefixDecoder(), PrefixLM(), 256),
        presets.span_corruption: (EncoderDecoder(encoder_layers=2), SpanCorruption(), 263),
    }
    for make, (stack, objective, vocabulary) in expected.items():
        model = dataclasses.replace(base.model, stack=stack, vocabulary=vocabulary)
        assert make() == dataclasses.replace(base, model=model, objective=objective)


def test_translation_has_the_recipe_of_2017():
    run, base = presets.translation(), presets.transformer_base()
    optimizer = run.optimizer
    assert optimizer.rule == Adam(beta1=0.9, beta2=0.98, epsilon=1e-9)
    assert (optimizer.learning_rate, optimizer.weight_decay) == (1, 0)
    assert optimizer.gradient_clip is None
    assert isinstance(run.schedule, Noam) and isinstance(run.objective, Seq2Seq)
    assert run.loss == LossSpec(label_smoothing=0.1)
    sizes = ("vocabulary", "width", "layers", "heads", "ffn_width", "stack")
    same = {name: getattr(run.model, name) for name in sizes}
    assert run.model == dataclasses.replace(base, **same)


def test_a_run_for_an_accelerator_is_scanned_and_in_bfloat16_in_every_part():
    run = presets.for_accelerator(presets.decoder_lm())
    parts = dataclasses.asdict(run.model.precision)
    assert run.model.scan_layers and set(parts.values()) == {"bfloat16"} and len(parts) == 4


def test_a_budget_is_what_was_asked_and_halves_its_evaluations():
    run = presets.with_budget(presets.decoder_lm(), length=8, batch_size=3, steps=200)
    training = run.training
    assert (run.data.length, training.batch_size, training.steps) == (8, 3, 200)
    assert run.schedule.warmup_steps == 20 and training.log_every == 10
    assert training.evaluate_every == training.checkpoint_every == 100
    assert run.model == presets.decoder_lm().model
