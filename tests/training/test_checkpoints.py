"""Tests for jtransformer.training.checkpoints: kept, refused, damaged, on real files."""

import hashlib
import json
import math
import shutil
import subprocess
import sys
import textwrap
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer import records
from jtransformer.spec import SpecError
from jtransformer.training import Checkpoints, digest

# Random numbers, so that what is stored is not compressed to something that has a checksum.
WEIGHTS = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
STATE = {"w": jnp.asarray(WEIGHTS), "count": jnp.array(3, jnp.int32)}


def state_at(step):
    return jax.tree.map(lambda leaf: leaf + step, STATE)


def files_in(directory):
    files = records.RunFiles(directory)
    files.directory.mkdir(parents=True, exist_ok=True)
    return files


# orbax abandons the other reads of a step when one of them fails; what they would have reported
# to an event loop that is closed by then is no concern of ours.
ABANDONED_READS = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def saved(directory, losses, fingerprint="f" * 64):
    files = files_in(directory)
    with Checkpoints(files, fingerprint) as checkpoints:
        for step, loss in losses.items():
            checkpoints.save(step, state_at(step), loss)
    return files


def newest(files, fingerprint="f" * 64):
    with Checkpoints(files, fingerprint) as checkpoints:
        return checkpoints.restore_newest(STATE)


def flip_a_byte(files, step):
    """Changes one byte of the stored numbers, as a failing disk would."""
    stored = [
        path for path in (files.checkpoints / str(step) / "state").rglob("*") if path.is_file()
    ]
    path = max(stored, key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def test_newest_and_best_are_both_kept(tmp_path):
    files = saved(tmp_path, {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0})
    with Checkpoints(files, "f" * 64) as checkpoints:
        assert checkpoints.steps() == [1, 3, 4]
        assert checkpoints.best_step() == 1


def test_nan_is_never_the_best(tmp_path):
    files = saved(tmp_path, {1: 1.0, 2: math.nan, 3: None, 4: 2.0})
    with Checkpoints(files, "f" * 64) as checkpoints:
        assert checkpoints.best_step() == 1 and 1 in checkpoints.steps()


def test_restores_the_newest_bit_for_bit(tmp_path):
    step, state = newest(saved(tmp_path, {1: 1.0, 2: 2.0}))
    assert step == 2
    jax.tree.map(np.testing.assert_array_equal, state, jax.device_get(state_at(2)))
    assert jax.tree.map(lambda leaf: leaf.dtype, state) == jax.tree.map(lambda x: x.dtype, STATE)


def test_nothing_saved_restores_nothing(tmp_path):
    assert newest(files_in(tmp_path)) is None


def test_state_is_copied_before_save_returns(tmp_path):
    files = files_in(tmp_path)
    add = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), donate_argnums=0)
    with Checkpoints(files, "f" * 64) as checkpoints:
        state = jax.tree.map(jnp.copy, STATE)
        checkpoints.save(1, state, 1.0)
        for _ in range(20):
            state = add(state)
    np.testing.assert_array_equal(newest(files)[1]["w"], STATE["w"])


@ABANDONED_READS
@pytest.mark.parametrize(
    "damage",
    [
        flip_a_byte,
        lambda files, step: (files.checkpoints / str(step) / "state/_METADATA").write_text("{"),
        lambda files, step: (files.checkpoints / str(step) / "about/metadata").write_text("gone"),
        lambda files, step: (files.checkpoints / str(step) / "metrics/metrics").write_text("!"),
        lambda files, step: (files.checkpoints / str(step) / "state/manifest.ocdbt").unlink(),
    ],
    ids=["flipped byte", "metadata", "about", "metrics", "manifest"],
)
def test_a_damaged_newest_falls_back_loudly(tmp_path, caplog, damage):
    files = saved(tmp_path, {1: 1.0, 2: 2.0, 3: 3.0})
    damage(files, 3)
    step, state = newest(files)
    assert step == 2
    np.testing.assert_array_equal(state["w"], state_at(2)["w"])
    assert "3 is damaged" in caplog.text
    assert records.read_rows(files.events)[0]["step"] == 3
    # The step can be saved again, and what was damaged is still there to be looked at.
    with Checkpoints(files, "f" * 64) as checkpoints:
        checkpoints.save(3, state_at(3), 3.0)
    assert newest(files)[0] == 3
    assert (tmp_path / "damaged_checkpoints/3").exists()


@ABANDONED_READS
@pytest.mark.parametrize(
    "damage",
    [
        flip_a_byte,
        lambda files, step: (files.checkpoints / str(step) / "about/metadata").write_text("[]"),
        lambda files, step: shutil.rmtree(files.checkpoints / str(step) / "state"),
    ],
    ids=["flipped byte", "about", "state"],
)
def test_error_a_damaged_step_is_one_kind_of_error(tmp_path, damage):
    """What reads one step, such as `evaluate`, says so in a sentence, whatever orbax raises."""
    files = saved(tmp_path, {1: 1.0})
    damage(files, 1)
    with Checkpoints(files, "f" * 64) as checkpoints, pytest.raises(ValueError, match="Error: "):
        checkpoints.restore(1, STATE)


@ABANDONED_READS
def test_a_flipped_byte_anywhere_is_never_restored_silently(tmp_path):
    files = saved(tmp_path / "good", {1: 1.0, 2: 2.0})
    for path in sorted(files.checkpoints.glob("2/state/**/*")):
        if not path.is_file() or not path.stat().st_size:
            continue
        copy = records.RunFiles(tmp_path / "bad")
        shutil.rmtree(copy.directory, ignore_errors=True)
        shutil.copytree(files.directory, copy.directory)
        damaged = copy.directory / path.relative_to(files.directory)
        content = bytearray(damaged.read_bytes())
        content[3 * len(content) // 4] ^= 0xFF
        damaged.write_bytes(bytes(content))
        step, state = newest(copy)
        np.testing.assert_array_equal(state["w"], state_at(step)["w"], err_msg=str(path))


def as_before(files, step, state):
    """Gives a step the digests that earlier versions wrote: hashes of whole arrays."""
    path = files.checkpoints / str(step) / "about/metadata"
    about = records.read_json(path)
    about.pop("digest")
    for name, leaf in about["leaves"].items():
        leaf["digest"] = digest(state[name.strip("[]'")])
    text = json.dumps(about, sort_keys=True).encode()
    path.write_text(json.dumps(about | {"digest": hashlib.sha256(text).hexdigest()}))


@ABANDONED_READS
def test_a_checkpoint_of_an_earlier_version_is_read_and_checked(tmp_path):
    files = saved(tmp_path, {1: 1.0, 2: 2.0})
    as_before(files, 2, state_at(2))
    step, state = newest(files)
    assert step == 2
    np.testing.assert_array_equal(state["w"], state_at(2)["w"])
    as_before(files, 2, state_at(3))
    assert newest(files)[0] == 1


@ABANDONED_READS
def test_all_damaged_starts_again(tmp_path):
    files = saved(tmp_path, {1: 1.0, 2: 2.0})
    for step in (1, 2):
        flip_a_byte(files, step)
    assert newest(files) is None


def test_another_fingerprint_is_refused_not_skipped(tmp_path):
    files = saved(tmp_path, {1: 1.0, 2: 2.0})
    with pytest.raises(SpecError, match="belongs to another run .*ffffffff.*eeeeeeee"):
        newest(files, "e" * 64)
    assert newest(files)[0] == 2


@pytest.mark.parametrize(
    ("like", "problem"),
    [
        ({"w": STATE["w"]}, r"\['count'\]: int32\[\] saved, nothing expected"),
        (STATE | {"extra": jnp.zeros(2)}, r"\['extra'\]: nothing saved, float32\[2\] expected"),
        (STATE | {"w": jnp.zeros((32, 64))}, r"float32\[64, 32\] saved, float32\[32, 64\] exp"),
        (STATE | {"w": STATE["w"].astype(jnp.bfloat16)}, r"float32\[64, 32\] saved, bfloat16"),
    ],
    ids=["fewer", "more", "shape", "dtype"],
)
def test_another_tree_is_never_restored(tmp_path, like, problem):
    files = saved(tmp_path, {1: 1.0})
    with Checkpoints(files, "f" * 64) as checkpoints:
        for restore in (
            lambda: checkpoints.restore(1, like),
            lambda: checkpoints.restore_newest(like),
        ):
            with pytest.raises(SpecError, match=problem):
                restore()


def test_a_missing_step_names_those_that_exist(tmp_path):
    files = saved(tmp_path, {10: 1.0})
    with (
        Checkpoints(files, "f" * 64) as checkpoints,
        pytest.raises(FileNotFoundError, match=r"no step 999; it has \[10\]"),
    ):
        checkpoints.restore(999, STATE)


def test_a_process_that_dies_while_saving_leaves_the_step_before(tmp_path):
    files = saved(tmp_path, {1: 1.0})
    script = textwrap.dedent(
        """
        import os, sys, pathlib, jax.numpy as jnp
        from jtransformer import records
        from jtransformer.training import Checkpoints
        checkpoints = Checkpoints(records.RunFiles(pathlib.Path(sys.argv[1])), "f" * 64)
        checkpoints.save(2, {"w": jnp.ones((4096, 4096)), "count": jnp.array(1)}, 0.5)
        os._exit(0)
        """
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)
    step, state = newest(files)
    assert step == 1
    np.testing.assert_array_equal(state["w"], state_at(1)["w"])


def test_what_eight_devices_saved_is_restored_on_one(tmp_path):
    """CKPT-05: a restored array belongs to no device, so that their number is nobody's concern."""
    script = textwrap.dedent(
        """
        import os, sys, pathlib
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
        import jax, jax.numpy as jnp
        from jtransformer import records
        from jtransformer.training import Checkpoints
        mesh = jax.make_mesh((8,), ("data",))
        over_all = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        numbers = jax.device_put(jnp.arange(16), over_all)
        assert len(numbers.sharding.device_set) == 8
        with Checkpoints(records.RunFiles(pathlib.Path(sys.argv[1])), "f" * 64) as checkpoints:
            checkpoints.save(1, {"numbers": numbers}, 0.5)
        """
    )
    files = files_in(tmp_path)
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)
    with Checkpoints(files, "f" * 64) as checkpoints:
        step, state = checkpoints.restore_newest({"numbers": jnp.zeros(16, jnp.int32)})
    assert step == 1 and state["numbers"].tolist() == list(range(16))


def test_a_file_in_the_way_fails_at_once_and_leaves_no_thread(tmp_path):
    files = files_in(tmp_path)
    files.checkpoints.write_text("")
    before = threading.active_count()
    with pytest.raises(FileExistsError):
        Checkpoints(files, "f" * 64)
    assert threading.active_count() == before
