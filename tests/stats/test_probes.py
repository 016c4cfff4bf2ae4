"""Tests for jtransformer.stats.probes: what of which run stands where."""

import numpy as np
import pytest
from probe_fixture import CAVEAT, probe, write_probes
from sweep_fixture import RATES, noisy_losses, write_sweep

from jtransformer.records import RunFiles, load_sweep, read_probe
from jtransformer.stats import analyse, head_rows, layer_rows, mean_profiles, profiles

EFFECTS = {"pre-gelu": 0.0, "post-gelu": 0.03}


def found_in(workdir):
    record = load_sweep(workdir)
    return profiles(record, analyse(record), read_probe)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = write_sweep(tmp_path_factory.mktemp("sweep"), noisy_losses(EFFECTS))
    write_probes(folder)
    return folder


def test_without_probes_there_are_no_profiles(tmp_path):
    assert found_in(write_sweep(tmp_path, noisy_losses(EFFECTS))) is None


def test_only_chosen_runs_are_read(workdir):
    record = load_sweep(workdir)
    read = []

    def reading(path):
        read.append(path)
        return read_probe(path)

    profiles(record, analyse(record), reading)
    # Two arms, three seeds, two steps; the best rate is the one in the middle.
    assert len(read) == 2 * 3 * 2 and all(f"={RATES[1]}" in str(path) for path in read)


def test_every_number_stands_at_its_arm_seed_step_and_layer(workdir):
    found = found_in(workdir)
    assert found.steps == (0, 400) and found.rows == (16,) and found.caveat == CAVEAT
    layers = found.layers
    one = layers.query(
        "arm == 'post-gelu' and seed == 2 and step == 400 and quantity == 'gradient_norm' and "
        "part == 'ffn_last'"
    )
    assert one["layer"].tolist() == [0, 1] and one["value"].tolist() == [1.5, 4.5]
    stream = layers.query("arm == 'pre-gelu' and seed == 0 and step == 0")
    assert stream[stream["quantity"] == "stream_rms"]["value"].tolist() == [1.0, 2.0, 3.0]
    entropy = stream[stream["quantity"] == "relative_entropy"]["value"]
    np.testing.assert_allclose(entropy, [0.2, 0.3])
    heads = found.heads.query("arm == 'pre-gelu' and seed == 1 and step == 0 and layer == 1")
    np.testing.assert_allclose(heads["ablation"], [0.4, 0.6, 0.8])
    assert heads["head"].tolist() == [0, 1, 2]


def test_what_is_absent_has_no_row_and_a_reason(workdir):
    found = found_in(workdir)
    assert not found.layers["quantity"].isin(["dead_fraction", "saturated_fraction"]).any()
    assert found.layers["value"].notna().all()
    assert set(found.absent) == set(EFFECTS)


def test_maps_are_of_one_seed_and_of_each_arm_s_last_step(workdir):
    maps = found_in(workdir).maps
    assert {(one.arm, one.seed, one.step) for one in maps} == {(arm, 0, 400) for arm in EFFECTS}
    assert len(maps) == 2 * 6 and maps[4].name == "layer 1, head 1"
    np.testing.assert_allclose(maps[0].weights.sum(axis=1), 1)


def test_a_mean_needs_every_seed(tmp_path):
    write_sweep(tmp_path, noisy_losses(EFFECTS))
    write_probes(tmp_path)
    record = load_sweep(tmp_path)
    missing = next(
        run
        for run in record.runs
        if run.cell["arm"] == "post-gelu" and run.cell["seed"] == 1 and f"={RATES[1]}" in
        run.cell["directory"]
    )  # fmt: skip
    RunFiles(tmp_path / missing.cell["directory"]).probe(400).unlink()
    found = found_in(tmp_path)
    means = mean_profiles(found.layers, 3)
    assert {*zip(means["arm"], means["step"], strict=True)} == {
        ("pre-gelu", 0),
        ("pre-gelu", 400),
        ("post-gelu", 0),
    }
    (value,) = means.query(
        "arm == 'pre-gelu' and step == 0 and quantity == 'gradient_norm' and part == 'layer' and "
        "layer == 1"
    )["value"]
    assert value == pytest.approx(2 * (1 + 2 + 3) / 3)


def test_a_model_without_weights_and_one_that_diverged_have_rows_for_what_there_is():
    found = probe(3)
    stack = found["stacks"]["decoder"]
    stack |= {"entropy": {"attention": None}, "relative_entropy": {"attention": None}}
    stack |= {"spectral_norm": None, "update_ratio": None}
    stack["gradient_norm"]["layer"][1] = None
    rows = [*layer_rows(found)]
    assert {row[1] for row in rows} == {"gradient_norm", "stream_rms", "outlier_ratio"}
    assert [row[3] for row in rows if row[1:3] == ("gradient_norm", "layer")] == [0]
    heads = [*head_rows(found)]
    assert len(heads) == 6 and np.isnan([row[4] for row in heads]).all()
    stack["ablation"] = None
    assert [*head_rows(found)] == []
