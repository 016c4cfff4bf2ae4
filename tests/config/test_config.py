"""Tests for jtransformer.config."""

import itertools

import ml_collections
import numpy as np
import pytest
from absl import flags
from ml_collections import config_flags

from jtransformer.config import from_config, inherited_settings, to_config, to_plain
from jtransformer.spec import (
    CmuDict,
    Constant,
    DataSpec,
    LayerNorm,
    Learned,
    ModelSpec,
    NoPosition,
    OptimizerSpec,
    RMSNorm,
    RunSpec,
    Sinusoidal,
    SpecError,
    TextFile,
    WarmupCosine,
    get,
    presets,
    to_tree,
)


def parsed(*words):
    """Returns the default run's config after the given overrides of a command line."""
    config, values = to_config(RunSpec()), flags.FlagValues()
    argv = ["program", *(f"--config.{word}" for word in words)]
    config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=argv)
    values(argv)
    return config


def message(config, **options):
    with pytest.raises(SpecError) as caught:
        from_config(config, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_round_trip_of_every_kind():
    norms = (LayerNorm(epsilon=2e-5), RMSNorm())
    positions = (NoPosition(), Sinusoidal(), Learned(max_length=64))
    schedules = (Constant(warmup_steps=3), WarmupCosine())
    for norm, position, schedule in itertools.product(norms, positions, schedules):
        run = RunSpec(
            model=ModelSpec(norm=norm, position=position),
            data=DataSpec(source=TextFile(path="text")),
            optimizer=OptimizerSpec(gradient_clip=None),
            schedule=schedule,
        )
        config = to_config(run)
        assert from_config(config) == run
        assert from_config(to_config(from_config(config))) == run
        assert to_plain(config) == to_tree(run, all_kinds=True)


def test_every_setting_of_every_kind_can_be_reached():
    config = to_config(RunSpec())
    assert config.model.position.learned.max_length == 1024
    assert config.model.norm.rms_norm.epsilon == 1e-6
    assert config.schedule.constant.warmup_steps == 0
    assert config.data.source.text_file.path == ""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.width", 128),
        ("optimizer.learning_rate", 0.25),
        ("optimizer.learning_rate", 1),
        ("optimizer.gradient_clip", None),
        ("model.head.tokens.tied", False),
        ("model.ffn", "swiglu"),
        ("model.position.kind", "none"),
        ("model.norm.layer_norm.epsilon", 1e-3),
        ("seed", 7),
    ],
)
def test_live_a_setting_of_each_type(path, value):
    config = to_config(RunSpec())
    config.update_from_flattened_dict({path: value})
    run = from_config(config)
    assert run != RunSpec()
    found = get(to_tree(run), path)
    assert found == value


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("model.width=128", "model.width", 128),
        ("optimizer.learning_rate=3e-4", "optimizer.learning_rate", 3e-4),
        ("optimizer.learning_rate=1", "optimizer.learning_rate", 1.0),
        ("model.head.tokens.tied=False", "model.head.tokens.tied", False),
        ("model.ffn=reglu", "model.ffn", "reglu"),
        ("model.position.kind=learned", "model.position.kind", "learned"),
    ],
)
def test_live_a_flag_of_each_type(word, path, value):
    found = get(to_tree(from_config(parsed(word))), path)
    assert found == value and type(found) is type(value)


def test_flags_of_a_kind_that_is_chosen_with_them():
    config = parsed("model.position.kind=learned", "model.position.learned.max_length=64")
    assert from_config(config).model.position == Learned(max_length=64)


def test_error_types_that_a_config_dict_lets_through():
    """CFG-01: the ConfigDict accepts some of these and refuses others; the door refuses all."""
    for path, value in [
        ("model.width", 100.0),
        ("model.width", True),
        ("model.width", np.int64(64)),
        ("model.width", "64"),
        ("optimizer.learning_rate", "3e-4"),
        ("optimizer.learning_rate", np.float32(0.1)),
        ("optimizer.learning_rate", (1e-3, 1e-2)),
        ("model.head.tokens.tied", 1),
        ("model.ffn", "gelu "),
        ("model.ffn", None),
        ("seed", None),
    ]:
        config = to_config(RunSpec())
        config.update_from_flattened_dict({path: value})
        assert message(config).startswith(f"{path} must be "), (path, value)


def test_optional_settings_keep_their_type_after_none():
    """CFG-02: a ConfigDict forgets the type of what was None once; the spec does not."""
    config = to_config(RunSpec())
    config.optimizer.gradient_clip = None
    assert from_config(config).optimizer.gradient_clip is None
    config.optimizer.gradient_clip = 2
    assert from_config(config).optimizer.gradient_clip == 2.0
    for wrong in ("x", True, [1.0]):
        config.optimizer.gradient_clip = wrong
        assert message(config).startswith("optimizer.gradient_clip must be a number or None")
    config = to_config(RunSpec())
    config.model.width = None
    config.model.width = "x"
    assert message(config).startswith("model.width must be an integer")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("model.widht", "model.widht is not a setting; did you mean 'width'?"),
        ("modle", "modle is not a setting; did you mean 'model'?"),
        ("model.position.max_length", "model.position.max_length is not a setting"),
        ("model.position.learned.max_lenght", "did you mean 'max_length'?"),
        ("extra", "extra is not a setting"),
    ],
)
def test_error_new_names_in_a_config(path, text):
    config = to_config(RunSpec())
    config.update_from_flattened_dict({path: 64})
    assert text in message(config)


@pytest.mark.parametrize("value", ["learned", None, 5, ()])
def test_error_a_group_replaced_by_a_value(value):
    config = to_config(RunSpec())
    config.model.position = value
    assert message(config).startswith("model.position must hold a kind")
    config = to_config(RunSpec())
    config.model = value
    assert message(config).startswith("model must hold the settings of ModelSpec")


def test_error_settings_that_would_do_nothing():
    config = to_config(RunSpec())
    config.model.position.learned.max_length = 64
    assert "would do nothing" in message(config)
    path = "schedule.constant.warmup_steps"
    assert path in message(to_config(RunSpec()), touched=frozenset([path]))


def test_a_preset_may_be_given_another_kind():
    config = to_config(presets.translation())
    config.data.source.kind = "cmudict"
    assert from_config(config).data.source == CmuDict()
    assert "data.source.synthetic.task" in inherited_settings(config)
    config.data.source.synthetic.task = "sort"
    assert message(config).startswith("data.source.synthetic.task = 'sort' would do nothing")
    path = "data.source.synthetic.symbols"
    config = to_config(presets.translation())
    config.data.source.kind = "cmudict"
    assert path in message(config, touched=frozenset([path]))


def test_a_config_is_a_copy():
    run = RunSpec()
    config = to_config(run)
    plain = to_plain(config)
    plain["model"]["width"] = 8
    config.model.layers = 9
    assert run == RunSpec() and config.model.width == 64 and plain["model"]["layers"] == 2


def test_error_required_placeholders_must_be_filled():
    config = to_config(RunSpec())
    config.model.width = ml_collections.config_dict.required_placeholder(int)
    assert message(config) == "A required placeholder of the config has no value; set it."
    config.model.width = 32
    assert from_config(config).model.width == 32


def test_references_are_followed():
    config = to_config(RunSpec())
    config.model.ffn_width = config.model.get_ref("width") * 4
    config.model.width = 32
    assert from_config(config).model.ffn_width == 128
    assert from_config(ml_collections.FrozenConfigDict(config)).model.width == 32
