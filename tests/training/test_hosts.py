"""Tests for jtransformer.training.hosts, and for the checkpoints that several processes share.

Processes are real ones on 127.0.0.1; what they do at once is done in few scripts, as each process
takes seconds to start.
"""

import json
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
import several_processes
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jtransformer import records
from jtransformer.data import Share
from jtransformer.spec import Layout
from jtransformer.training import Checkpoints
from jtransformer.training.hosts import Agreed, _Some, is_first, said_by_all, share_of, told, whole
from jtransformer.training.mesh import arrange

RNG = np.random.default_rng(0)
NUMBERS = {
    "w": RNG.normal(size=(16, 8)).astype(np.float32),
    "m": RNG.normal(size=(8, 16)).astype(np.float32),
    "step": np.int32(7),
}
STATE = """
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jtransformer import records
from jtransformer.data import Batch
from jtransformer.spec import MESH_AXES, Layout
from jtransformer.training import Checkpoints, hosts
from jtransformer.training.mesh import Arrangement
rng = np.random.default_rng(0)
w, m = rng.normal(size=(16, 8)).astype(np.float32), rng.normal(size=(8, 16)).astype(np.float32)
def spread(rows):
    mesh = Mesh(np.array(jax.devices()).reshape(rows, -1), ("a", "b"))
    def put(x, *axes):
        return jax.make_array_from_callback(
            x.shape, NamedSharding(mesh, P(*axes)), lambda index: x[index])
    return {"w": put(w, "a", "b"), "m": put(m, None, "a"), "step": put(np.int32(7))}
def equal(state, other):
    return all(bool((x == other[name]).all()) for name, x in state.items())
files = records.RunFiles(folder / "run")
"""
SAVE = (
    STATE
    + """
said = hosts.said_by_all({"process": process})
heard = hosts.told(lambda: ["é" * 300, process])
answers = []
ask = hosts.Agreed(lambda: process == 1 and len(answers) >= 2)
for _ in range(6):
    answers.append(ask())
state = spread(4)
gathered = hosts.whole(state["w"])
# In the order of a mesh the devices of a process need not be neighbours.
devices = np.array(jax.devices()[::2] + jax.devices()[1::2]).reshape(1, 8, 1, 1)
arrangement = Arrangement(Layout(fsdp=8), Mesh(devices, MESH_AXES))
rows = hosts.share_of(arrangement).rows(13)
# Two blocks of each process: five rows are made up to 8 at once, and to 16 in two parts.
counts = [len(hosts.share_of(arrangement, microbatches=parts).rows(5)) for parts in (1, 2)]
batch = Batch(*(np.where(rows < 0, 0, rows + 100 * n)[:, None] for n in range(3)))
placed = [hosts.whole(x)[:, 0].tolist() for x in arrangement.place(batch)[:3]]
add = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
if process == 0:
    files.directory.mkdir()
hosts.meet()
with Checkpoints(files, "f" * 64) as checkpoints:
    checkpoints.save(1, state, 0.1)
    for _ in range(20):
        state = add(state)
    checkpoints.save(2, state, 0.5)
about = [hosts.is_first(), checkpoints.steps()]
say([said, heard, answers, gathered.tolist(), about, [rows.tolist(), placed, counts]])
"""
)
RESTORE = (
    STATE
    + """
like = spread(2)
with Checkpoints(files, "f" * 64) as checkpoints:
    first, (newest, state) = checkpoints.restore(1, like), checkpoints.restore_newest(like)
later = like
for _ in range(20):
    later = {name: x + 1 for name, x in later.items()}
same = equal(first, like), equal(state, later)
parts = {shard.data.shape for shard in state["w"].addressable_shards}
say([newest, same, state["w"].sharding == like["w"].sharding, sorted(parts)])
"""
)
DAMAGED = (
    STATE
    + """
like = spread(2)
with Checkpoints(files, "f" * 64) as checkpoints:
    read = checkpoints._reader.restore
    def unreadable(where, args):
        # The disk of one process alone fails, and for one step.
        if process == 1 and where.name == "3":
            raise OSError("no such disk")
        return read(where, args=args)
    checkpoints.save(3, like, 0.3)
    checkpoints._reader.restore = unreadable
    newest, state = checkpoints.restore_newest(like)
    checkpoints.save(3, state, 0.3)
say([newest, equal(state, like), checkpoints.steps()])
"""
)
IN_TURN = """
import json
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jtransformer.training.hosts import in_turn

mesh = Mesh(np.array(jax.devices()), ("data",))
long = jax.jit(lambda x: jax.lax.fori_loop(0, 10**7, lambda _, x: x * 0.5 + 1, x))
x = jax.device_put(jnp.ones(2), NamedSharding(mesh, P("data")))
long(x).block_until_ready()
print(json.dumps([long(x).is_ready(), in_turn(long(x)).is_ready()]))
"""


def test_a_process_by_itself_meets_nobody():
    assert is_first() and said_by_all([1]) == [[1]] and told(lambda: "x") == "x"
    asked = iter([False, True])
    ask = Agreed(lambda: next(asked))
    assert [ask(), ask()] == [False, True]
    np.testing.assert_array_equal(whole(jax.numpy.arange(3)), [0, 1, 2])
    alone = arrange(Layout(fsdp=1))
    assert share_of(None) == share_of(alone, microbatches=4) == Share()


def test_programs_of_several_cpu_devices_run_one_after_another():
    """Side by side, updates of a mesh of two devices on two cores waited for each other."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [False, True]


def test_a_question_of_every_step_is_one_program():
    some = _Some()
    assert [bool(some(flag)) for flag in (False, True, False)] == [False, True, False]
    assert some._any._cache_size() == 1


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What four processes have saved, and said."""
    folder = tmp_path_factory.mktemp("saved")
    return folder, several_processes.run(SAVE, folder, 4, 2)


@pytest.mark.slow
def test_processes_hear_one_another_and_agree(saved):
    for process, (said, heard, answers, gathered, about, _) in enumerate(saved[1]):
        assert said == [{"process": n} for n in range(4)]
        assert heard == ["é" * 300, 0]
        # Process 1 says yes at its third question; all of them hear it two questions later.
        assert answers == [False] * 4 + [True] * 2
        np.testing.assert_array_equal(np.float32(gathered), NUMBERS["w"])
        assert about == [process == 0, [1, 2]]


@pytest.mark.slow
def test_rows_come_to_their_places_wherever_the_devices_of_a_process_stand(saved):
    for process, (*_, (rows, placed, counts)) in enumerate(saved[1]):
        assert rows == [
            n if n < 13 else -1 for b in (process, process + 4) for n in (2 * b, 2 * b + 1)
        ]
        assert counts == [2, 4]
        for n, found in enumerate(placed):
            assert found == [row + 100 * n for row in range(13)] + [0] * 3


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "devices"), [(1, 8), (2, 1)])
def test_four_processes_save_and_another_number_restores(saved, tmp_path, processes, devices):
    """The arrays are those of before the donated buffers were used again."""
    shutil.copytree(saved[0] / "run", tmp_path / "run")
    total = processes * devices
    for found in several_processes.run(RESTORE, tmp_path, processes, devices):
        assert found == [2, [True, True], True, [[8, 8 // (total // 2)]]]


@pytest.mark.slow
def test_four_processes_save_and_one_device_restores(saved, tmp_path):
    shutil.copytree(saved[0] / "run", tmp_path / "run")
    place = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("a",)), PartitionSpec())
    for like in (NUMBERS, jax.device_put(NUMBERS), jax.device_put(NUMBERS, place)):
        with Checkpoints(records.RunFiles(tmp_path / "run"), "f" * 64) as checkpoints:
            state = checkpoints.restore(1, like)
        jax.tree.map(np.testing.assert_array_equal, state, NUMBERS)


@pytest.mark.slow
def test_a_step_that_one_process_cannot_read_is_set_aside_by_all(saved, tmp_path):
    shutil.copytree(saved[0] / "run", tmp_path / "run")
    files = records.RunFiles(tmp_path / "run")
    stored = [path for path in (files.checkpoints / "2/state").rglob("*") if path.is_file()]
    path = max(stored, key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    for found in several_processes.run(DAMAGED, tmp_path, 2, 2):
        assert found == [1, True, [1, 3]]
    events = records.read_rows(files.events)
    assert [event["step"] for event in events] == [3, 2]
    assert "no such disk" in events[0]["reason"]
