"""Tests that a run starts with what it takes over from another one, and with nothing else of it."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest
import tiny_run
from meshed import in_eight_devices

from jtransformer import records
from jtransformer.interop.mapping import flat
from jtransformer.modules import unstack_layers
from jtransformer.spec import Characters, SpecError
from jtransformer.training import (
    Checkpoints,
    Execution,
    Hooks,
    Interrupted,
    Trainer,
    parameter_key,
    read_start,
)

PROGRAMS, COMPILED = {}, {}
VMAP = Execution(mode="vmap", runs_at_once=3)
FFN = {"layer_0/ffn/in/kernel", "layer_0/ffn/out/kernel"}


def trainer(spec, **hooks):
    fresh = Trainer(Hooks(**hooks))
    fresh._programs, fresh._compiled = PROGRAMS, COMPILED
    tiny_run.program(spec, PROGRAMS)
    return fresh


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A trained run, and its directory."""
    folder = tmp_path_factory.mktemp("source")
    spec = tiny_run.run_spec(folder, steps=4, evaluate_every=4, checkpoint_every=4)
    trainer(spec).train(spec, folder / "run")
    return spec, folder / "run"


@pytest.fixture(scope="module")
def base(source):
    return dataclasses.replace(source[0], start_from=str(source[1]), seed=7)


def with_model(spec, **changes):
    return dataclasses.replace(spec, model=dataclasses.replace(spec.model, **changes))


def state_at(spec, directory, step=None):
    """The state in the newest checkpoint of a run, or of a step."""
    start = tiny_run.program(spec, PROGRAMS).start(parameter_key(spec.seed))
    identity = records.read_json(records.RunFiles(directory).spec)["fingerprint"]
    with Checkpoints(records.RunFiles(directory), identity) as saved:
        return saved.restore(saved.steps()[-1] if step is None else step, start)


def begun(spec, directory):
    """The first state of a run, which is stopped before its first update."""
    with pytest.raises(Interrupted):
        trainer(spec, should_stop=lambda: True).train(spec, directory)
    return state_at(spec, directory, 0)


def drawn(spec):
    return tiny_run.program(spec, PROGRAMS).start(parameter_key(spec.seed))


def by_path(parameters):
    return {path: np.asarray(leaf) for path, leaf in flat(parameters).items()}


def assert_taken(found, there, anew, new):
    """Every parameter is that of the source, but for the new ones, which are drawn."""
    assert found.keys() == anew.keys()
    for path, value in found.items():
        np.testing.assert_array_equal(value, (anew if path in new else there)[path], path)


def start_of(directory):
    return records.read_json(records.RunFiles(directory).spec)["start"]


def test_value_all_parameters_are_those_of_the_newest_checkpoint(source, base, tmp_path):
    state, there = begun(base, tmp_path / "run"), by_path(state_at(*source).parameters)
    assert_taken(by_path(state.parameters), there, by_path(drawn(base).parameters), set())
    trained = by_path(drawn(source[0]).parameters)
    assert not np.array_equal(there["embedding/table"], trained["embedding/table"])
    # The optimizer and its step begin anew.
    assert int(state.step) == 0
    for leaf in jax.tree.leaves(state.optimizer):
        assert not np.asarray(leaf).any()
    start = start_of(tmp_path / "run")
    assert start["parameters"] == {"taken": len(there), "all": len(there)}
    assert (start["new"], start["left"]) == ({}, [])


def test_value_a_wider_arm_takes_the_rest_and_draws_what_is_new(source, base, tmp_path):
    spec = with_model(base, ffn_width=48)
    state, there = begun(spec, tmp_path / "run"), by_path(state_at(*source).parameters)
    assert_taken(by_path(state.parameters), there, by_path(drawn(spec).parameters), FFN)
    start = start_of(tmp_path / "run")
    assert start["new"] == {
        "layer_0/ffn/in/kernel": "of shape 16x32 there instead of 16x48",
        "layer_0/ffn/out/kernel": "of shape 32x16 there instead of 48x16",
    }
    assert start["left"] == sorted(FFN)
    numbers = sum(value.size for value in by_path(state.parameters).values())
    assert start["numbers"] == {"taken": numbers - 2 * 16 * 48, "all": numbers}
    sentence = records.taken_sentence(start)
    assert sentence.startswith(f"{len(there) - 2} of {len(there)} parameters, ")
    assert "layer_*/ffn/in/kernel (of shape 16x32 there instead of 16x48)" in sentence


def test_value_stacked_layers_take_those_of_a_loop_and_draw_what_is_deeper(source, base, tmp_path):
    deep = with_model(base, scan_layers=True, layers=2)
    found = begun(deep, tmp_path / "run").parameters
    there = by_path(state_at(*source).parameters)
    found, anew = (
        by_path(unstack_layers(deep.model, {"params": tree})["params"])
        for tree in (found, drawn(deep).parameters)
    )
    new = {path for path in found if path.startswith("layer_1/")}
    assert_taken(found, there, anew, new)
    start = start_of(tmp_path / "run")
    assert set(start["new"]) == new and set(start["new"].values()) == {"absent there"}
    # And back: the stacked run is what a looped one starts from.
    looped = dataclasses.replace(base, start_from=str(tmp_path / "run"))
    again = by_path(begun(looped, tmp_path / "looped").parameters)
    assert_taken(again, there, again, set())
    assert len(start_of(tmp_path / "looped")["left"]) == len(new)


@pytest.mark.slow
def test_value_a_mean_begins_with_what_is_taken(source, base, tmp_path):
    training = dataclasses.replace(base.training, average_decay=0.9)
    spec = dataclasses.replace(base, training=training)
    state = begun(spec, tmp_path / "run")
    jax.tree.map(np.testing.assert_array_equal, state.average, state_at(*source).parameters)
    # A run with a mean passes that on: it is what its loss is of.
    trainer(spec).train(spec, tmp_path / "run")
    given = read_start(str(tmp_path / "run")).values
    mean = by_path(state_at(spec, tmp_path / "run").average)
    assert_taken(given, mean, given, set())


def test_law_the_identity_follows_the_content_and_no_name(source, base, tmp_path):
    moved = shutil.copytree(source[1], tmp_path / "moved")
    same = dataclasses.replace(base, start_from=str(moved))
    assert Trainer().identify(same) == Trainer().identify(base)
    other = dataclasses.replace(base, start_from=None)
    found = {Trainer().identify(base), Trainer().identify(other)}
    trainer(other).train(other, tmp_path / "other")
    found.add(Trainer().identify(dataclasses.replace(base, start_from=str(tmp_path / "other"))))
    assert len(found) == 3


@pytest.mark.parametrize("updates", [0, 2])
def test_law_a_run_that_is_resumed_starts_once(base, updates, tmp_path):
    trainer(base).train(base, tmp_path / "whole")
    with pytest.raises(Interrupted):
        stop = tiny_run.stop_after(updates)
        trainer(base, should_stop=stop).train(base, tmp_path / "cut")
    trainer(base).train(base, tmp_path / "cut")
    assert tiny_run.deterministic(tmp_path / "cut") == tiny_run.deterministic(tmp_path / "whole")


@pytest.mark.slow
def test_law_runs_in_lockstep_start_with_the_same_values(source, base, tmp_path):
    """Each is to the bit what it is without the others; one of them starts anew."""
    runs = {
        "a": base,
        "b": dataclasses.replace(base, seed=8),
        "anew": dataclasses.replace(base, start_from=None),
    }
    cells = [(spec, tmp_path / name) for name, spec in runs.items()]
    assert [one.error for one in trainer(base).train_group(cells, VMAP)] == [None] * 3
    for name, spec in runs.items():
        list(trainer(base).train_group([(spec, tmp_path / f"{name}-alone")], VMAP))
        alone = tiny_run.deterministic(tmp_path / f"{name}-alone")
        assert tiny_run.deterministic(tmp_path / name) == alone
    pairing = [tiny_run.deterministic(tmp_path / name)[0]["pairing"]["initial"] for name in runs]
    assert pairing[0] == pairing[1]
    assert all("taken over" in one["initialiser"] for one in pairing[0].values())
    # What is drawn and what is taken are not compared.
    table = [one["embedding/table"]["initialiser"] for one in pairing]
    assert table[0] != table[2]


def refusal(spec, path):
    with pytest.raises((SpecError, records.DamagedRecord)) as caught:
        trainer(spec).taken_over(dataclasses.replace(spec, start_from=str(path)))
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    return str(caught.value)


def test_error_what_cannot_be_started_from(source, base, tmp_path):
    assert "holds neither a run" in refusal(base, tmp_path / "nothing")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.json").write_text("{}")
    assert "name one of its runs" in refusal(base, tmp_path / "sweep")
    empty = shutil.copytree(source[1], tmp_path / "empty")
    shutil.rmtree(empty / "checkpoints")
    assert "no checkpoint yet" in refusal(base, empty)
    torn = shutil.copytree(source[1], tmp_path / "torn")
    (torn / "spec.json").write_text('{"spec": {}}')
    assert "is damaged" in refusal(base, torn)
    flipped = shutil.copytree(source[1], tmp_path / "flipped")
    # What it says of its arrays is read before them; tests of checkpoints flip each of its bytes.
    (about,) = (flipped / "checkpoints").glob("*/about/metadata")
    about.write_text(about.read_text().replace("float32", "float23", 1))
    assert "is damaged" in refusal(base, flipped)
    with pytest.raises(SpecError, match="is empty"):
        dataclasses.replace(base, start_from="")


def test_error_nothing_fits_or_ids_are_others(source, base):
    narrow = with_model(base, width=24, heads=3, ffn_width=20)
    assert "nothing that the model could take" in refusal(narrow, source[1])
    data = dataclasses.replace(base.data, tokenizer=Characters())
    letters = dataclasses.replace(base, data=data)
    assert "has another tokenizer" in refusal(letters, source[1])
    # Where no parameter of ids is taken, they may be others.
    fewer = with_model(letters, vocabulary=64)
    start = trainer(fewer).taken_over(fewer)
    assert set(start["new"]) == {"embedding/table"}


def test_sentence_says_that_arms_start_unequally():
    whole = {"sha256": "a", "numbers": {"taken": 8, "all": 8}, "new": {}, "left": []}
    part = whole | {"numbers": {"taken": 6, "all": 8}, "new": {"x": "absent there"}}
    assert records.unequal_starts({"a": whole, "b": whole}) is None
    assert records.unequal_starts({"a": None, "b": None}) is None
    assert "a 100 %, b 75.0 %" in str(records.unequal_starts({"a": whole, "b": part}))
    assert "a 100 %, b 0 %" in str(records.unequal_starts({"a": whole, "b": None}))
    for change in ({"sha256": "b"}, {"left": ["layer_3/ffn/in/kernel"]}):
        assert records.unequal_starts({"a": whole, "b": whole | change}) is not None


def test_null_a_run_without_a_start_says_nothing_of_one(source):
    assert trainer(source[0]).taken_over(source[0]) is None
    assert "start" not in records.read_json(records.RunFiles(source[1]).spec)


@pytest.mark.slow
def test_law_every_mode_of_execution_starts_with_the_same_bits(tmp_path):
    """Over a mesh, by pmap, spread over devices; a stack of which one layer is taken."""
    found = in_eight_devices("mesh_starts.py", str(tmp_path))
    loop = found.pop("loop")
    origins = [origin for _, origin in loop["initial"].values()]
    assert sum("layers [0]" in origin for origin in origins) == len(loop["start"]["new"])
    assert set(found) == {"mesh", "pmap", "spread"}
    for mode, other in found.items():
        assert other["initial"] == loop["initial"], mode
        assert other["start"] == loop["start"], mode
        np.testing.assert_allclose(other["losses"], loop["losses"], rtol=1e-5, err_msg=mode)
