"""Tests of what the audit says of parameters that arms have taken over."""

import pytest
from sweep_fixture import noisy_losses, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report.audit import section
from jtransformer.stats import analyse, audit

LOSSES = noisy_losses({"pre-gelu": 0.0, "pre-swiglu": -0.03})
NEW = {f"layer_{i}/ffn/gate/kernel": "absent there" for i in range(2)}


def start(taken=10, new=None, sha256="ab" * 32):
    return {
        "directory": "runs/gpt2",
        "sha256": sha256,
        "parameters": {"taken": 4 - len(new or {}), "all": 4},
        "numbers": {"taken": taken, "all": 10},
        "new": new or {},
        "left": [],
    }


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return load_sweep(write_sweep(tmp_path_factory.mktemp("sweep"), LOSSES))


def written(record, *starts):
    for arm, taken in zip(record.manifest["arms"], starts, strict=True):
        arm.pop("start", None)
        if taken is not None:
            arm["start"] = taken
    analysis = analyse(record)
    return section(audit(record, analysis), analysis)


def table(found):
    (one,) = (table for table in found.tables if table.name == "audit_starts")
    return one


def test_null_arms_that_start_anew_have_no_word_of_it(record):
    found = written(record, None, None)
    assert "taken over" not in " ".join(found.paragraphs)
    assert not any(table.name == "audit_starts" for table in found.tables)


def test_value_alike_starts_are_said_and_are_no_objection(record):
    found = written(record, start(), start())
    assert "trained numbers (" not in found.paragraphs[0]
    assert "pre-swiglu has taken over 4 of 4 parameters, 100 % of the numbers." in " ".join(
        found.paragraphs
    )
    assert table(found).marks is None


@pytest.mark.parametrize(
    "other, said",
    [
        (start(6, NEW), "pre-gelu 100 %, pre-swiglu 60.0 %"),
        (None, "pre-gelu 100 %, pre-swiglu 0 %"),
        (start(sha256="cd" * 32), "pre-gelu 100 %, pre-swiglu 100 %"),
    ],
)
def test_value_unequal_starts_make_the_comparison_unfair(record, other, said):
    found = written(record, start(), other)
    assert f"same trained numbers ({said})" in found.paragraphs[0]
    shown = {column.heading: column.cells for column in table(found).columns}
    assert shown["numbers"][0] == "10 of 10"
    if other and other["new"]:
        named = "new: layer_*/ffn/gate/kernel (2 times, absent there)"
        assert named in " ".join(found.paragraphs)
        assert (table(found).marks or [])[1][3]
