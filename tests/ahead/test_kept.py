"""Tests for the files in which jtransformer.ahead.compiling keeps what a compiler found."""

import pytest

from jtransformer import records
from jtransformer.ahead.compiling import _kept

NO_FINDINGS = {
    "no object": "[]",
    "nothing": "{}",
    "a part": '{"found": {"seconds": 1.0}}',
    "others": '{"found": {"reserved": {"bytes": 1}, "collectives": []}}',
    "torn": '{"found": ',
}


@pytest.mark.parametrize("content", NO_FINDINGS.values(), ids=NO_FINDINGS)
def test_a_file_that_holds_no_findings_is_named(tmp_path, content):
    path = tmp_path / "train-0.json"
    path.write_text(content)
    with pytest.raises(records.DamagedRecord, match="train-0.json is damaged .*; delete it"):
        _kept(path)
