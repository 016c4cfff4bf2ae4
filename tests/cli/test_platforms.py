"""Tests for jtransformer.cli.platforms: no TPU is looked for where there is none."""

import importlib.util
import os
import subprocess
import sys

import pytest
import tiny_run

from jtransformer.cli import platforms
from jtransformer.cli.platforms import CHOSEN, may_have_tpu, spare_missing_tpu

SPARED = {"JAX_PLATFORMS": "cpu", CHOSEN: "1"}
# As a user who has libtpu and sets nothing; what JAX was given is what its back ends are.
COMMAND = """
import sys, time
from jtransformer.cli import main
assert main(sys.argv[1:]) == 0
import jax
begun = time.process_time()
assert [device.platform for device in jax.devices()] == ["cpu"]
maps = open("/proc/self/maps").read()
print(time.process_time() - begun, "libtpu.so" in maps)
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """The root of a machine with libtpu, no plugin of JAX, no device, and a network card."""
    there = importlib.util.find_spec
    known = {"libtpu": there("json"), "jax_plugins": None}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: known.get(name) or
                        (None if name in known else there(name)))  # fmt: skip
    monkeypatch.setattr(platforms.importlib.metadata, "entry_points", lambda group: ())
    add_device(tmp_path, "net", "0x1ae0", "0x020000")
    return tmp_path


def add_device(root, name, vendor, kind):
    folder = root / "sys/bus/pci/devices" / name
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


def after(root, **environment):
    spare_missing_tpu(environment, root)
    return environment


def test_without_a_tpu_jax_starts_on_the_cpu(machine):
    assert after(machine) == SPARED
    assert after(machine, JAX_PLATFORMS="") == SPARED
    assert after(machine, HOME="/root") == {"HOME": "/root"} | SPARED


@pytest.mark.parametrize("device", ["dev/accel0", "dev/vfio/0"])
def test_a_device_file_of_a_tpu_leaves_the_choice_to_jax(machine, device):
    (machine / device).parent.mkdir(parents=True)
    (machine / device).touch()
    assert after(machine) == {}


def test_a_tpu_on_the_bus_leaves_the_choice_to_jax(machine):
    add_device(machine, "other", "0x8086", "0x120000")
    assert not may_have_tpu(machine)
    add_device(machine, "tpu", "0x1ae0", "0x120000")
    assert may_have_tpu(machine) and after(machine) == {}


@pytest.mark.parametrize("name", platforms.NAMES_OF_TPU)
def test_a_word_of_a_tpu_leaves_the_choice_to_jax(machine, name):
    assert after(machine, **{name: "0"}) == {name: "0"}


def test_what_the_user_has_said_stays(machine):
    assert after(machine, JAX_PLATFORMS="tpu,cpu") == {"JAX_PLATFORMS": "tpu,cpu"}
    assert after(machine, JAX_PLATFORMS="cpu") == {"JAX_PLATFORMS": "cpu"}


def test_plugins_of_other_accelerators_leave_the_choice_to_jax(machine, monkeypatch):
    monkeypatch.setattr(platforms.importlib.metadata, "entry_points", lambda group: (group,))
    assert after(machine) == {}


def test_without_libtpu_there_is_nothing_to_spare(machine, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert after(machine) == {}


def test_a_process_on_another_host_chooses_anew(machine):
    inherited = after(machine)
    (machine / "dev").mkdir()
    (machine / "dev/accel0").touch()
    assert after(machine, **inherited) == {}
    # What a user sets below a command is no choice of this module's.
    assert after(machine, **inherited | {"JAX_PLATFORMS": "tpu"}) == {"JAX_PLATFORMS": "tpu"}


@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="needs libtpu, of the extra tpu-plan, as CI has it (owner: maintainers, 2026-12-01)",
)
@pytest.mark.parametrize("command", ["count", "draw"])  # the second one's import is JAX's too
def test_a_command_is_clean_where_libtpu_is_installed_and_there_is_no_tpu(command, tmp_path):
    config = tiny_run.config_file(tmp_path, {}, ffn="relu")
    own = {name: word for name, word in os.environ.items() if name not in ("JAX_PLATFORMS", CHOSEN)}
    words = [sys.executable, "-c", COMMAND, command, "--config", str(config), "--json"]
    done = subprocess.run(words, env=own, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    seconds, has_libtpu = done.stdout.splitlines()[-1].split()
    # The time of its own processor: to look for a TPU is to load a library of 400 MB first.
    assert has_libtpu == "False" and float(seconds) < 5
