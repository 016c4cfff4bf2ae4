"""Tests for jtransformer.spec.tree."""

import copy
import dataclasses
import itertools
import json

import numpy as np
import pytest

from jtransformer.spec import (
    Constant,
    DataSpec,
    Kjv,
    LayerNorm,
    Learned,
    ModelSpec,
    NoPosition,
    RMSNorm,
    Rope,
    RunSpec,
    Sinusoidal,
    SpecError,
    TextFile,
    WarmupCosine,
    YarnScaling,
    differences,
    from_tree,
    get,
    nearest,
    prune,
    replace,
    to_tree,
    unread_settings,
)

CHOICES = list(
    itertools.product(
        (LayerNorm(epsilon=2e-5), RMSNorm(epsilon=3e-6)),
        (NoPosition(), Sinusoidal(), Learned(max_length=77)),
        (Kjv(), TextFile(path="~/Übung 1.txt")),
        (Constant(warmup_steps=3), WarmupCosine(warmup_steps=4, final_fraction=0)),
    )
)
UNREAD = {
    "model.norm.rms_norm.epsilon": (1e-6, 1e-5),
    "model.position.learned.max_length": (1024, 64),
    "data.source.text_file.path": ("", "text"),
    "schedule.constant.warmup_steps": (0, 40),
}


def run_of(norm, position, source, schedule):
    return RunSpec(
        model=ModelSpec(norm=norm, position=position),
        data=DataSpec(source=source),
        schedule=schedule,
        seed=5,
    )


def groups(tree, prefix=()):
    """Yields the path of every dict inside a tree, the tree itself first."""
    yield prefix
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from groups(value, (*prefix, name))


def at(tree, path):
    for name in path:
        tree = tree[name]
    return tree


def message(tree, **options):
    with pytest.raises(SpecError) as caught:
        from_tree(tree, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("all_kinds", [False, True])
def test_round_trip_of_every_kind(all_kinds):
    seen = set()
    for choice in CHOICES:
        run = run_of(*choice)
        tree = to_tree(run, all_kinds=all_kinds)
        before = copy.deepcopy(tree)
        assert from_tree(json.loads(json.dumps(tree))) == run
        assert from_tree(tree) == run and tree == before
        assert prune(tree) == to_tree(run)
        seen.add(run)
    assert len(seen) == 24


def test_a_tree_is_what_a_config_file_shows():
    run = RunSpec(model=ModelSpec(position=Learned(max_length=64)))
    assert to_tree(run)["model"]["position"] == {
        "kind": "learned",
        "learned": {"max_length": 64, "first": 0},
    }
    assert to_tree(run)["schedule"] == {
        "kind": "warmup_cosine",
        "warmup_cosine": {"warmup_steps": 40, "final_fraction": 0.1},
    }
    shown = to_tree(RunSpec(), all_kinds=True)
    position = shown["model"]["position"]
    assert position["kind"] == "sinusoidal" and position["learned"]["max_length"] == 1024
    # A choice inside a kind that is not chosen is shown as well.
    assert position["rope"]["scaling"]["yarn"]["original_length"] == 2048
    assert shown["data"]["source"]["text_file"] == {"path": ""}


def test_every_field_is_in_the_tree():
    tree = to_tree(RunSpec())
    for name in ("model", "data", "training", "optimizer"):
        part = getattr(RunSpec(), name)
        assert list(tree[name]) == [field.name for field in dataclasses.fields(part)]
    assert list(tree) == [field.name for field in dataclasses.fields(RunSpec)]


def test_missing_fields_take_their_defaults():
    assert from_tree({}) == RunSpec()
    assert from_tree({"model": {"width": 128}}).model == ModelSpec(width=128)
    chosen = from_tree({"model": {"position": {"kind": "learned"}}})
    assert chosen.model.position == Learned()


def test_error_unknown_names_at_every_depth_offer_the_nearest():
    tree = to_tree(RunSpec(), all_kinds=True)
    paths = list(groups(tree))
    assert () in paths and ("model", "position", "learned") in paths and len(paths) > 12
    for path in paths:
        for name in at(tree, path):
            broken = copy.deepcopy(tree)
            wrong = f"{name}x"
            at(broken, path)[wrong] = at(broken, path)[name]
            text = message(broken)
            assert text.startswith(".".join((*path, wrong)) + " is not a setting; "), text
            assert f"did you mean {name!r}?" in text
            with pytest.raises(SpecError, match=wrong):
                # A sweep reads pruned trees: that must not hide the misspelt name.
                unread_settings(broken)
                from_tree(prune(broken))


def test_error_a_setting_beside_its_kind_is_not_lost():
    """`position.max_length` for `position.learned.max_length` is the likeliest slip."""
    tree = to_tree(RunSpec(), all_kinds=True)
    tree["model"]["position"]["max_length"] = 64
    for given in (tree, prune(tree)):
        assert message(given).startswith("model.position.max_length is not a setting")


def test_settings_of_a_choice_within_a_choice():
    tree = to_tree(RunSpec(), all_kinds=True)
    inner = "model.position.rope.scaling"
    turned = replace(tree, {"model.position.kind": "rope"})
    for given, choice, kind in (
        (tree, "model.position", "rope"),
        (turned, inner, "yarn"),
    ):
        text = message(replace(given, {f"{inner}.yarn.factor": 3.0}))
        assert text.startswith(f"{inner}.yarn.factor = 3.0 would do nothing, because {choice}.kind")
        assert text.endswith(f"set {choice}.kind to {kind!r} or leave it out.")
    text = message(replace(tree, {f"{inner}.kind": "yarn"}))
    assert text.endswith("set model.position.kind to 'rope' or leave it out.")
    read = replace(turned, {f"{inner}.kind": "yarn", f"{inner}.yarn.factor": 3.0})
    run = from_tree(read, touched=frozenset([f"{inner}.yarn.factor"]))
    assert run.model.position == Rope(scaling=YarnScaling(factor=3.0))
    assert prune(read) == to_tree(run)


@pytest.mark.parametrize("value", [5, None, "learned", [], True, np.int64(5)])
def test_error_a_value_in_the_place_of_a_group(value):
    tree = to_tree(RunSpec(), all_kinds=True)
    for path in groups(tree):
        if not path:
            assert "must hold the settings of RunSpec" in message(value)
            continue
        broken = copy.deepcopy(tree)
        at(broken, path[:-1])[path[-1]] = value
        assert message(broken).startswith(".".join(path) + " must hold "), path


@pytest.mark.parametrize("kind", ["nonsense", None, 5, ["learned"], {}, True])
def test_error_kinds_are_listed(kind):
    tree = to_tree(RunSpec())
    tree["model"]["position"]["kind"] = kind
    assert message(tree) == (
        "model.position.kind must be one of none, sinusoidal, learned, rope, t5_bias, "
        f"relative_bias, alibi, shaw, got {kind!r}."
    )
    del tree["model"]["position"]["kind"]
    assert message(tree) == (
        "model.position.kind is missing; allowed: alibi, learned, none, relative_bias, rope, shaw, "
        "sinusoidal, t5_bias."
    )


def test_error_wrong_values_are_named_by_their_whole_path():
    tree = to_tree(RunSpec())
    for path, value in [
        ("model.norm.layer_norm.epsilon", 0),
        ("schedule.warmup_cosine.final_fraction", "half"),
        ("training.steps", 1e3),
        ("optimizer.gradient_clip", 0),
        ("model.heads", 5),
        ("seed", True),
    ]:
        assert message(replace(tree, {path: value})).startswith(f"{path} must ")


@pytest.mark.parametrize("path", UNREAD)
def test_settings_of_kinds_that_are_not_chosen(path):
    default, other = UNREAD[path]
    tree = to_tree(RunSpec(), all_kinds=True)
    assert get(tree, path) == default
    assert from_tree(tree) == RunSpec() and unread_settings(tree) == set()
    changed = replace(tree, {path: other})
    choice, kind, _ = path.rsplit(".", 2)
    assert unread_settings(changed) == {path}
    assert message(changed) == (
        f"{path} = {other!r} would do nothing, because {choice}.kind is "
        f"{get(tree, choice + '.kind')!r}; set {choice}.kind to {kind!r} or leave it out."
    )
    assert from_tree(prune(changed)) == RunSpec()
    assert "would do nothing" in message(tree, touched=frozenset([path]))
    read = replace(tree, {f"{choice}.kind": kind, path: other})
    assert from_tree(read, touched=frozenset([path])) != RunSpec()


def test_touched_settings_that_are_read_are_accepted():
    tree = to_tree(RunSpec(), all_kinds=True)
    touched = frozenset({"model.width", "model.norm.layer_norm.epsilon", "model.norm.kind", "seed"})
    assert from_tree(tree, touched=touched) == RunSpec()


def test_get():
    tree = to_tree(RunSpec())
    assert get(tree, "seed") == 0 and get(tree, "model.norm.layer_norm.epsilon") == 1e-5
    assert get(tree, "model.norm") is tree["model"]["norm"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("modle.width", "modle is not a setting; did you mean 'model'?"),
        ("model.widht", "model.widht is not a setting; did you mean 'width'?"),
        ("model.norm.layer_norm.eps", "model.norm.layer_norm.eps is not a setting"),
        ("model.width.x", "model.width.x is not a setting; model.width has a value, not parts."),
        ("", "'' is not a setting; allowed: data, loss, model"),
        ("model.", "model. is not a setting"),
        (".model", "'.model' is not a setting"),
    ],
)
def test_error_get_and_replace_name_the_path(path, text):
    tree = to_tree(RunSpec())
    for call in (lambda: get(tree, path), lambda: replace(tree, {path: 1})):
        with pytest.raises(SpecError) as caught:
            call()
        assert text in str(caught.value)


def test_replace_leaves_the_original_and_the_values_alone():
    tree = to_tree(RunSpec(), all_kinds=True)
    before = copy.deepcopy(tree)
    foreign = np.int64(8)
    new = replace(tree, {"model.heads": foreign, "seed": 3})
    assert tree == before
    assert new["model"]["heads"] is foreign and new["seed"] == 3
    assert differences(tree, new).keys() == {"model.heads", "seed"}
    # A value that JSON does not know is judged by `from_tree`, not by a traceback.
    assert "use a plain Python number" in message(replace(new, {"seed": 1}))
    assert replace(tree, {}) == tree and replace(tree, {}) is not tree


def test_error_replace_refuses_groups():
    with pytest.raises(SpecError, match="model.position is a group of settings.*kind"):
        replace(to_tree(RunSpec()), {"model.position": "learned"})


def test_differences():
    a, b = {"x": 1, "y": {"z": 1, "w": 2}, "v": None}, {"x": 1.0, "y": {"z": 1, "u": 3}, "v": None}
    assert differences(a, b) == {"x": (1, 1.0), "y.w": (2, None), "y.u": (None, 3)}
    assert differences(a, copy.deepcopy(a)) == {}
    assert differences({"x": {"y": 1}}, {"x": 1}) == {"x": ({"y": 1}, 1)}


def test_nearest():
    assert nearest("widht", ["width", "heads"]) == "did you mean 'width'? allowed: heads, width"
    assert nearest("zzz", ["width", "heads"]) == "allowed: heads, width"
    assert nearest("zzz", []) == "there are none here"
