"""Tests for jtransformer.accounting.utilisation."""

import pytest

from jtransformer.accounting import chip, flops, utilisation
from jtransformer.spec import presets

RUN = presets.decoder_lm(width=64, layers=2)


def test_a_run_at_the_peak_reaches_all_of_it():
    per_token = flops(RUN.model, length=RUN.data.length).training
    for name, kind in (("v5e", "TPU v5 lite"), ("H100", "NVIDIA H100 80GB HBM3")):
        peak = chip(name).flops / per_token
        assert utilisation(RUN, peak, device_kind=kind, devices=1) == pytest.approx(1)
        assert utilisation(RUN, peak, device_kind=kind, devices=4) == pytest.approx(0.25)
        assert utilisation(RUN, peak / 2, device_kind=kind, devices=1) == pytest.approx(0.5)


def test_by_hand():
    """6 operations for each entry of a matrix and token, and 12 T L D for the scores."""
    model, T = RUN.model, RUN.data.length
    D, F, V = model.width, model.ffn_width, model.vocabulary
    per_token = 6 * (2 * (4 * D * D + 2 * D * F) + V * D) + 12 * T * 2 * D
    found = utilisation(RUN, 1e6, device_kind="TPU v6 lite", devices=2)
    assert found == pytest.approx(per_token * 1e6 / (2 * 918e12))


def test_nothing_is_said_of_a_device_whose_peak_is_not_known():
    assert utilisation(RUN, 1e6, device_kind="cpu", devices=1) is None


def test_lengths_are_those_of_the_rows_that_the_model_is_given():
    run = presets.span_corruption()
    lengths = run.row_lengths
    assert lengths.source_length not in (None, lengths.length, run.data.length)
    per_token = flops(run.model, length=lengths.length, source_length=lengths.source_length)
    reached = utilisation(run, 1e6, device_kind="TPU v5", devices=1)
    assert reached == pytest.approx(per_token.training * 1e6 / 459e12)
