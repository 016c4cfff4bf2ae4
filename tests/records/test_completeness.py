"""Tests for jtransformer.records.completeness: what is damaged is named, file and part."""

import json

import pytest
from sweep_fixture import DATA, RATES, noisy_losses, write_sweep

from jtransformer.cli import main
from jtransformer.records import DamagedRecord, check_complete, load_sweep

LOSSES = noisy_losses({"pre-gelu": 0.0, "pre-relu": 0.01}, seeds=2)
LOSSES["pre-relu", RATES[2], 1] = "diverged"
LOSSES["pre-relu", RATES[0], 1] = "running"


@pytest.fixture
def record(tmp_path):
    return load_sweep(write_sweep(tmp_path, LOSSES))


def test_what_the_program_writes_is_complete(record):
    check_complete(record)


def test_null_what_came_with_later_versions_may_be_absent(record):
    for name in ("verdict", "search", "quantities", "threads", "scales"):
        record.manifest.pop(name, None)
    for arm in record.manifest["arms"]:
        del arm["mismatches"]
    check_complete(record)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda m: m["arms"][1].pop("residual"), "arm 2 lacks residual"),
        (lambda m: m["arms"][1].update(parameters="many"), "parameters of arm 2 is 'many'"),
        (lambda m: m["arms"].clear(), "it has no arms"),
        (lambda m: m["arms"][0].update(mismatches=None), "mismatches of arm 1 is None"),
        (lambda m: m.update(scales={"a": {}}), "arm 1 lacks scale, baseline"),
        (lambda m: m.update(seeds=[]), "it has no seeds"),
        (lambda m: m["cells"][0].update(seed="zero"), "seed of cell 1 is 'zero'"),
        (lambda m: m.update(arms=None), "its arms is None"),
        (lambda m: m.update(question=None), "its question is None"),
        (lambda m: m.update(baseline="nobody"), "its baseline 'nobody' is no arm"),
        (lambda m: m["cells"][0].pop("nuisance"), "cell 1 lacks nuisance"),
        (lambda m: m["cells"][1].update(nuisance={}), "cell 2 tunes other settings than other"),
        (lambda m: m["cells"][0].update(arm="nobody"), "cell 1 is of 'nobody', which is no arm"),
        (lambda m: m.update(data={}), "its data lacks source, sha256"),
        (
            lambda m: m.update(data={k: v for k, v in DATA.items() if k != "test_bytes"}),
            "its data lacks test_bytes",
        ),
        (lambda m: m.update(data=DATA | {"xz_nll": "small"}), "its xz_nll is 'small'"),
    ],
)
def test_error_a_manifest_that_lacks_something(record, change, said):
    manifest = json.loads(json.dumps(record.manifest))
    change(manifest)
    with pytest.raises(DamagedRecord, match="sweep.json is damaged") as caught:
        check_complete(record.__class__(manifest, record.runs))
    assert f"({said}" in str(caught.value)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda s: s["result"].pop("test_nll"), "its result lacks test_nll"),
        (lambda s: s["result"].update(validation_nll=None), "its validation_nll is None"),
        (lambda s: s["result"].update(validation_nll=float("nan")), "its validation_nll is nan"),
        (lambda s: s["result"].update(validation_nll=True), "its validation_nll is True"),
        (lambda s: s["result"].update(tokens=None), "its tokens is None"),
        (lambda s: s.update(result=None), "its result is None"),
        (lambda s: s["pairing"].pop("first_batch"), "its pairing lacks first_batch"),
        (lambda s: s["pairing"].update(initial={"w": {}}), "w of its pairing lacks shape"),
        (lambda s: s["pairing"].update(initial=3), "its pairing has no initial values"),
        (
            lambda s: s["pairing"]["initial"]["embedding/table"].update(shape=None),
            "the shape of embedding/table of its pairing is None",
        ),
        (lambda s: s.update(timing=[]), "its timing is []"),
        (lambda s: s["timing"].update(wall_seconds="long"), "its wall_seconds is 'long'"),
    ],
)
def test_error_a_status_that_lacks_something(record, change, said):
    change(record.runs[1].status)
    with pytest.raises(DamagedRecord) as caught:
        check_complete(record)
    directory = record.runs[1].cell["directory"]
    assert str(caught.value).startswith(f"{directory}/status.json is damaged ({said}")


def test_a_test_loss_that_is_not_finite_leaves_a_run_done(record):
    record.runs[1].status["result"]["test_nll"] = None
    check_complete(record)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda row: row.pop("tokens"), "row 1 lacks tokens"),
        (lambda row: row.update(train_nll=float("nan")), "train_nll of row 1 is nan"),
        (lambda row: row.update(validation_nll="low"), "validation_nll of row 1 is 'low'"),
        (lambda row: row.update(step=None), "step of row 1 is None"),
    ],
)
def test_error_rows_that_lack_something(record, change, said):
    change(record.runs[0].metrics[0])
    with pytest.raises(DamagedRecord) as caught:
        check_complete(record)
    directory = record.runs[0].cell["directory"]
    assert str(caught.value).startswith(f"{directory}/metrics.jsonl is damaged ({said})")


@pytest.mark.parametrize("command", ["report", "compare"])
def test_commands_say_it_in_a_sentence_and_write_nothing(tmp_path, capsys, command):
    one, other = (write_sweep(tmp_path / name, LOSSES) for name in "ab")
    manifest = json.loads((other / "sweep.json").read_text())
    del manifest["arms"][0]["components"]
    (other / "sweep.json").write_text(json.dumps(manifest))
    flags = {
        "report": ["--workdir", str(other)],
        "compare": ["--workdir", str(one), "--workdir", str(other), "--into", str(tmp_path / "c")],
    }
    assert main([command, *flags[command]]) == 2
    error = capsys.readouterr().err
    assert "sweep.json is damaged (arm 1 lacks components)" in error and error.count("\n") == 1
    assert not (other / "report").exists() and not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "rule",
    [
        None,
        [1],
        {"margin": 0.1, "later": 1},
        {"margin": "0.1"},
        {"margin": 0},
        {"margin": -1.0},
        {"margin": True},
        {"margin": float("nan")},
        {"correction": "bonferroni"},
        {"intervals": ["unadjusted"]},
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_a_damaged_rule_is_a_sentence(tmp_path, capsys, rule, before):
    entry = {"verdict_before": [{"rule": rule, "finished": 1}]} if before else {"verdict": rule}
    assert main(["report", "--json", "--workdir", str(write_sweep(tmp_path, LOSSES, **entry))]) == 2
    error = capsys.readouterr().err
    assert "sweep.json is damaged (a rule of the verdict is" in error and error.count("\n") == 1


@pytest.mark.parametrize("before", [None, ["rule"], [{"rule": {}}], [{"finished": 3}]])
def test_damaged_earlier_rules_are_a_sentence(tmp_path, capsys, before):
    workdir = write_sweep(tmp_path, LOSSES, verdict_before=before)
    assert main(["report", "--json", "--workdir", str(workdir)]) == 2
    error = capsys.readouterr().err
    assert "sweep.json is damaged (its verdict_before is" in error and error.count("\n") == 1
