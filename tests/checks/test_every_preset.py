"""Every preset, shrunk, keeps every law that it can be judged by, and so do other choices."""

import dataclasses

import numpy as np
import pytest
import tiny_presets

from jtransformer.checks import run_all
from jtransformer.cli.check_laws import arguments
from jtransformer.cli.check_model import Calls, Judged
from jtransformer.spec import (
    Alibi,
    Classifier,
    DotProduct,
    Encoder,
    LatentAttention,
    LayerScale,
    LinearAttention,
    ModelSpec,
    NoPosition,
    Precision,
    ReZero,
    RMSNorm,
    Rope,
    Shaw,
    TokenHead,
    presets,
)

BASE = ModelSpec(vocabulary=13, width=16, layers=2, heads=4, ffn_width=24)
LENGTH = tiny_presets.T
CHOICES = {
    "windows": dict(attention=DotProduct(window=3), position=Rope()),
    "window pattern": dict(
        attention=DotProduct(window=2, window_pattern="window,full", query_key_norm="head"),
        position=Alibi(),
    ),
    "linear": dict(attention=LinearAttention(), branch_scale=ReZero()),
    "latent": dict(
        attention=LatentAttention(latent_width=6, rotary_width=4, value_width=3), position=Rope()
    ),
    "scanned": dict(
        scan_layers=True, position=Shaw(max_distance=3, values=True), norm_placement="sandwich"
    ),
    "no positions": dict(stack=Encoder(), position=NoPosition(), branch_scale=LayerScale()),
    "classifier": dict(stack=Encoder(), head=Classifier(), norm_placement="branch"),
    "bfloat16": dict(
        precision=Precision(
            stream="bfloat16", attention="bfloat16", ffn="bfloat16", head="bfloat16"
        ),
        key_value_heads=2,
        norm=RMSNorm(),
        position=Rope(),
        head=TokenHead(tied=False),
    ),
}
# What most mistakes break and little has to be compiled for.
QUICK = (
    "reach by perturbation",
    "documents of a row",
    "differences of positions alone",
    "tree of parameters",
)


def asked(model):
    """Returns what `run_all` is given for a model."""
    subject = Judged("model", model, None, 0, None, "a model alone has no data", LENGTH)
    given, reasons = arguments(subject, Calls(subject), available=10**12)
    # Figures worked out by hand are those of functions, whatever the model.
    return given | {"reasons": reasons, "parts": None}


def judged(given, **changes):
    given = given | changes
    return run_all(given.pop("apply"), **given)


def models():
    found = {}
    for name, preset in presets.PRESETS.items():
        spec = preset()
        model = spec if isinstance(spec, ModelSpec) else spec.model
        # Sizes are all that differs between some presets.
        found.setdefault(tiny_presets.shrunk(model), name)
    return {name: model for model, name in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", models())
def test_every_preset_keeps_every_law(name):
    model = models()[name]
    report = judged(asked(model))
    assert report.passed, report.failures
    # A law of the loss does not apply where no tokens are scored.
    least = 18 if isinstance(model.head, TokenHead) else 17
    assert sum(row.verdict == "pass" for row in report.rows) >= least


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_keeps_every_law(name):
    report = judged(asked(dataclasses.replace(BASE, **CHOICES[name])))
    assert report.passed, report.failures


@pytest.mark.slow
def test_windows_keep_the_laws_that_mistakes_break():
    given = asked(dataclasses.replace(BASE, **CHOICES["windows"]))
    report = judged(given, laws=QUICK)
    assert [row.verdict for row in report.rows] == ["pass"] * len(QUICK), report.rows
    # Two layers of three tokens: what is five before is out of reach.
    i, j = np.arange(LENGTH)[:, None], np.arange(LENGTH)[None]
    np.testing.assert_array_equal(given["reach"], (j <= i) & (i - j < 5))
    law = "reach by perturbation"
    blind = judged(given, laws=[law], reach=j <= i)[law]
    assert blind.verdict == "fail" and "the output at 5 does not depend on token 0" in blind.detail
    leaks = judged(given, laws=[law], reach=(j <= i) & (i - j < 4))[law]
    assert leaks.verdict == "fail" and "the output at 4 depends on token 0" in leaks.detail
