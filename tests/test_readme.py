"""README.md says what is there, and its code runs."""

import pathlib
import re
import typing

import pytest

from jtransformer import cli
from jtransformer import functional as F
from jtransformer.cli.main import COMMANDS
from jtransformer.spec import DataSpec, ModelSpec, OptimizerSpec, RunSpec

TEXT = (pathlib.Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0][:40])
def test_every_block_of_code_runs(block, tmp_path, capsys):
    file = tmp_path / "config.py"
    file.write_text(block, encoding="utf-8")
    if "get_sweep" in block:
        words = ["--config", str(file), "--workdir", str(tmp_path / "out"), "--dry_run"]
        assert cli.main(["sweep", *words]) == 0
        assert "rms_norm" in capsys.readouterr().out
    else:
        exec(compile(block, str(file), "exec"), {})


CHOICES = {
    "model.stack": ModelSpec,
    "model.attention": ModelSpec,
    "model.position": ModelSpec,
    "model.norm": ModelSpec,
    "model.norm_placement": ModelSpec,
    "model.ffn": ModelSpec,
    "model.head": ModelSpec,
    "objective": RunSpec,
    "data.source": DataSpec,
    "data.tokenizer": DataSpec,
    "data.rows": DataSpec,
    "optimizer.rule": OptimizerSpec,
    "schedule": RunSpec,
}


@pytest.mark.parametrize("field", CHOICES)
def test_the_table_of_choices_names_every_choice(field):
    hint = typing.get_type_hints(CHOICES[field])[field.rpartition(".")[2]]
    (row,) = [line for line in TEXT.splitlines() if line.startswith("| `") and f"`{field}`" in line]
    named = set(re.findall(r"`(\w+)`", row))
    assert {getattr(one, "kind", one) for one in typing.get_args(hint)} <= named


def test_the_table_of_commands_is_that_of_the_program():
    assert set(re.findall(r"^\| `jtransformer (\w+)`", TEXT, re.MULTILINE)) == set(COMMANDS)


def test_the_table_of_layers_names_every_public_function_and_nothing_else():
    table = TEXT[TEXT.index("| family | functions |") :].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", table))
    functions = {name for name in F.__all__ if name[0].islower()}
    assert functions <= named <= set(F.__all__)
