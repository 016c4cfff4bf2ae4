"""Plans of small sweeps over the default run, shared by the tests of sweeps."""

import hashlib

import pytest

from jtransformer.spec import RunSpec, SpecError, TextFile, replace, to_tree
from jtransformer.sweep import make_plan, read_declaration

TREE = to_tree(RunSpec(), all_kinds=True)
FFN = {"model.ffn": ("relu", "gelu", "swiglu")}
PLACEMENT = {"model.norm_placement": ("pre", "post")}
RATES = {"optimizer.learning_rate": (1e-3, 4e-3, 1.6e-2)}
MATCH = dict(equal="parameters", by="model.ffn_width", multiple_of=2, tolerance=0.01)
KJV = "ab" * 32
ABOUT = dict(
    title="norm_and_ffn", question="Does it help?", command="jtransformer", data={"bytes": 9}
)
DEPTH = {"model.position.learned.max_length": (64, 128)}
POSITION = {"model.position.kind": ("sinusoidal", "learned")}
SCHEDULE = {"schedule.kind": ("constant", "warmup_cosine")}


def sha(run):
    """The hash of a text: here of its name, but for the embedded one."""
    source = run.data.source
    return hashlib.sha256(source.path.encode()).hexdigest() if isinstance(source, TextFile) else KJV


def plan_of(scientific, tree=TREE, touched=(), inherited=(), data_sha256=sha, **sweep):
    declaration = read_declaration({"scientific": scientific, **sweep})
    paths = {"touched": frozenset(touched), "inherited": frozenset(inherited)}
    return make_plan(tree, declaration, data_sha256, **paths)


def message(scientific, **options):
    with pytest.raises(SpecError) as caught:
        plan_of(scientific, **options)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    return str(caught.value)


def whole(**changes):
    sweep = dict(nuisance=RATES, seeds=(0, 1, 2), match=MATCH) | changes
    return plan_of({**PLACEMENT, **FFN}, **sweep)


def tree_with(**changes):
    return replace(TREE, {path.replace("__", "."): value for path, value in changes.items()})
