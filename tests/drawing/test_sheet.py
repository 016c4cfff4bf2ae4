"""Tests that a comparison marks what differs, and nothing else."""

import dataclasses

import pytest
import tiny_model
from tiny_model import changed

from jtransformer import drawing
from jtransformer.spec import EncoderDecoder, LayerNorm, RMSNorm, Rope, SpecError, presets


def marks(**changes):
    found = drawing.compared(("a", changed()), ("b", changed(**changes)))
    for diagram, marked in zip(found.diagrams, found.marks, strict=True):
        keys = {box.key for box, _ in drawing.boxes_of(diagram)}
        groups = {"layers_0", "encoder/layers_0"}
        assert marked.keys() - groups <= keys
    return found


@pytest.mark.parametrize("name", tiny_model.VARIANTS)
def test_a_model_beside_itself_is_refused(name):
    spec = tiny_model.VARIANTS[name]
    with pytest.raises(SpecError, match="'b' is the same model as 'a'; leave it out"):
        drawing.compared(("a", spec), ("b", spec))


def test_a_setting_that_changes_one_kind_of_box_marks_that():
    found = marks(norm=LayerNorm(epsilon=1e-3))
    norms = {
        "layers_0/attention_norm_in": "changed",
        "layers_0/ffn_norm_in": "changed",
        "final_norm": "changed",
    }
    assert found.marks == (norms, norms)
    assert found.settings == ("model.norm.layer_norm.epsilon: 1e-05 → 0.001",)


def test_what_one_model_has_alone_is_marked_there():
    found = marks(norm_placement="post")
    layers = "layers_0/{}_norm_{}".format
    sublayers = ("attention", "ffn")
    assert found.marks == (
        {layers(name, "in"): "only" for name in sublayers} | {"final_norm": "only"},
        {layers(name, "out"): "only" for name in sublayers},
    )


def test_a_choice_with_settings_is_named_and_its_settings_are_not():
    assert marks(position=Rope()).settings == ("model.position.kind: sinusoidal → rope",)


def test_more_layers_mark_their_group_alone():
    found = marks(layers=3)
    assert found.marks == ({"layers_0": "changed"}, {"layers_0": "changed"})


def test_the_stack_that_the_head_reads_is_compared_whatever_stands_beside_it():
    found = marks(stack=EncoderDecoder())
    own, theirs = found.marks
    assert set(own) == {"embedding"}  # Its parameters are counted with the encoder's.
    assert theirs["decoder/layers_0/cross_attention"] == "only"
    assert "decoder/layers_0/attention" not in theirs
    assert all(theirs[key] == "only" for key in theirs if key.startswith("encoder/"))


def test_a_setting_that_is_not_drawn_is_still_named():
    found = marks(scan_layers=True)
    assert found.marks == ({}, {}) and found.settings == ("model.scan_layers: False → True",)


def test_text_stands_side_by_side_where_there_is_room():
    gpt2, other = presets.gpt2_small(), dataclasses.replace(presets.gpt2_small(), norm=RMSNorm())
    found = drawing.compared(("left", gpt2), ("right", other))
    wide, narrow = drawing.lines(found, 160), drawing.lines(found, 100)
    assert wide[0].split() == ["left", "right"]
    assert narrow[0] == "left" and "right" in narrow
    assert max(map(len, wide)) <= 160 and max(map(len, narrow)) <= 100
    assert any("≠ LayerNorm" in line and "≠ RMSNorm" in line for line in wide)
    assert "model.norm.kind: layer_norm → rms_norm" in wide
