"""Tests of `jtransformer draw`."""

import json
import pathlib
import sys
import xml.etree.ElementTree as ET

import pytest

from jtransformer.cli import main

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = ROOT / "experiments/norm_and_ffn/config.py"
LADDER = ROOT / "experiments/scale/decoder_125m.py"


def shown(capsys, *argv):
    assert main(["draw", *map(str, argv)]) == 0
    return capsys.readouterr().out


def refused(capsys, *argv):
    assert main(["draw", *map(str, argv)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("jtransformer draw: ")
    assert err.count("\n") == 1 and err.endswith(".\n")
    return err


def drawn(capsys, *argv):
    return json.loads(shown(capsys, *argv, "--json"))


def test_a_preset_in_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    text = shown(capsys, "--preset", "gpt2_small")
    lines = text.splitlines()
    assert lines[:2] == ["gpt2_small", "124,439,808 parameters"]
    assert max(map(len, lines)) == 90
    assert "  × 12: layers 0 to 11, 7,087,872 parameters each" in lines
    order = [text.index(words) for words in (
        "Token embedding", "Learned positions", "LayerNorm", "Self-attention", "█▄····",
        "stream + branch", "Feed-forward", "gelu_tanh", "LayerNorm at the end", "Scores of tokens",
    )]  # fmt: skip
    assert order == sorted(order)


def test_files_of_both_kinds(capsys, tmp_path):
    svg, png = tmp_path / "a.svg", tmp_path / "b.PNG"
    assert shown(capsys, "--preset", "t5_small", "--out", svg) == f"{svg}\n"
    shown(capsys, "--preset", "t5_small", "--out", png)
    root = ET.fromstring(svg.read_text())
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title.text == "Block diagram of t5_small"
    content = png.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (2 * int(root.get("width")), 2 * int(root.get("height")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.PNG"]


def test_an_svg_needs_no_package_that_draws(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    shown(capsys, "--preset", "gpt", "--out", tmp_path / "a.svg")
    text = refused(capsys, "--preset", "gpt", "--out", tmp_path / "a.png")
    assert "pip install 'jtransformer[experiments]', or write an SVG." in text
    assert not (tmp_path / "a.png").exists()


def test_an_arm_beside_the_baseline_with_its_matched_size(capsys):
    found = drawn(capsys, "--config", CONFIG, "--against", "post-swiglu")
    assert [diagram["name"] for diagram in found["diagrams"]] == ["norm_and_ffn", "post-swiglu"]
    assert [diagram["total"] for diagram in found["diagrams"]] == [115_328, 114_944]
    assert found["settings"] == [
        "model.ffn: gelu → swiglu",
        "model.ffn_width: 256 → 170",
        "model.norm_placement: pre → post",
    ]
    ours, theirs = found["marks"]
    assert ours["final_norm"] == "only" and theirs["layers_0/ffn/gate"] == "only"


def test_changes_of_either_side(capsys):
    found = drawn(capsys, "--config", CONFIG, "--config.model.layers=3",
                  "--against.model.ffn=relu")  # fmt: skip
    assert [diagram["name"] for diagram in found["diagrams"]] == ["norm_and_ffn", "ffn=relu"]
    assert found["settings"] == ["model.ffn: gelu → relu"]
    assert all("L 3" in diagram["facts"][0] for diagram in found["diagrams"])
    found = drawn(capsys, "--config", CONFIG, "--against", LADDER, "--against.model.layers=3")
    assert found["diagrams"][1]["name"] == "decoder_125m"
    assert "model.layers: 2 → 3" in found["settings"]


@pytest.mark.parametrize("first", [("--config", CONFIG), ("--preset", "bert_base")])
def test_a_preset_beside_anything(capsys, first):
    found = drawn(capsys, *first, "--against", "llama2_7b")
    assert [diagram["name"] for diagram in found["diagrams"]][1] == "llama2_7b"


def test_error_flags(capsys, tmp_path):
    assert "Give either --preset NAME or --config FILE, got neither." in refused(capsys)
    assert "got both" in refused(capsys, "--preset", "gpt", "--config", CONFIG)
    assert "did you mean 'gpt2_small'?" in refused(capsys, "--preset", "gpt2_smal")
    assert "did you mean 'preset'?" in refused(capsys, "--present", "gpt")
    assert "gpt is not a flag; write --preset NAME" in refused(capsys, "gpt")
    text = refused(capsys, "--preset", "gpt", "--config.model.layers=3")
    assert "--config.model.layers=3 changes a config file, and a preset is none" in text
    text = refused(capsys, "--config", CONFIG, "--config.model.fn=relu")
    assert "did you mean 'ffn'?" in text


def test_error_against(capsys):
    config = ("--config", CONFIG)
    text = refused(capsys, *config, "--against", "post-swigl")
    assert "'post-swigl' is not an arm of the sweep, a preset or a file; did you mean" in text
    text = refused(capsys, "--preset", "gpt", "--against", "bert")
    assert "'bert' is not a preset or a file" in text
    text = refused(capsys, *config, "--against", "pre-gelu")
    assert "'pre-gelu' is the same model as 'norm_and_ffn'; leave it out, or change" in text
    text = refused(capsys, *config, "--against", "gpt", "--against.model.layers=3")
    assert "--against.model.layers=3 changes a config file, and --against 'gpt' is none" in text
    text = refused(capsys, "--preset", "gpt", "--against.model.layers=3")
    assert "--against.model.layers=3 changes a config file, and a preset is none" in text
    assert "heads" in refused(capsys, *config, "--against.model.heads=5")
    text = refused(capsys, *config, "--against.seed=3")
    assert "is the same model as 'norm_and_ffn'" in text


def test_error_out(capsys, tmp_path):
    def written(out):
        return refused(capsys, "--preset", "gpt", "--out", out)

    assert "must end in .svg or .png, which say what is written" in written(tmp_path / "a.pdf")
    assert "must end in .svg or .png" in written(tmp_path)
    assert f"lies in {str(tmp_path / 'b')!r}, which is none" in written(tmp_path / "b/a.svg")
    (tmp_path / "c.svg").mkdir()
    assert "is a directory; give a file" in written(tmp_path / "c.svg")
    assert "--out is empty" in written("")
