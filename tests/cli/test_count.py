"""Tests of `jtransformer count`."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import tiny_run

from jtransformer.accounting import cache_bytes, flops, memory, parameters
from jtransformer.cli import main
from jtransformer.spec import presets
from jtransformer.spec.presets import PRESETS

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = ROOT / "experiments/norm_and_ffn/config.py"


def counted(capsys, *argv):
    assert main(["count", *map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def shown(capsys, *argv):
    assert main(["count", *map(str, argv)]) == 0
    return capsys.readouterr().out


def refused(capsys, *argv):
    assert main(["count", *map(str, argv)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("jtransformer count: ")
    return err


def in_a_process(*argv):
    """Runs the command as a user does, in a process of its own, and says which modules it took."""
    code = (
        "import json, sys\n"
        "from jtransformer.cli import main\n"
        f"code = main({list(argv)!r})\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    *lines, modules = done.stdout.splitlines()
    return done.returncode, "\n".join(lines), done.stderr, set(json.loads(modules))


def test_a_user_asks_for_gpt2():
    code, out, err, modules = in_a_process("count", "--preset", "gpt2_small", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["total"] == 124_439_808
    assert not modules & {"jax", "flax", "optax", "orbax", "numpy", "rich"}


def test_a_user_misspells_a_preset():
    code, out, err, _ = in_a_process("count", "--preset", "gpt2_smal")
    assert (code, out) == (2, "")
    assert "--preset = 'gpt2_smal' is unknown; did you mean 'gpt2_small'? allowed: bart_base" in err


def test_json_of_a_model(capsys):
    model = presets.gpt2_small()
    found = counted(capsys, "--preset", "gpt2_small", "--length", 512)
    operations = flops(model, length=512)
    assert found["name"] == "gpt2_small"
    assert (found["length"], found["source_length"]) == (512, None)
    assert found["total"] == sum(found["components"].values()) == 124_439_808
    assert found["non_embedding"] == parameters(model).non_embedding
    per_token = found["flops_per_token"]
    assert per_token["forward"] == operations.forward
    assert per_token["training_without_scores"] == operations.training_without_scores
    assert per_token["cross_scores"] == 0
    assert found["cache_bytes"] == cache_bytes(model, length=512)
    assert found["memory_bytes"] == {"parameters": 4 * 124_439_808}


def test_json_of_a_run_has_the_memory_of_a_step(capsys):
    run = presets.decoder_lm()
    found = counted(capsys, "--preset", "decoder_lm")
    assert found["length"] == 64
    assert found["memory_bytes"]["total"] == memory(run).total
    assert found["memory_bytes"]["optimizer"] == 8 * parameters(run.model).total


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_counted(capsys, name):
    spec = PRESETS[name]()
    model = getattr(spec, "model", spec)
    assert counted(capsys, "--preset", name)["total"] == parameters(model).total


def test_lengths_where_none_are_given(capsys):
    def lengths(*argv):
        found = counted(capsys, "--preset", *argv)
        return found["length"], found["source_length"]

    assert lengths("llama2_7b") == (1024, None)
    assert lengths("bert_base") == (512, None)
    assert lengths("t5_small") == (1024, 1024)
    assert lengths("t5_small", "--length", 7) == (7, 7)
    assert lengths("t5_small", "--source_length", 7) == (1024, 7)
    assert lengths("span_corruption") == (15, 57)
    assert lengths("span_corruption", "--length", 20) == (20, 57)


def test_table_of_a_model(capsys):
    text = shown(capsys, "--preset", "t5_base", "--length", "100", "--source_length", "512")
    for words in (
        "cross attention", "28,311,552", "12.7%", "222,903,552", "198,228,480",
        "in sequences of 100 tokens behind sources of 512", "without attention scores",
        "count a run",
    ):  # fmt: skip
        assert words in text, words
    assert "branch scales" not in text and "optimizer 1" not in text


def test_table_of_an_encoder_has_no_cache(capsys):
    text = shown(capsys, "--preset", "bert_base")
    assert "109,482,240" in text
    assert "cache" not in text and "hidden scores" not in text


def test_config_file_and_overrides(capsys):
    plain = counted(capsys, "--config", CONFIG)
    wider = counted(capsys, "--config", CONFIG, "--config.model.ffn_width=512")
    assert wider["components"]["ffn"] == 2 * plain["components"]["ffn"]
    text = shown(capsys, "--config", CONFIG, "--config.training.batch_size=5")
    assert "memory of a training step of 5 x " in text and "activations are an estimate" in text
    assert "tokens, float32: " in text
    low = "--config.model.precision.{}=bfloat16".format
    text = shown(capsys, "--config", CONFIG, "--config.training.microbatches=4", low("ffn"),
                 low("attention"))  # fmt: skip
    assert "tokens in 4 microbatches, float32, bfloat16 in attention and ffn: " in text
    assert "cache of one such sequence, bfloat16: " in text


def test_config_of_a_tiny_run(capsys, tmp_path):
    config = tiny_run.config_file(tmp_path, {}, ffn="relu")
    assert counted(capsys, "--config", config)["memory_bytes"]["parameters"] > 0


def test_error_flags(capsys):
    assert "Give either --preset NAME or --config FILE, got neither." in refused(capsys)
    both = refused(capsys, "--preset", "gpt", "--config", CONFIG)
    assert "got both" in both
    assert "did you mean 'preset'?" in refused(capsys, "--present", "gpt")
    assert "gpt is not a flag; write --preset NAME" in refused(capsys, "gpt")
    assert "length must be at least 1, got 0" in refused(capsys, "--preset", "gpt", "--length", 0)
    assert "--length" in refused(capsys, "--preset", "gpt", "--length", "many")
    text = refused(capsys, "--preset", "gpt", "--config.model.layers=3")
    assert "--config.model.layers=3 changes a config file, and a preset is none" in text
    text = refused(capsys, "--preset", "gpt", "--source_length", 5)
    assert "source_length = 5 would do nothing with stack.kind 'decoder'" in text
    text = refused(capsys, "--preset", "gpt", "--length", 513)
    assert "--length = 513 exceeds the 512 positions that the model has learned" in text
    text = refused(capsys, "--config", CONFIG, "--config.model.fn=relu")
    assert "did you mean 'ffn'?" in text
