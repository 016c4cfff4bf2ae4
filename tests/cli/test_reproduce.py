"""Tests of `jtransformer reproduce`: bits where they are due, reasons where they are not."""

import contextlib
import itertools
import json
import shutil

import pytest
import tiny_generation
import tiny_run

from jtransformer import records
from jtransformer.cli import main, reproduce
from jtransformer.cli.environments import DEVICE, MODE, OF_ARMS, changes
from jtransformer.training import environment

REQUEUE = 75


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly():
    with tiny_generation.compiled_quickly():
        yield


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(scope="module")
def trained(root):
    """A run, and a reproduction of it that is complete, to be compared with at no cost."""
    config = tiny_run.config_file(root, {}, ffn="relu")
    assert main(["train", "--config", str(config), "--workdir", str(root / "run")]) == 0
    before = contents(root / "run")
    assert main(["reproduce", "--workdir", str(root / "run"), "--into", str(root / "again")]) == 0
    assert contents(root / "run") == before, "the run was touched"
    return root / "run", root / "again"


def contents(directory):
    """Returns every file and folder below a directory, with its time and its bytes."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in [directory, *directory.rglob("*")]
    }


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of the run to be spoilt."""
    return shutil.copytree(trained[0], tmp_path / "copy")


def edit(path, change):
    value = records.read_json(path)
    change(value)
    path.write_text(json.dumps(value))


def edit_row(workdir, step, **figures):
    path = workdir / "metrics.jsonl"
    rows = [row | (figures if row["step"] == step else {}) for row in records.read_rows(path)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def asked(capsys, workdir, *more):
    """Returns exit code and answer."""
    capsys.readouterr()
    code = main(["reproduce", "--workdir", str(workdir), "--json", *map(str, more)])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else None


def refused(capsys, workdir, *more):
    capsys.readouterr()
    assert main(["reproduce", "--workdir", str(workdir), *map(str, more)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_the_same_environment_gives_the_same_bits(capsys, trained):
    run, again = trained
    code, found = asked(capsys, run, "--into", again)
    assert code == 0 and found["reproduced"] and found["bitwise"]
    assert (found["rows"], found["environment"], found["first_difference"]) == (6, [], None)
    left, right = (records.read_rows(path / "metrics.jsonl") for path in (run, again))
    assert [row["train_loss"] for row in left] == [row["train_loss"] for row in right]
    assert main(["reproduce", "--workdir", str(run), "--into", str(again)]) == 0
    text = capsys.readouterr().out
    assert (
        text == "Reproduced in the same environment: 6 rows and the result are equal to the bit.\n"
    )


def test_a_bit_that_differs_in_the_same_environment_is_a_failure(capsys, trained, copied):
    _, again = trained
    row = records.read_rows(copied / "metrics.jsonl")[1]
    edit_row(copied, 4, gradient_norm=row["gradient_norm"] * (1 + 2**-52))
    code, found = asked(capsys, copied, "--into", again)
    assert code == 1 and not found["reproduced"]
    assert (found["first_difference"]["step"], found["first_difference"]["figure"]) == (
        4,
        "gradient_norm",
    )
    assert main(["reproduce", "--workdir", str(copied), "--into", str(again)]) == 1
    text = capsys.readouterr().out
    assert "Not reproduced: figures differ although the environment is the same." in text
    assert "The first difference: gradient_norm of step 4 was " in text


@pytest.mark.parametrize(("shift", "code"), [(0.0, 0), (0.019, 0), (-0.019, 0), (0.021, 1)])
def test_another_environment_has_a_band_and_every_difference_a_reason(
    capsys, trained, copied, shift, code
):
    def move(value):
        value |= {"jax": "0.0.1", "device_kind": "abacus", "jax_enable_x64": None}

    edit(copied / "environment.json", move)
    edit_row(copied, 2, train_nll=1.0)
    final = records.read_json(trained[1] / "status.json")["result"]["validation_nll"]
    edit(copied / "status.json", lambda v: v["result"].update(validation_nll=final + shift))
    assert asked(capsys, copied, "--into", trained[1])[0] == code
    assert main(["reproduce", "--workdir", str(copied), "--into", str(trained[1])]) == code
    text = capsys.readouterr().out
    assert ("is within the band of 0.02" in text) is (code == 0)
    assert "train_nll of step 2 was 1.0 and is " in text
    assert "- version: jax was '0.0.1' and is " in text
    assert "- device: device_kind was 'abacus' and is " in text
    assert "- mode: jax_enable_x64 was None and is " in text and "other random numbers" in text
    assert asked(capsys, copied, "--into", trained[1], "--band", 0.05)[0] == 0


def test_a_run_that_diverged_elsewhere_alone_is_not_reproduced(capsys, trained, copied):
    edit(copied / "environment.json", lambda value: value.update(numpy="1.0"))
    edit(copied / "status.json", lambda value: value.update(state="diverged"))
    code, found = asked(capsys, copied, "--into", trained[1])
    assert code == 1 and found["state"] == {"recorded": "diverged", "found": "done"}


def test_a_run_that_was_continued_elsewhere_need_not_have_the_same_bits(capsys, trained, copied):
    before = records.read_json(copied / "environment.json") | {"jaxlib": "0.0.1"}
    event = {"event": "continued in another environment", "before": before}
    records.append_row(copied / "events.jsonl", event)
    edit_row(copied, 2, train_nll=1.0)
    code, found = asked(capsys, copied, "--into", trained[1])
    assert code == 0 and not found["bitwise"]
    assert [change["name"] for change in found["environment"]] == ["jaxlib"]


def test_the_recorded_mode_is_the_one_that_is_used(capsys, copied, tmp_path):
    edit(copied / "environment.json", lambda value: value.update(mode="vmap, 2 runs, 2 steps"))
    code, found = asked(capsys, copied, "--into", tmp_path / "vmap")
    made = records.read_json(tmp_path / "vmap/environment.json")
    assert made["mode"] == "vmap, 2 runs, 2 steps" and found["environment"] == []
    assert code == (0 if found["bitwise"] else 1)
    assert abs(found["validation_nll"]["difference"]) < 1e-4


def test_an_interrupted_reproduction_goes_on(capsys, trained, tmp_path, monkeypatch):
    run, _ = trained
    asks = itertools.count(1)

    @contextlib.contextmanager
    def stopped_at_the_sixth():
        yield lambda: next(asks) >= 6

    monkeypatch.setattr(reproduce, "stop_requests", stopped_at_the_sixth)
    into = tmp_path / "into"
    assert asked(capsys, run, "--into", into)[0] == REQUEUE
    assert not (into / "status.json").exists() and any((into / "checkpoints").iterdir())
    monkeypatch.undo()
    monkeypatch.setattr(records, "truncate_rows", spy := Spy(records.truncate_rows))
    code, found = asked(capsys, run, "--into", into)
    assert code == 0 and found["bitwise"]
    assert spy.steps == [5], "it began again"


class Spy:
    """Passes a call on, and remembers from which step a run went on."""

    def __init__(self, function):
        self._function, self.steps = function, []

    def __call__(self, path, step):
        self.steps.append(step)
        return self._function(path, step)


def test_error_what_is_no_finished_run(capsys, copied, tmp_path):
    assert "holds no run" in refused(capsys, tmp_path / "nothing")
    (copied / "status.json").rename(tmp_path / "status.json")
    assert "is not finished; train it to its end first" in refused(capsys, copied)
    (copied / "status.json").write_text('{"torn')
    assert "status.json is damaged" in refused(capsys, copied)
    (tmp_path / "status.json").rename(copied / "status.json")
    records.truncate_rows(copied / "metrics.jsonl", 6)
    assert "metrics.jsonl is damaged (it does not reach step 10)" in refused(capsys, copied)


def test_error_damaged_files(capsys, copied):
    (copied / "environment.json").rename(copied / "kept")
    assert "environment.json is missing" in refused(capsys, copied)
    (copied / "kept").rename(copied / "environment.json")
    edit(copied / "spec.json", lambda value: value["spec"].update(seed=5))
    assert "its spec is not the one of its fingerprint" in refused(capsys, copied)


def test_error_data_that_have_changed(capsys, root, trained):
    text = root / "text.txt"
    before = text.read_bytes()
    text.write_bytes(before + b"more of it\n")
    try:
        assert "The data of the run in" in (said := refused(capsys, trained[0]))
        assert "have changed since it was trained" in said and "restore them" in said
        text.unlink()
        assert str(text) in refused(capsys, trained[0])
    finally:
        text.write_bytes(before)


def test_error_where_it_may_not_be_made(capsys, trained, copied, tmp_path):
    run, _ = trained
    assert "is the run itself or in it" in refused(capsys, run, "--into", run)
    assert "is the run itself or in it" in refused(capsys, run, "--into", run / "checkpoints")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    assert "is not empty (it has 'notes.txt')" in refused(capsys, run, "--into", tmp_path / "full")
    edit(copied / "spec.json", lambda value: value.update(fingerprint="f" * 64))
    assert "holds another run" in refused(capsys, run, "--into", copied)
    assert "--into is empty" in refused(capsys, run, "--into", "")
    assert "--into = " in refused(capsys, run, "--into", tmp_path / "full/notes.txt")
    (tmp_path / "sweep.json").write_text("{}")
    assert "--into = " in refused(capsys, run, "--into", tmp_path)


def test_error_flags(capsys, tmp_path):
    assert main(["reproduce"]) == 2
    assert "--workdir is missing" in capsys.readouterr().err
    assert "--band must be a number of at least 0" in refused(capsys, tmp_path, "--band", "-1")


def test_every_entry_of_an_environment_has_its_kind():
    present = environment("loop")
    assert set(DEVICE) | set(MODE) <= present.keys()
    other = dict.fromkeys([*present, *OF_ARMS], "other")
    kinds = {change.name: change.kind for change in changes([other], present)}
    assert kinds.keys() == present.keys()
    versions = {name for name, kind in kinds.items() if kind == "version"}
    assert {"python", "jax", "jaxlib", "jtransformer"} <= versions
    assert not versions & {*DEVICE, *MODE}
    assert changes([present], present) == []
