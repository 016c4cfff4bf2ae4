"""Tests for the identity of a run."""

import dataclasses
import hashlib
import json
import types
import typing

import pytest

from jtransformer.spec import (
    Constant,
    DataSpec,
    Learned,
    ModelSpec,
    NoPosition,
    OptimizerSpec,
    RMSNorm,
    RunSpec,
    TextFile,
    fingerprint,
    from_tree,
    get,
    replace,
    to_tree,
)

SHA = "ab" * 32
# Together they read every setting of every kind.
BASES = (
    RunSpec(),
    RunSpec(
        model=ModelSpec(norm=RMSNorm(), position=Learned(max_length=200)),
        data=DataSpec(source=TextFile(path="text")),
        schedule=Constant(warmup_steps=10),
    ),
    RunSpec(model=ModelSpec(position=NoPosition()), optimizer=OptimizerSpec(gradient_clip=None)),
)


def identity(run, sha=SHA, schema=1):
    return fingerprint(run, sha, schema)


def leaves(spec, prefix=""):
    """Yields the class, path and hint of every field below a spec that is no spec itself."""
    for name, hint in typing.get_type_hints(type(spec)).items():
        if typing.get_origin(hint) is typing.ClassVar:
            continue
        value = getattr(spec, name)
        if not dataclasses.is_dataclass(value):
            yield type(spec), prefix + name, hint
        elif isinstance(hint, types.UnionType):
            yield from leaves(value, f"{prefix}{name}.{value.kind}.")
        else:
            yield from leaves(value, f"{prefix}{name}.")


def others(value, hint):
    if typing.get_origin(hint) is typing.Literal:
        return [one for one in typing.get_args(hint) if one != value]
    if isinstance(value, bool):
        return [not value]
    if value is None:
        return [1.0]
    if isinstance(value, int):
        return [2 * value or 1]
    return [value * 0.875 or 0.125]


def test_live_every_field_changes_the_identity():
    seen = {identity(base) for base in BASES}
    changes, fields = len(seen), set()
    for base in BASES:
        tree = to_tree(base)
        for cls, path, hint in leaves(base):
            fields.add((cls, path.rpartition(".")[2]))
            if cls is TextFile:
                continue
            for other in others(get(tree, path), hint):
                run = from_tree(replace(tree, {path: other}))
                assert get(to_tree(run), path) == other
                seen.add(identity(run))
                changes += 1
    # The bases differ in what they choose, so that no changed run equals another.
    assert len(seen) == changes
    classes = {cls for cls, _ in fields}
    assert {name for cls, name in fields if cls is ModelSpec} == {
        field.name for field in dataclasses.fields(ModelSpec)
    } - {"norm", "position"}
    assert {RMSNorm, Learned, Constant, TextFile, RunSpec, OptimizerSpec, DataSpec} <= classes


def test_live_every_kind_changes_the_identity():
    tree = to_tree(RunSpec())
    kinds = {
        "model.norm.kind": "rms_norm",
        "model.position.kind": "none",
        "schedule.kind": "constant",
    }
    trees = [json.loads(json.dumps(tree)) for _ in kinds]
    for one, (path, kind) in zip(trees, kinds.items(), strict=True):
        group = get(one, path.removesuffix(".kind"))
        group.clear()
        group["kind"] = kind
    assert len({identity(from_tree(one)) for one in (tree, *trees)}) == 4


def test_live_text_and_schema_change_the_identity():
    run = RunSpec()
    assert len({identity(run), identity(run, "cd" * 32), identity(run, schema=2)}) == 3


def test_null_what_must_not_change_the_identity():
    first, second = (
        RunSpec(data=DataSpec(source=TextFile(path=path))) for path in ("/a/text", "b/other name")
    )
    assert identity(first) == identity(second)
    # The same bytes are the same text, whoever holds them.
    assert identity(first) == identity(RunSpec())
    spelt = OptimizerSpec(learning_rate=1, weight_decay=-0.0, beta1=0, gradient_clip=2)
    same = OptimizerSpec(learning_rate=1.0, weight_decay=0.0, beta1=0.0, gradient_clip=2.0)
    assert identity(RunSpec(optimizer=spelt)) == identity(RunSpec(optimizer=same))


@pytest.mark.parametrize("base", BASES)
def test_null_order_of_names_and_unread_kinds(base):
    def reverse(tree):
        return {
            name: reverse(value) if isinstance(value, dict) else value
            for name, value in reversed(tree.items())
        }

    for tree in (to_tree(base), to_tree(base, all_kinds=True)):
        assert identity(from_tree(reverse(tree))) == identity(base)


def test_value_is_the_hash_of_the_canonical_tree():
    """Identities outlive versions: this one is written out by hand."""
    tree = {
        "model": {
            "vocabulary": 256, "width": 64, "layers": 2, "heads": 4, "norm_placement": "pre",
            "norm": {"kind": "layer_norm", "layer_norm": {"epsilon": 1e-05}}, "ffn": "gelu",
            "ffn_width": 256, "attention_bias": False, "ffn_bias": False,
            "position": {"kind": "sinusoidal"}, "scale_embedding": False, "tied_head": True,
            "initialization": "fan_in",
        },
        "data": {
            "source": {"sha256": SHA}, "length": 64, "validation_fraction": 0.02,
            "test_fraction": 0.02,
        },
        "optimizer": {
            "learning_rate": 0.003, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95,
            "epsilon": 1e-08, "gradient_clip": 1.0,
        },
        "schedule": {
            "kind": "warmup_cosine",
            "warmup_cosine": {"warmup_steps": 40, "final_fraction": 0.1},
        },
        "training": {
            "steps": 400, "batch_size": 16, "log_every": 20, "evaluate_every": 200,
            "checkpoint_every": 200, "evaluation_batch_size": 64,
        },
        "seed": 0,
    }  # fmt: skip
    text = json.dumps({"schema": 1, "spec": tree}, sort_keys=True)
    assert identity(RunSpec()) == hashlib.sha256(text.encode()).hexdigest()
