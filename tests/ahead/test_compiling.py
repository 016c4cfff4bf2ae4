"""Tests for jtransformer.ahead.compiling on CPU devices; TPU slices are in test_slices.py.

They take a dozen compilations. What needs none is in test_programs.py.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[1]
B, T, D, F, L, V = 4, 16, 16, 32, 3, 256
"""Of `facts.py`: the smallest run, and one with more layers."""
NUMBER = 4

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags,
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
    }
    command = [sys.executable, str(TESTS / "ahead" / "facts.py"), str(tmp_path_factory.mktemp("f"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("what", ["alone", "mesh", "decode"])
def test_a_program_is_the_one_that_really_runs(facts, what):
    """An update with dropout, one on a mesh, and the loop of a stream, by their fingerprints."""
    real, ahead = facts["fingerprints"][what]
    assert ahead == real


def test_live_the_fingerprint_follows_the_program_alone(facts):
    seed, norm = facts["fingerprints"]["seed"], facts["fingerprints"]["norm"]
    assert seed[0] == seed[1]
    assert norm[0] != norm[1]


def test_memory_is_that_of_the_arrays(facts):
    first = facts["cached"]["reports"][0]
    memory = first["programs"]["train"]["memory"]
    weights = NUMBER * facts["parameters"]["spec"]
    assert memory["parameters"] == weights
    # Two numbers per parameter and a counter.
    assert memory["optimizer"] == 2 * weights + NUMBER
    assert (memory["average"], memory["cache"]) == (0, 0)
    # Ids, labels and weights.
    assert memory["batch"] == 3 * NUMBER * B * T
    # The numbers of the run and its sums.
    assert 0 < memory["padding"] < 100
    assert memory["activations"] > 0 and memory["temporaries"] >= 0
    decode = first["programs"]["decode"]["memory"]
    kv = 2 * B * T * D * NUMBER
    assert kv <= decode["cache"] < kv + 50 * B
    assert decode["parameters"] == weights


def test_on_a_mesh_each_device_has_its_part(facts):
    """Of width 16 the axis fsdp divides every matrix by 4 and leaves norms and biases whole."""
    weights = NUMBER * facts["parameters"]["deep"]
    assert facts["data"]["programs"]["train"]["memory"]["parameters"] == weights
    divided = NUMBER * matrices()
    memory = facts["fsdp"]["programs"]["train"]["memory"]
    assert memory["parameters"] == weights - divided * 3 // 4
    assert memory["optimizer"] == 2 * memory["parameters"] + NUMBER
    assert memory["batch"] == 3 * NUMBER * B * T // 4
    assert 0 < memory["padding"] < 100
    cache = facts["fsdp"]["programs"]["decode"]["memory"]["cache"]
    kv = 2 * L * (B // 4) * T * D * NUMBER
    assert kv <= cache < kv + 50 * B * L


def matrices():
    """Numbers of all matrices: of the layers, the embedding and the head."""
    return L * (4 * D * D + 2 * D * F) + 2 * V * D


def sent(facts, layout, kind):
    found = facts[layout]["programs"]["train"]["collectives"]
    return sum(one["nbytes"] for one in found if one["kind"] == kind)


def test_data_parallel_sums_the_gradient_once(facts):
    gradient = NUMBER * facts["parameters"]["deep"]
    # Beside it a few sums of the loss.
    assert 0 < sent(facts, "data", "all-reduce") - gradient < 100
    assert sent(facts, "data", "all-gather") == 0
    every = facts["data"]["programs"]["train"]["collectives"]
    assert {one["devices"] for one in every} == {4}


def test_fsdp_fetches_every_layer_twice_and_sums_its_gradient_once(facts):
    """Layers are scanned: that a loop has three turns must be known. The ends are fetched once."""
    layers, ends = NUMBER * L * (4 * D * D + 2 * D * F), NUMBER * 2 * V * D
    assert 0 <= sent(facts, "fsdp", "all-gather") - 2 * layers - ends < 1000
    # The CPU has no reduce-scatter.
    gradient = NUMBER * facts["parameters"]["deep"]
    assert 0 < sent(facts, "fsdp", "all-reduce") - gradient < 100
    assert facts["fsdp"]["programs"]["train"]["unknown_loops"] == 0
    assert facts["fsdp"]["programs"]["decode"]["unknown_loops"] == 0


def test_a_second_time_nothing_is_compiled(facts):
    first, again, third, _ = (one["programs"] for one in facts["cached"]["reports"])
    assert facts["cached"]["files"] == 2
    for what in ("train", "decode"):
        assert [one[what]["cached"] for one in (first, again, third)] == [False, True, True]
        own = ("cached", "lower_seconds")
        before, after = ({**one[what], **dict.fromkeys(own)} for one in (first, again))
        assert before == after
        # What is written in the cache is what comes back.
        assert third[what]["work"]["memory_bytes"] == 1234567


def test_live_another_program_is_another_entry(facts):
    assert not facts["cached"]["reports"][3]["programs"]["decode"]["cached"]


def test_a_damaged_entry_is_named(facts):
    assert ".json is damaged" in facts["cached"]["damaged"]


def test_a_report_says_what_it_is_of(facts):
    report = facts["fsdp"]
    assert report["fits"] and report["layout"] == "fsdp=4" and report["devices"] == 4
    assert report["chip"] is None and report["programs"]["train"]["roofline"] is None
    assert set(report["versions"]) >= {"jax", "jaxlib", "jtransformer"}
