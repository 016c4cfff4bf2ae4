"""Tests of jtransformer.ahead for TPU slices, compiled by libtpu without a TPU."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from jtransformer.accounting import chip

if importlib.util.find_spec("libtpu") is None:
    pytest.skip(
        "needs libtpu, of the extra tpu-plan, as CI has it (owner: maintainers, 2026-11-30)",
        allow_module_level=True,
    )

TESTS = pathlib.Path(__file__).parents[1]
B, T, D, F, L, V = 4, 16, 256, 512, 3, 256
"""Of `slices.py`."""
LAYERS, ENDS = L * (4 * D * D + 2 * D * F), 2 * V * D
"""Numbers of the matrices of all layers, and of the embedding and the head."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    command = [
        sys.executable,
        str(TESTS / "ahead" / "slices.py"),
        str(tmp_path_factory.mktemp("s")),
    ]
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    # The tests' options of XLA for the CPU, at the first of which that it lacks libtpu gives up.
    environment = os.environ | {"PYTHONPATH": paths, "XLA_FLAGS": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def train(found, name):
    return found[name]["programs"]["train"]


def nbytes(program, kind):
    return sum(one["nbytes"] for one in program["collectives"] if one["kind"] == kind)


def test_a_slice_has_its_chips(found):
    assert found["devices"] == {
        "v5e:1x1": 1,
        "v5e:4x4": 16,
        "v5e:16x16": 256,
        "v5p:2x2x1": 4,
        "v5p:4x4x4": 64,
        "v6e:16x16": 256,
    }


def test_fsdp_fetches_parameters_and_scatters_gradients(found):
    """The compiler fetches matrices in bfloat16, each layer's twice, and sums in float32."""
    program = train(found, "fsdp")
    assert program["unknown_loops"] == 0
    gathered, scattered = nbytes(program, "all-gather"), nbytes(program, "reduce-scatter")
    assert 2 * 2 * LAYERS <= gathered <= 2 * (2 * LAYERS) + 4 * 2 * ENDS
    assert 4 * LAYERS <= scattered <= 4 * (LAYERS + ENDS)
    assert {one["devices"] for one in program["collectives"]} == {4}


def test_tensor_parallel_sums_the_stream_over_pairs(found):
    """Once for attention and once for the network of every layer, forward and backward."""
    program = train(found, "tensor")
    pairs = [one for one in program["collectives"] if one["devices"] == 2]
    assert sum(one["sent"] for one in pairs) >= 2 * 2 * L * (B // 2) * T * D * 2


def test_one_chip_sends_nothing(found):
    assert train(found, "one")["collectives"] == []
    assert train(found, "one")["roofline"]["network_seconds"] == 0


def test_memory_is_below_the_capacity_and_adds_up(found):
    for name in ("fsdp", "tensor", "one"):
        memory = train(found, name)["memory"]
        kinds = ("parameters", "optimizer", "average", "batch", "cache", "padding", "activations")
        kinds += ("temporaries", "outputs", "code")
        assert memory["total"] == sum(memory[kind] for kind in kinds)
        assert memory["fits"] and found[name]["fits"]
        assert memory["capacity"] == chip(found[name]["chip"]).usable_memory
    whole, divided = (train(found, name)["memory"]["parameters"] for name in ("one", "fsdp"))
    assert whole - divided == 4 * (LAYERS + ENDS) * 3 // 4


def test_what_is_too_large_is_a_result(found):
    memory = train(found, "large")["memory"]
    assert not memory["fits"] and not found["large"]["fits"]
    assert "RESOURCE_EXHAUSTED" in memory["refusal"]
    assert memory["total"] > memory["capacity"] == int(15.75 * 2**30)
    assert train(found, "large")["roofline"] is None


def test_a_second_time_nothing_is_compiled(found):
    for what, program in found["again"]["programs"].items():
        first = found["fsdp"]["programs"][what]
        assert program["cached"] and not first["cached"]
        assert program["memory"] == first["memory"]
        assert program["roofline"] == first["roofline"]


def test_the_estimate_lies_between_its_bounds(found):
    for what in ("train", "decode"):
        line = found["fsdp"]["programs"][what]["roofline"]
        assert 0 < line["seconds_at_least"] < line["seconds"] <= line["seconds_at_most"]
        assert 0 < line["utilisation"] < 1
        assert line["bound"] in ("compute", "memory", "network")
