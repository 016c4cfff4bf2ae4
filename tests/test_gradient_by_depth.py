"""Tests that experiments/gradient_by_depth.py measures and fits what it says."""

import functools
import importlib.util
import pathlib

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from quickly import quickly

from jtransformer import data, probes
from jtransformer import functional as F
from jtransformer.modules import build
from jtransformer.training import parameter_key

PATH = pathlib.Path(__file__).parents[1] / "experiments" / "gradient_by_depth.py"


@pytest.fixture(scope="module")
def experiment():
    found = importlib.util.spec_from_file_location("gradient_by_depth", PATH)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_norms_are_those_of_the_probes(experiment):
    spec = experiment.model_spec("post", 2)
    found = experiment.gradient_norms(spec, 2)
    corpus, model = data.load(experiment.RUN.data), build(spec)
    for seed in range(2):
        batch = data.TrainingBatches(corpus, experiment.run_of(spec, seed))[0]
        parameters = quickly(model.init)(parameter_key(seed), jnp.asarray(batch.tokens))["params"]

        def loss(parameters, batch=batch):
            logits = model.apply({"params": parameters}, jnp.asarray(batch.tokens)).logits
            sums = F.cross_entropy(logits, jnp.asarray(batch.labels))
            return sums.loss_sum / sums.weight_sum

        measured = quickly(functools.partial(probes.gradient_norms, spec, loss=loss))
        norms = measured(parameters).stacks["decoder"]["ffn_last"]
        np.testing.assert_allclose(found[seed], norms, rtol=1e-4)


def test_an_exponent_is_found_again_and_what_is_no_power_law_is_off_the_line(experiment):
    rows = [
        ("pre", layers, seed, (1 + seed) * layers**exponent, 1.0)
        for seed, exponent in enumerate((-0.4, -0.5, -0.6))
        for layers in experiment.DEPTHS
    ]
    names = ["placement", "layers", "seed", "last_layer", "first_layer"]
    power = experiment.slope(pd.DataFrame(rows, columns=names))
    assert power.exponent.value == pytest.approx(-0.5) and power.off == pytest.approx(1)
    # Three seeds: mean plus and minus 4.303 times 0.1 / sqrt(3).
    assert power.exponent.low == pytest.approx(-0.5 - 0.2484, abs=1e-3)
    grown = [("none", layers, 0, 1.2**layers, 1.0) for layers in experiment.DEPTHS]
    assert experiment.slope(pd.DataFrame(grown, columns=names)).off > 2
