"""Tests for the identity of a run."""

import dataclasses
import hashlib
import json

import pytest
from every_kind import HEADS, RUNS, fields_of, leaves, others, spec_classes

from jtransformer.spec import (
    AdamW,
    DataSpec,
    DotProduct,
    Layout,
    ModelSpec,
    OptimizerSpec,
    Rope,
    RunSpec,
    SpecError,
    TextFile,
    TokenHead,
    differences,
    fingerprint,
    from_tree,
    get,
    identity_tree,
    replace,
    to_tree,
)

SHA = "ab" * 32


START = "ef" * 32
PATHS = ("path", "start_from")
"""Fields that name what the identity has the content of."""


def identity(run, sha=SHA, schema=1, start=START):
    return fingerprint(run, sha, schema, None if run.start_from is None else start)


def test_live_every_field_changes_the_identity():
    """A value that other fields stand against is refused, with the path of a field."""
    seen = {identity(base) for base in RUNS}
    changes, told = len(seen), set()
    for base in RUNS:
        tree = to_tree(base)
        for cls, path, hint in leaves(base):
            name = path.rpartition(".")[2]
            if name in PATHS:
                continue
            for other in others(cls, name, get(tree, path), hint):
                try:
                    run = from_tree(replace(tree, {path: other}))
                except SpecError as refusal:
                    assert refusal.path and str(refusal).endswith(".")
                    continue
                assert get(to_tree(run), path) == other
                if not path.startswith("data.source."):
                    seen.add(identity(run))
                    changes += 1
                told.add((cls, name))
    # The bases differ in what they choose, so that no changed run equals another.
    assert len(seen) == changes
    fields = {field for base in RUNS for field in fields_of(base)}
    assert {(cls, name) for cls, name in fields - told if name not in PATHS} == set()
    chosen = {cls for cls, _ in fields} | set(map(type, HEADS))
    with_fields = {cls for cls in spec_classes() if dataclasses.fields(cls)}
    # How a run is spread is no part of what it is.
    with_fields -= {Layout}
    assert chosen == with_fields


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


def test_the_identity_has_the_content_that_a_run_starts_from():
    anew, first, second = (RunSpec(start_from=path) for path in (None, "a/run", "/b/moved"))
    assert identity(first) == identity(second) != identity(anew)
    assert identity(first, start="cd" * 32) != identity(first)
    for run, start in ((anew, START), (first, None)):
        with pytest.raises(ValueError, match="give both or none"):
            fingerprint(run, SHA, 1, start)


def test_null_what_must_not_change_the_identity():
    first, second = (
        RunSpec(data=DataSpec(source=TextFile(path=path))) for path in ("/a/text", "b/other name")
    )
    assert identity(first) == identity(second)
    # The same bytes are the same text, whoever holds them.
    assert identity(first) == identity(RunSpec())
    spelt = OptimizerSpec(learning_rate=1, weight_decay=-0.0, rule=AdamW(beta1=0), gradient_clip=2)
    same = OptimizerSpec(
        learning_rate=1.0, weight_decay=0.0, rule=AdamW(beta1=0.0), gradient_clip=2.0
    )
    assert identity(RunSpec(optimizer=spelt)) == identity(RunSpec(optimizer=same))


@pytest.mark.parametrize("base", RUNS)
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
            "vocabulary": 256, "width": 64, "layers": 2, "heads": 4, "key_value_heads": None,
            "head_width": None, "stack": {"kind": "decoder"},
            "attention": {"kind": "dot_product", "dot_product": {
                "scale": None, "soft_cap": None, "query_key_norm": "none", "window": None,
                "window_pattern": "window", "heads_off": "",
            }},
            "qkv_bias": False, "attention_out_bias": False, "ffn": "gelu", "ffn_width": 256,
            "ffn_bias": False, "norm_placement": "pre",
            "norm": {"kind": "layer_norm", "layer_norm": {"epsilon": 1e-05, "bias": True}},
            "final_norm": None, "sublayers": "sequential", "stream_scale": 1.0,
            "branch_scale": {"kind": "fixed", "fixed": {"value": 1.0}},
            "position": {"kind": "sinusoidal", "sinusoidal": {"layout": "interleaved"}},
            "scale_embedding": False, "embedding_norm": False,
            "head": {"kind": "tokens", "tokens": {
                "tied": True, "bias": False, "scale_down": False, "soft_cap": None,
                "transform": False,
            }},
            "dropout": {"embedding": 0.0, "attention": 0.0, "ffn": 0.0, "residual": 0.0},
            "initialization": "fan_in", "scan_layers": False, "rematerialize": "nothing",
        },
        "data": {
            "source": {"sha256": SHA}, "tokenizer": {"kind": "bytes"}, "length": 64,
            "source_length": None, "rows": "stream", "too_long": "refuse", "malformed": "refuse",
            "validation_fraction": 0.02, "test_fraction": 0.02,
        },
        "objective": {"kind": "causal_lm"},
        "loss": {"label_smoothing": 0.0, "z_loss": 0.0},
        "optimizer": {
            "learning_rate": 0.003, "weight_decay": 0.1, "gradient_clip": 1.0,
            "rule": {"kind": "adamw", "adamw": {
                "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-08,
            }},
        },
        "schedule": {
            "kind": "warmup_cosine",
            "warmup_cosine": {"warmup_steps": 40, "final_fraction": 0.1},
        },
        "training": {
            "steps": 400, "batch_size": 16, "log_every": 20, "evaluate_every": 200,
            "checkpoint_every": 200, "evaluation_batch_size": 64, "average_decay": None,
            "early_stopping": {"kind": "none"},
        },
        "seed": 0,
    }  # fmt: skip
    text = json.dumps({"schema": 1, "spec": tree}, sort_keys=True)
    assert identity(RunSpec()) == hashlib.sha256(text.encode()).hexdigest()


def test_null_fields_that_came_later_count_only_where_they_are_used():
    """A run that was recorded before they were there has the identity that it had."""
    local = DotProduct(window=5, window_pattern="window,full")
    model = ModelSpec(
        embedding_norm=True, head=TokenHead(transform=True), position=Rope(), attention=local
    )
    run = RunSpec(model=model)
    full, counted = to_tree(run), identity_tree(run)
    changes = {
        "model.first_norm": False,
        "model.head.tokens.transform_bias": False,
        "model.position.rope.window_theta": 500.0,
        "loss.chunk": 64,
        "model.precision.head": "bfloat16",
        "training.microbatches": 4,
        "training.probe_steps": [0],
        "start_from": "a/run",
    }
    # A setting that is absent and one that is None do not differ.
    later = {*differences(counted, full), "loss.chunk", "model.position.rope.window_theta"}
    later.add("start_from")
    assert later == {path.removesuffix(".head") for path in changes}
    assert "chunk" not in counted["loss"] and "start_from" not in counted
    assert "window_theta" not in counted["model"]["position"]["rope"]
    for path, value in changes.items():
        changed = from_tree(replace(full, {path: value}))
        (told,) = differences(counted, identity_tree(changed))
        assert path.startswith(told)
