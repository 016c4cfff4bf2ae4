"""Contract: every arm of every shipped experiment is as large as its plan and manifest say."""

import ast
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from plan_fixture import ABOUT

from jtransformer import sweep
from jtransformer.cli.arguments import read_experiment
from jtransformer.modules import build

ROOT = Path(__file__).parents[2] / "experiments"


def has_sweep(path):
    """Whether a file defines get_sweep(); a benchmark may have it in a text that it writes."""
    body = ast.parse(path.read_text()).body
    return any(isinstance(node, ast.FunctionDef) and node.name == "get_sweep" for node in body)


NEED_A_MODEL = {"from_hugging_face"}  # tests/interop/test_start.py gives it one.
FILES = [
    path
    for path in sorted(ROOT.glob("*/*.py"))
    if path.parent.name not in NEED_A_MODEL and has_sweep(path)
]


def leaves_of(model):
    """Counts the entries of the parameters that the model makes."""
    tokens = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    tree = jax.eval_shape(build(model).init, jax.random.key(0), tokens)["params"]
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def test_there_are_experiments():
    assert ROOT / "norm_and_ffn" / "config.py" in FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_arm_is_as_large_as_planned(path):
    experiment = read_experiment(path, [])
    declaration = sweep.read_declaration(experiment.sweep)
    plan = sweep.make_plan(experiment.tree, declaration, lambda run: "ab" * 32)
    arms = sweep.manifest(plan, ABOUT)["arms"]
    assert [arm["name"] for arm in arms] == [arm.name for arm in plan.arms]
    counted = {arm.name: leaves_of(arm.spec.model) for arm in plan.arms}
    for arm in arms:
        name = arm["name"]
        target = counted[arm["baseline"]]
        mismatch = (counted[name] - target) / target
        assert arm["parameters"] == counted[name] == sum(arm["components"].values())
        assert arm["mismatches"]["parameters"] == mismatch
        rule = declaration.match
        if rule is None or rule.equal in ("parameters", "nothing"):
            assert arm["residual"] == mismatch
        if rule is not None and rule.equal != "nothing":
            assert abs(arm["residual"]) <= rule.tolerance
            assert arm["residual"] == arm["mismatches"][rule.equal]
    for cell in plan.cells:
        (arm,) = (one for one in plan.arms if one.name == cell.arm)
        assert cell.spec.model == arm.spec.model
