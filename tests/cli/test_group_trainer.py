"""Tests that workers train runs of one program together, in the mode that was chosen first."""

import dataclasses
import hashlib
import json
import shutil

import pytest
import tiny_run
from plan_fixture import ABOUT, plan_of

from jtransformer import data, records
from jtransformer.cli.group_trainer import GroupTrainer
from jtransformer.spec import SpecError, to_tree
from jtransformer.sweep import Launch, Worker, cell_spec, executions, manifest
from jtransformer.sweep.launch import MODES as MODES_OF_A_LAUNCH
from jtransformer.sweep.launch import TURNS
from jtransformer.training import MODES, Hooks, Interrupted, program_key
from jtransformer.training.execution import LOCKSTEP

PROGRAMS, COMPILED = {}, {}
VMAP = Launch(mode="vmap", runs_at_once=3)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Four runs of one program and four of another."""
    spec = tiny_run.run_spec(tmp_path_factory.mktemp("text"), steps=6)
    sha256 = data.load(spec.data).sha256
    plan = plan_of(
        {"model.ffn": ("relu", "gelu")},
        tree=to_tree(spec, all_kinds=True),
        data_sha256=lambda spec: sha256,
        nuisance={"optimizer.learning_rate": (1e-2, 3e-2)},
        seeds=(0, 1),
    )
    for arm in plan.arms:
        tiny_run.program(arm.spec, PROGRAMS)
    return manifest(plan, ABOUT)


def work(sweep, workdir, launch, should_stop=lambda: False):
    """Lets a worker work; returns whether it came to the end, and what ended."""
    ended = []
    worker = Worker(f"worker-{launch.identity}", workdir, sweep, launch)
    hooks = Hooks(
        should_stop=should_stop, guard=worker.guard, accept_environment=launch.accept_environment
    )
    trainer = GroupTrainer(hooks, launch)
    trainer._trainer._programs, trainer._trainer._compiled = PROGRAMS, COMPILED
    complete = worker.work(
        trainer,
        on_done=lambda cell, state: ended.append((cell["directory"], state)),
        should_stop=should_stop,
    )
    return complete, sorted(ended)


def results(sweep, workdir):
    return [
        records.load_run(workdir / cell["directory"], cell).status["result"]
        for cell in sweep["cells"]
    ]


@pytest.fixture(scope="module")
def together(sweep, tmp_path_factory):
    """The sweep, three runs at a time, undisturbed."""
    workdir = tmp_path_factory.mktemp("together")
    assert work(sweep, workdir, VMAP)[0]
    return workdir


def test_every_run_ends_and_the_execution_is_kept(sweep, together):
    for cell in sweep["cells"]:
        files = records.RunFiles(together / cell["directory"])
        assert records.read_json(files.status)["state"] == "done"
        assert records.read_json(files.environment)["mode"] == "vmap, 3 runs"
        assert records.read_json(files.claims / "1.json")["released"] is True
    chosen = executions(together)
    assert len(chosen) == 2
    for one in chosen.values():
        assert (one["mode"], one["runs_at_once"], one["steps_per_dispatch"]) == ("vmap", 3, 1)


def test_interrupted_and_continued_by_a_launch_that_says_nothing_it_ends_the_same(
    sweep, together, tmp_path
):
    asked = iter(range(10**9))
    with pytest.raises(Interrupted):
        work(sweep, tmp_path, VMAP, should_stop=lambda: next(asked) >= 24)
    assert executions(tmp_path) == executions(together)
    assert work(sweep, tmp_path, Launch())[0]
    assert results(sweep, tmp_path) == results(sweep, together)


def test_a_run_that_fails_is_recorded_and_takes_no_other_with_it(sweep, together, tmp_path):
    bad = sweep["cells"][1]["directory"]
    (tmp_path / bad).mkdir(parents=True)
    (tmp_path / bad / "checkpoints").write_text("in the way")
    complete, ended = work(sweep, tmp_path, VMAP)
    assert complete and dict(ended)[bad] == "failed" and len(ended) == 8
    failure = records.read_json(tmp_path / bad / "failure.json")
    assert failure["error"].startswith("FileExistsError") and failure["attempts"] == 1
    (tmp_path / bad / "checkpoints").unlink()
    assert work(sweep, tmp_path, Launch())[0]
    assert results(sweep, tmp_path) == results(sweep, together)


def test_another_mode_is_refused_unless_accepted(sweep, together, tmp_path):
    shutil.copytree(together, tmp_path / "copy")
    last = records.RunFiles(tmp_path / "copy" / sweep["cells"][-1]["directory"])
    last.status.unlink()
    for launch in (Launch(mode="loop"), Launch(runs_at_once=2), Launch(steps_per_dispatch=5)):
        with pytest.raises(SpecError, match="^--.* runs of the same program were begun with"):
            work(sweep, tmp_path / "copy", launch)
    assert work(sweep, tmp_path / "copy", Launch(mode="loop", accept_environment=True))[0]
    modes = [one["mode"] for one in executions(tmp_path / "copy").values()]
    assert sorted(modes) == ["loop", "vmap"]


def test_workers_share_the_runs_of_a_program(sweep, tmp_path):
    """Four workers and two programs of four runs each: two runs at once for everyone."""
    work(sweep, tmp_path, Launch(mode="vmap", workers=4))
    assert [one["runs_at_once"] for one in executions(tmp_path).values()] == [2, 2]


def test_a_launch_may_wish_for_what_there_is():
    assert MODES_OF_A_LAUNCH == ("auto", *MODES)
    assert {*TURNS} == {*MODES} - {*LOCKSTEP}
    for wish in (dict(mode="pjit"), dict(runs_at_once=0), dict(steps_per_dispatch=0)):
        with pytest.raises(SpecError, match=f"^--{next(iter(wish))} "):
            Launch(**wish)
    with pytest.raises(SpecError, match="^--runs_at_once = 2 has no meaning for --mode loop"):
        Launch(mode="loop", runs_at_once=2)


def test_null_what_is_probed_moves_no_run_to_another_group(sweep):
    """The modes of groups that were chosen before there were such fields are found again."""
    trainer, spec = GroupTrainer(Hooks(), Launch()), cell_spec(sweep, sweep["cells"][0])
    probed = dataclasses.replace(spec.training, probe_steps=(0, 6))
    group = trainer.group_of(spec)
    assert trainer.group_of(dataclasses.replace(spec, training=probed)) == group
    tree = to_tree(program_key(spec))
    assert tree["training"].pop("probe_steps") == []
    assert tree.pop("start_from") is None
    for part, name in (
        (tree["training"], "microbatches"),
        (tree["loss"], "chunk"),
        (tree["model"], "precision"),
        (tree["model"], "first_norm"),
        (tree["model"]["head"]["tokens"], "transform_bias"),
    ):
        del part[name]
    before = hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
    assert before.startswith(group) and len(group) == 16
