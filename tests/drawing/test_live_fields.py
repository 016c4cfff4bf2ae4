"""Tests that every field of a model changes its picture, or is listed with the reason why not."""

import dataclasses

import every_kind
from tiny_model import changed

from jtransformer import drawing
from jtransformer.spec import Embedder, Precision, SpecError

NOT_DRAWN = {
    "scan_layers": "the same numbers, by one program for all layers",
    "rematerialize": "the same numbers, some of them computed twice",
}
"""Fields that no diagram shows, and why."""


def value_at(spec, names):
    """Returns the field of a spec that `every_kind.leaves` calls so."""
    first, *rest = names
    inner = getattr(spec, first)
    if not rest:
        return inner
    return value_at(inner, rest[1:] if rest[0] == getattr(inner, "kind", None) else rest)


def altered(spec, names, value):
    """Returns a spec with the field changed that `every_kind.leaves` calls so."""
    first, *rest = names
    if not rest:
        return dataclasses.replace(spec, **{first: value})
    inner = getattr(spec, first)
    inside = rest[1:] if rest[0] == getattr(inner, "kind", None) else rest
    return dataclasses.replace(spec, **{first: altered(inner, inside, value)})


def meant(spec):
    """Returns a spec without what is not drawn, and with what its None stands for."""
    return dataclasses.replace(
        spec, scan_layers=False, rematerialize="nothing", final_norm=spec.has_final_norm
    )


def test_live_every_field_changes_the_picture():
    """Models that differ at all differ in the SVG, but for fields that say why they do not."""
    bases = [run.model for run in every_kind.RUNS]
    bases += [changed(head=head) for head in every_kind.HEADS]
    models, told, fields = {meant(base) for base in bases}, set(), set()
    for base in bases:
        fields |= every_kind.fields_of(base)
        for cls, path, hint in every_kind.leaves(base):
            names = path.split(".")
            for other in every_kind.others(cls, names[-1], value_at(base, names), hint):
                if (cls, names[-1], other) in told:
                    continue
                try:
                    models.add(meant(altered(base, names, other)))
                except SpecError:
                    continue
                told.add((cls, names[-1], other))
    assert fields == {(cls, name) for cls, name, _ in told}
    pictures = {drawing.svg(drawing.sheet(model, "model")) for model in models}
    assert len(pictures) == len(models) > len(fields)


def test_live_the_type_of_a_head_without_a_matrix_is_drawn():
    model = changed(head=Embedder())
    low = dataclasses.replace(model, precision=Precision(head="bfloat16"))
    assert drawing.svg(drawing.sheet(low, "")) != drawing.svg(drawing.sheet(model, ""))


def test_null_what_is_not_drawn_changes_no_diagram():
    """Else the list of fields that are not drawn would be longer than it must."""
    others = {"scan_layers": True, "rematerialize": "everything"}
    assert others.keys() == NOT_DRAWN.keys()
    for name, other in others.items():
        assert drawing.svg(drawing.sheet(changed(**{name: other}), "")) == drawing.svg(
            drawing.sheet(changed(), "")
        )
