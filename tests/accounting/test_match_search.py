"""Tests for jtransformer.accounting.match: a search over all sizes finds the same."""

import collections
import dataclasses
import itertools
import math

import model_grid
import pytest

from jtransformer.accounting import KNOBS, QUANTITIES, cache_bytes, flops, match, parameters
from jtransformer.spec import Encoder, SpecError, TokenHead

T, S, LAST = 6, 4, 60
ANY = math.inf


def totals(model):
    """Every quantity as a whole number: of a model, or of a sequence of T tokens."""
    lengths = dict(length=T, source_length=S if model.has_encoder else None)
    counted, operations = parameters(model), flops(model, **lengths)
    decodes = isinstance(model.head, TokenHead) and not isinstance(model.stack, Encoder)
    inference = operations.decoding if decodes else operations.forward
    return {
        "parameters": counted.total,
        "non_embedding_parameters": sum(
            getattr(counted, part)
            for part in ("attention", "cross_attention", "ffn", "norms", "branch_scales")
        ),
        "training_flops": round(T * operations.training),
        "inference_flops": round(T * inference),
        "kv_bytes": cache_bytes(model, **lengths),
    }


def lengths_for(equal, *models):
    if "parameters" in equal:
        return {}
    return dict(length=T, source_length=S if any(m.has_encoder for m in models) else None)


def sizes(model, knob):
    """Every model that a knob leads to, by its value, found by trying all values."""
    found = {}
    for value in range(1, LAST):
        changes = {knob: value}
        if knob == "width":
            if value * model.heads % model.width:
                continue
            changes["heads"] = value * model.heads // model.width
        elif knob == "heads" and value != model.heads:
            changes["head_width"] = model.H
        try:
            found[value] = dataclasses.replace(model, **changes)
        except SpecError:
            continue
        assert found[value].H == model.H or knob == "ffn_width"
    return found


def check_against_all_sizes(reference, candidate, *, knob, multiple_of, seen):
    target = totals(reference)
    tried = {v: m for v, m in sizes(candidate, knob).items() if v % multiple_of == 0}
    costs = {value: totals(model) for value, model in tried.items()}
    for equal in QUANTITIES:
        rule = dict(equal=equal, by=knob, multiple_of=multiple_of, tolerance=ANY)
        rule |= lengths_for(equal, reference, candidate)
        if target[equal] == 0:
            with pytest.raises(SpecError, match="because the reference has none"):
                match(reference, candidate, **rule)
            continue
        if len({cost[equal] for cost in costs.values()}) < 2:
            if len(costs) > 1:
                with pytest.raises(SpecError, match=f"'{knob}' has no effect on the {equal}"):
                    match(reference, candidate, **rule)
            continue
        best = min(costs, key=lambda value: (abs(costs[value][equal] - target[equal]), value))
        found = match(reference, candidate, **rule)
        if best == max(costs):
            assert found.value >= best, (equal, knob, candidate)
            continue
        seen[equal, knob] += 1
        assert (found.value, found.spec, found.by) == (best, tried[best], knob), (equal, candidate)
        expected = (costs[best][equal] - target[equal]) / target[equal]
        assert found.residual == expected


def check_models(models):
    seen = collections.Counter()
    pairs = zip(models, models[1:], strict=False)
    for (reference, candidate), multiple_of in zip(pairs, itertools.cycle((1, 4)), strict=False):
        for knob in KNOBS:
            check_against_all_sizes(
                reference, candidate, knob=knob, multiple_of=multiple_of, seen=seen
            )
    return seen


def test_every_quantity_and_knob_agree_with_a_search_over_all_sizes():
    seen = check_models(model_grid.models(31)[:12])
    assert set(itertools.product(QUANTITIES, KNOBS)) - set(seen) == {("kv_bytes", "ffn_width")}


@pytest.mark.slow
def test_many_models_agree_with_a_search_over_all_sizes():
    assert check_models(model_grid.models(120, seed=2)).total() > 1000
