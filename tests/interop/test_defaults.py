"""What a config.json leaves out has the value of its configuration class, field by field."""

import json

import pytest
import transformers

from jtransformer.interop import FAMILIES, family_named
from jtransformer.interop.expressing import plain, read_with

TYPES = [(family.name, kind) for family in FAMILIES for kind in family.model_types]


def defaults_of(model_type: str) -> dict:
    """Returns all fields of a class with their defaults, as they would be stored."""
    config = transformers.CONFIG_MAPPING[model_type]()
    return json.loads(config.to_json_string(use_diff=False))


def read(name: str, fields: dict):
    return plain(read_with(family_named(name), fields, "config.json", frozenset()))


@pytest.mark.parametrize(("name", "model_type"), TYPES)
def test_an_empty_config_is_that_of_the_class(name, model_type):
    fields = defaults_of(model_type)
    assert len(fields) > 20
    assert read(name, {"model_type": model_type}) == read(name, fields)


@pytest.mark.parametrize(("name", "model_type"), TYPES)
def test_each_field_that_is_left_out_has_the_default_of_the_class(name, model_type):
    """One at a time too: a default may depend on other fields, or be set by a second name."""
    fields = defaults_of(model_type)
    whole = read(name, fields)
    for left_out in fields:
        rest = {field: value for field, value in fields.items() if field != left_out}
        assert read(name, rest) == whole, left_out
