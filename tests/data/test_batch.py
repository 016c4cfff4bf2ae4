"""Tests for jtransformer.data.batch."""

import numpy as np

from jtransformer.data.batch import Batch

ASKED = {name: np.zeros((2, 3)) for name in ("tokens", "labels", "weights")}


def test_a_model_is_given_what_there_is_and_nothing_that_is_asked():
    given = {"valid": np.ones((2, 3), bool), "source": np.zeros((2, 4), np.int32)}
    found = Batch(**ASKED, **given).inputs()
    assert found.keys() == given.keys()
    assert all(found[name] is given[name] for name in given)


def test_null_a_plain_batch_has_no_further_inputs():
    assert Batch(**ASKED).inputs() == {}


def test_the_fields_are_the_keywords_of_a_model():
    every = {name: np.zeros(1) for name in Batch._fields}
    assert list(Batch(**every).inputs()) == [
        "valid",
        "positions",
        "segments",
        "prefix_length",
        "source",
        "source_valid",
        "source_positions",
        "source_segments",
    ]
