"""Gradients of the loss, by place and by parameter, backward."""

import dataclasses

import jax
import numpy as np
import pytest
from diff_models import BASE, INPUTS, D, mine, parameters, theirs
from thinned import thinned

from jtransformer import diff
from jtransformer.spec import Classifier

ONE = dataclasses.replace(BASE, layers=1)


@pytest.fixture(scope="module")
def trace():
    return mine(ONE).trace(INPUTS, gradients=True)


def numeric(tree, path, step=1e-5):
    """Differentiates the twin's loss along one random direction of a parameter, in float64."""
    names, random = path.split("/"), np.random.default_rng(0)
    leaf = tree
    for name in names:
        leaf = leaf[name]
    direction = random.standard_normal(leaf.shape)

    def loss(sign):
        def moved(at, x):
            wide = np.asarray(x, np.float64)
            here = [entry.key for entry in at] == names
            return wide + sign * step * direction if here else wide

        tree_moved = jax.tree_util.tree_map_with_path(moved, tree)
        return theirs(ONE, tree_moved).trace(INPUTS).values["loss"]

    return (loss(1) - loss(-1)) / (2 * step), direction


@pytest.mark.parametrize(
    "path",
    thinned(
        ("layer_0/attention/key/kernel", "embedding/table", "layer_0/ffn/out/kernel"), str, one_of=3
    ),
)
def test_gradients_of_parameters_are_those_of_finite_differences(trace, path):
    slope, direction = numeric(parameters(ONE), path)
    found = np.sum(trace.parameter_gradients[path] * direction)
    np.testing.assert_allclose(found, slope, rtol=1e-3)


def test_gradients_of_places_have_their_shapes_and_the_last_one_is_known(trace):
    assert {"embedded", "layer_0/attention/query", "layer_0/stream", "final_norm", "logits"} <= set(
        trace.gradients
    )
    for name, gradient in trace.gradients.items():
        assert gradient.shape == trace.values[name].shape and gradient.any()
    logits = trace.values["logits"].astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = shares[:, :-1] - np.eye(logits.shape[-1])[INPUTS.tokens[:, 1:]]
    expected /= INPUTS.tokens[:, 1:].size
    np.testing.assert_allclose(trace.gradients["logits"][:, :-1], expected, atol=1e-6)


def test_gradients_are_compared_backward_and_the_first_that_differs_is_named(trace):
    gradients = dict(trace.gradients)
    gradients["layer_0/ffn/output"] = gradients["layer_0/ffn/output"] * 1.01
    other = trace._replace(gradients=gradients)
    found = diff.compare(trace, other, INPUTS)
    names = [row.name for row in found.gradients]
    assert names[0] == "logits" and names[-1] == "embedded"
    assert found.first is None and not found.equal
    assert found.first_gradient is not None
    assert found.first_gradient.name == "layer_0/ffn/output"
    paths = [row.name for row in found.parameters]
    assert paths[0].startswith("final_norm") and paths[-1] == "embedding/table"


def returned(trace, **changes):
    """Returns a function that answers with a trace, some gradients of which are others."""
    found = dict(trace.values)
    found |= {f"gradient/{name}": value for name, value in trace.gradients.items()}
    found |= {f"parameter_gradient/{k}": value for k, value in trace.parameter_gradients.items()}
    for name, value in changes.items():
        found[name.replace("__", "/")] = value
    return diff.Called("theirs", lambda tokens: {k: v for k, v in found.items() if v is not None})


def explained(function):
    found = diff.difference(mine(ONE), function, INPUTS, gradients=True)
    assert found.comparison.first is None and not found.equal
    (round,) = found.rounds
    return round


@pytest.mark.slow
def test_a_table_whose_lookup_learns_nothing_is_named(trace):
    """The lookup's share is what came back to the rows that were read."""
    table = trace.parameter_gradients["embedding/table"].copy()
    np.subtract.at(table, INPUTS.tokens.ravel(), trace.gradients["embedded"].reshape(-1, D))
    (best,) = explained(returned(trace, parameter_gradient__embedding__table=table)).best
    assert best.words == "with no gradient through the lookup of the embeddings"
    assert best.before.name == "parameter_gradient/embedding/table" and best.next_first is None


@pytest.mark.slow
def test_labels_of_a_loss_that_is_not_returned_are_named(trace):
    logits = trace.values["logits"].astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    shares[:, :-2] -= np.eye(logits.shape[-1])[INPUTS.tokens[:, 2:]]
    shares[:, -2:] = 0
    own = {"logits": logits, "gradient/logits": shares / INPUTS.tokens[:, 2:].size}
    (best,) = explained(diff.Called("theirs", lambda tokens: own)).best
    assert (best.kind, best.words) == ("label shift", "with labels shifted twice")


@pytest.mark.slow
def test_a_loss_that_is_summed_is_a_factor_of_its_gradients(trace):
    """No known difference of a model does it; two arrays have that relation."""
    summed = trace._replace(
        gradients={name: 12 * value for name, value in trace.gradients.items()},
        parameter_gradients={n: 12 * value for n, value in trace.parameter_gradients.items()},
    )
    assert "times 12" in {trial.words for trial in explained(returned(summed)).best}


def test_a_model_without_a_loss_has_no_gradients():
    spec = dataclasses.replace(ONE, head=Classifier(classes=3))
    with pytest.raises(ValueError, match="Gradients need a loss, and mine has the head 'classes'"):
        mine(spec).trace(INPUTS, gradients=True)
