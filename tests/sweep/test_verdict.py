"""Tests for jtransformer.sweep.verdict, and for what stays when a sweep is judged anew."""

import json

import pytest
from fake_training import CELLS, LAUNCH, Trainer, work
from plan_fixture import ABOUT, FFN, RATES, plan_of

from jtransformer.records import RunFiles, VerdictRule, earlier_rules, verdict_rule
from jtransformer.spec import SpecError
from jtransformer.sweep import judged_before, manifest, read_declaration
from jtransformer.sweep.verdict import read_verdict

RULE = dict(margin=0.005, correction="fdr", intervals="simultaneous")


def test_what_is_declared_is_read_and_the_rest_is_the_default():
    assert read_verdict({}) == VerdictRule(None, "holm", "unadjusted")
    assert read_verdict(RULE) == VerdictRule(**RULE)
    assert read_verdict(dict(margin=1)).margin == 1.0
    assert read_declaration({"scientific": FFN}).verdict == VerdictRule()
    assert read_declaration({"scientific": FFN, "verdict": RULE}).verdict == VerdictRule(**RULE)


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "verdict must be a dict of margin, correction, intervals; got None."),
        (0.005, "verdict must be a dict of"),
        (dict(margins=1), "verdict: margins is not a part of it; did you mean 'margin'?"),
        (dict(margin=0), "verdict.margin must be None or a positive number in the unit of the lo"),
        (dict(margin=-0.1), "verdict.margin must be None or a positive number"),
        (dict(margin=True), "verdict.margin must be"),
        (dict(margin="0.1"), "verdict.margin must be"),
        (dict(margin=float("nan")), "verdict.margin must be"),
        (dict(margin=10**400), "verdict.margin must be"),
        (dict(margin=float("inf")), "verdict.margin must be"),
        (dict(correction="bonferroni"), "verdict.correction must be one of holm, fdr, got 'bonfer"),
        (dict(correction=None), "verdict.correction must be one of"),
        (dict(intervals=["simultaneous"]), "verdict.intervals must be one of unadjusted, simul"),
    ],
)
def test_error_what_is_no_rule(value, text):
    with pytest.raises(SpecError) as caught:
        read_declaration({"scientific": FFN, "verdict": value})
    assert str(caught.value).startswith(text) and str(caught.value).endswith(".")


def test_the_rule_stands_in_the_manifest_and_moves_no_run():
    plain, ruled = (manifest(plan_of(FFN, nuisance=RATES, **more), ABOUT)
                    for more in ({}, {"verdict": RULE}))  # fmt: skip
    assert plain["verdict"] == dict(margin=None, correction="holm", intervals="unadjusted")
    assert ruled["verdict"] == RULE and plain["verdict_before"] == ruled["verdict_before"] == []
    assert plain["cells"] == ruled["cells"] and plain["arms"] == ruled["arms"]
    assert verdict_rule(json.loads(json.dumps(ruled))) == VerdictRule(**RULE)


def test_null_a_manifest_of_an_earlier_version_has_the_default_rule():
    assert verdict_rule({}) == VerdictRule() and earlier_rules({}) == ()


def swept(**rule):
    """The manifest of the twelve runs that the fake trainer trains."""
    about = plan_of(FFN, nuisance={"optimizer.learning_rate": (1e-3, 4e-3)}, seeds=(0, 1))
    return manifest(about, ABOUT) | {"verdict": VerdictRule(**rule).__dict__}


def finish(workdir, number):
    """Trains all twelve runs, and forgets those beyond a number."""
    work(workdir, Trainer(), LAUNCH)
    for cell in CELLS[number:]:
        RunFiles(workdir / cell["directory"]).status.unlink()


@pytest.mark.parametrize("finished", [0, 5, 12])
def test_a_rule_that_is_changed_stays_with_how_many_runs_had_finished(tmp_path, finished):
    finish(tmp_path, finished)
    old, new = swept(), swept(margin=0.01)
    first = judged_before(old, new, tmp_path)
    kept = [(VerdictRule(), finished)] if finished else []
    assert [(one.rule, one.finished) for one in earlier_rules(first)] == kept
    assert verdict_rule(first).margin == 0.01
    # Again the same: nothing is added. Back: that is a change as well.
    assert judged_before(first, new, tmp_path) == first
    back = judged_before(first, old, tmp_path)
    kept += [(VerdictRule(margin=0.01), finished)] if finished else []
    assert [(one.rule, one.finished) for one in earlier_rules(back)] == kept


def test_a_rule_declared_for_a_sweep_of_an_earlier_version_is_a_change(tmp_path):
    finish(tmp_path, 12)
    old = {part: value for part, value in swept().items() if not part.startswith("verdict")}
    (one,) = earlier_rules(judged_before(old, swept(margin=0.01), tmp_path))
    assert (one.rule, one.finished) == (VerdictRule(), 12)
    assert judged_before(old, swept(), tmp_path)["verdict_before"] == []
