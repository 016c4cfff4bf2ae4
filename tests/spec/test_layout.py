"""Tests for jtransformer.spec.layout: what may be said, and how it is written."""

import pytest

from jtransformer.spec import Layout, SpecError

LABELS = {
    "data=1": Layout(),
    "fsdp=4, tensor=2": Layout(fsdp=4, tensor=2),
    "data=2, fsdp=3, tensor=4, sequence=5": Layout(data=2, fsdp=3, tensor=4, sequence=5),
    "data=2, shard_optimizer=true": Layout(data=2, shard_optimizer=True),
}
REFUSED = {
    "planes": "planes is no part of a layout; .*allowed: data, fsdp, sequence",
    "tensr=2": "tensr is no part of a layout; did you mean 'tensor'",
    "": "'' is no part of a layout",
    "fsdp=2,fsdp=4": "fsdp is given twice in 'fsdp=2,fsdp=4'",
    "fsdp": "fsdp must have a number, as in fsdp=2, got 'fsdp'",
    "fsdp=two": "fsdp must have a number, as in fsdp=2, got 'fsdp=two'",
    "fsdp=-1": "fsdp must have a number",
    "fsdp=\N{FULLWIDTH DIGIT TWO}": "fsdp must have a number",
    "fsdp=0": "fsdp must be at least 1, got 0",
    "fsdp=true": "fsdp must be an integer, got True",
    "data=2,shard_optimizer": "must have true, as in shard_optimizer=true, got 'shard_optimizer'",
    "data=2,shard_optimizer=2": "shard_optimizer must be True or False, got 2",
    "fsdp=4,shard_optimizer=true": "shard_optimizer = True divides .* the axis data, which is 1",
}


@pytest.mark.parametrize("label", LABELS)
def test_a_layout_is_read_from_its_label(label):
    assert LABELS[label].label == label and Layout.parse(label) == LABELS[label]
    assert Layout.parse(label.replace(" ", "")) == LABELS[label]


def test_the_devices_are_the_product_of_the_axes():
    layout = LABELS["data=2, fsdp=3, tensor=4, sequence=5"]
    assert layout.sizes == (2, 3, 4, 5)
    assert layout.devices == 120 and layout.row_parts == 6


def test_replicas_have_all_but_their_rows():
    assert Layout().replicas == 1 and Layout(data=4).replicas == 4
    others = Layout(fsdp=2), Layout(data=2, sequence=2), Layout(data=2, shard_optimizer=True)
    assert [layout.replicas for layout in others] == [None] * 3


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_layout_is_refused(text):
    with pytest.raises(SpecError, match=REFUSED[text]):
        Layout.parse(text)
