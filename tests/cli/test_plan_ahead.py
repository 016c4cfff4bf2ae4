"""Tests of `jtransformer plan --topology`: which arms fit devices, before those are rented."""

import contextlib
import io
import json

import pytest
import tiny_run

from jtransformer import ahead
from jtransformer.cli import main
from jtransformer.cli.arguments import read_experiment
from jtransformer.cli.plan_ahead import compile_programs, device_seconds
from jtransformer.cli.plan_tables import print_figures
from jtransformer.cli.targets import Target
from jtransformer.spec import Layout

SWEEP = dict(
    scientific={"model.ffn": ("relu", "swiglu")},
    nuisance={"optimizer.learning_rate": (0.01, 0.02)},
    seeds=(0, 1),
    match=dict(equal="parameters", by="model.ffn_width", multiple_of=1, tolerance=0.02),
)


pytestmark = pytest.mark.usefixtures("compilers")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return tiny_run.config_file(tmp_path_factory.mktemp("config"), SWEEP, ffn="relu")


@pytest.fixture(scope="module")
def planned(config, cache):
    """What the command finds for the devices at hand."""
    argv = ["plan", "--config", str(config), "--topology", "local", "--cache", str(cache)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main([*argv, "--json"]) == 0
    return json.loads(printed.getvalue())


def refused(capsys, *argv):
    assert main(["plan", *map(str, argv)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_each_program_is_compiled_once_and_fits(planned, cache):
    assert (planned["topology"], planned["mesh"]) == ("local", "data=1")
    found = [group["ahead"] for group in planned["groups"]]
    assert len(found) == len(list(cache.glob("train-*.json"))) == 2
    assert [one["refusal"] for one in found] == [None, None]
    assert found[0]["fingerprint"] != found[1]["fingerprint"]
    # The speed of a CPU is not known.
    assert [group["device_seconds"] for group in planned["groups"]] == [None, None]


def test_the_text_says_which_arms_do_not_fit(capsys, planned):
    print_figures(planned)
    assert "every arm fits local, mesh data=1" in capsys.readouterr().out
    first, second = planned["groups"]
    small = first["ahead"] | {"refusal": "it takes 2 GiB of 1 GiB"}
    none = {"refusal": "an axis is of no use"}
    groups = [first | {"ahead": small}, second | {"ahead": none}]
    print_figures(planned | {"groups": groups})
    text = capsys.readouterr().out
    assert "2 of 2 groups do not fit local, mesh data=1:" in text
    assert "  relu: it takes 2 GiB of 1 GiB" in text
    assert "  swiglu: an axis is of no use" in text
    speed = first["ahead"] | {"roofline": {"seconds": 0.25}}
    known = first | {"ahead": speed, "device_seconds": device_seconds(speed, 14_400, 4)}
    assert known["device_seconds"] == 4 * 3600
    print_figures(planned | {"groups": [known, second]})
    text = capsys.readouterr().out
    assert "250 ms" in text and "4.0" in text


def test_an_arm_that_cannot_be_laid_out_does_not_stop_the_others(config, cache, planned):
    run = read_experiment(config, []).run_spec()
    topology = ahead.topology("local")._replace(name="three", devices=tuple(range(3)))
    (found,) = compile_programs([run], Target(topology, Layout(fsdp=2), None))
    assert list(found) == ["refusal"] and "is for 2 devices" in found["refusal"]
    assert device_seconds(found, 10, 3) is None


def test_errors_name_the_flag(capsys, config):
    for words, sentence in (
        (["--mesh", "fsdp=2"], "--mesh would do nothing without --topology"),
        (["--cache", "none"], "--cache would do nothing without --topology"),
        (["--topology", "v5e:4x4", "--measure"], "--measure is of the devices here"),
        (["--topology", "v5e"], "topology 'v5e' is unknown"),
    ):
        assert sentence in refused(capsys, "--config", config, *words)
