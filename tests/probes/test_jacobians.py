"""Spectral norms of sublayers, beside full Jacobians and their singular values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probed import masks_of, parameters_of, sample_of
from quickly import quickly
from tiny_model import BASE, STACKS, VARIANTS, T, V, changed

from jtransformer.modules.apart import looped, observe, sublayer
from jtransformer.probes import Sample, spectral_norms
from jtransformer.probes.sites import layers_of, prefix_of, sublayers_of
from jtransformer.spec import DotProduct

ITERATIONS = 300
SPECS = {
    "post": VARIANTS["post"],
    "windows": changed(
        VARIANTS["grouped"],
        norm_placement="sandwich",
        attention=DotProduct(window=3, window_pattern="window,full", heads_off="1.2"),
    ),  # fmt: skip
    "parallel": VARIANTS["one_norm"],
    "scanned": VARIANTS["scanned"],
    "two": STACKS["encoder_decoder"],
    "memory": STACKS["two_scanned"],
}
MEASURES = {}


def measured(spec, sample, parameters=None, *, key=None, iterations=ITERATIONS):
    """Measures by a compiled program that tests share."""
    if (spec, iterations) not in MEASURES:
        MEASURES[spec, iterations] = quickly(
            functools.partial(spectral_norms, spec, iterations=iterations)
        )
    own = parameters_of(spec) if parameters is None else parameters
    key = jax.random.key(1) if key is None else key
    return MEASURES[spec, iterations](own, sample, key=key)


def row_of(sample):
    """The first row, which is the fullest of `sample_of`."""
    return jax.tree.map(lambda x: x[:1], sample)


def full_jacobians(spec, sample):
    """Returns whole Jacobians of all sublayers by forward mode, a column for each number put in."""
    row = row_of(sample)

    def every(parameters):
        twin, own = looped(spec, parameters)
        output, calls = observe(twin, own, row.tokens, row.inputs, ("*",))
        kept, found = output.intermediates, {}
        for call in calls:
            prefix = prefix_of(call.part)
            at, layer = f"{prefix}layer_{call.layer}", layers_of(call.part, own)[call.layer]
            before = f"{prefix}layer_{call.layer - 1}/stream" if call.layer else f"{prefix}embedded"
            sites = [("branch", name, f"{at}/{name}/input") for name in sublayers_of(call.part)]
            if spec.sublayers == "sequential":
                for name in sublayers_of(call.part):
                    sites.append(("stream", name, before))
                    before = f"{at}/{name}/stream"
            else:
                sites.append(("stream", "layer", before))
            stack = prefix.rstrip("/") or "decoder"
            for level, name, x in sites:
                jacobian = jax.jacfwd(sublayer(twin, call, name, level), argnums=1)
                found[stack, level, name, call.layer] = jacobian(layer, kept[x], call.own)
        return found

    return quickly(every)(parameters_of(spec))


def furthest(size, iterations=ITERATIONS):
    """How much too small a norm may be, relatively, whatever the gap to the next one.

    Kuczynski and Wozniakowski 1992, theorem 3.1: the mean error of the eigenvalue, which is the
    square, over random starts.
    """
    return 0.871 * np.log(size) / (iterations - 1) / 2


SLOW = ("parallel", "scanned", "memory", "two", "windows")


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, spec in SPECS.items()
    ],
)
def test_the_norm_is_the_largest_singular_value_of_the_whole_jacobian(spec):
    sample = sample_of(spec, source_vocabulary=spec.source_vocabulary or V)
    found = measured(spec, sample)
    masks = masks_of(spec, sample)
    jacobians = full_jacobians(spec, sample)
    assert len(jacobians) == sum(
        norms.value.size
        for levels in found.values()
        for of in levels.values()
        for norms in of.values()
    )
    for (stack, level, name, layer), whole in jacobians.items():
        counted = masks[stack][0]
        matrix = np.asarray(whole, np.float64)[0, counted][:, :, 0, counted]
        size = counted.sum() * spec.width
        values = np.linalg.svd(matrix.reshape(size, size), compute_uv=False)
        value, residual = (x[layer] for x in found[stack][level][name])
        assert (1 - furthest(size)) * values[0] < value < (1 + 1e-5) * values[0], (name, level)
        assert np.abs(values**2 / value**2 - 1).min() < residual + 1e-5 < 0.05


def test_layers_of_a_pre_norm_decoder_by_hand():
    """Differences in float64 of the formulas, written out in NumPy."""
    sample = row_of(sample_of(BASE))
    own = jax.tree.map(lambda x: np.asarray(x, np.float64), parameters_of(BASE))
    layer, H = own["layer_0"], BASE.H

    def norm(x, parameters):
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return unit * parameters["scale"] + parameters["bias"]

    def attend(y):
        part = layer["attention"]
        q, k, v = (
            np.einsum("td,dnh->nth", y, part[x]["kernel"]) for x in ("query", "key", "value")
        )
        scores = np.einsum("nth,nsh->nts", q, k) / np.sqrt(H)
        weights = np.exp(scores - scores.max(-1, keepdims=True)) * np.tril(np.ones((T, T)))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("nts,nsh,nhd->td", weights, v, part["out"]["kernel"])

    def whole(x):
        return x + attend(norm(x, layer["attention_norm_in"]))

    def stretch(function, x):
        counted = np.asarray(sample.weights[0]) > 0
        columns = []
        for t, d in zip(*np.nonzero(np.repeat(counted[:, None], BASE.width, 1)), strict=True):
            step = np.zeros_like(x)
            step[t, d] = 1e-5
            columns.append((function(x + step) - function(x - step))[counted].ravel() / 2e-5)
        return np.linalg.svd(np.stack(columns, 1), compute_uv=False)[0]

    half = np.arange(BASE.width) // 2 * 2 / BASE.width
    angles = np.arange(T)[:, None] * 10_000.0**-half
    places = np.where(np.arange(BASE.width) % 2 == 0, np.sin(angles), np.cos(angles))
    x = own["embedding"]["table"][np.asarray(sample.tokens[0])] + places
    found = measured(BASE, sample)["decoder"]
    np.testing.assert_allclose(found["stream"]["attention"].value[0], stretch(whole, x), rtol=1e-3)
    read = norm(x, layer["attention_norm_in"])
    np.testing.assert_allclose(
        found["branch"]["attention"].value[0], stretch(attend, read), rtol=1e-3
    )


def test_without_a_branch_the_stream_passes_as_it_is():
    own = parameters_of(BASE)
    out = {"out": {"kernel": own["layer_1"]["attention"]["out"]["kernel"] * 0}}
    silent = own | {"layer_1": own["layer_1"] | {"attention": own["layer_1"]["attention"] | out}}
    found, before = (measured(BASE, sample_of(BASE), p)["decoder"] for p in (silent, None))
    np.testing.assert_allclose(found["stream"]["attention"].value[1], 1, rtol=1e-6)
    np.testing.assert_array_equal(found["branch"]["attention"].value[1], 0)
    np.testing.assert_array_equal(found["branch"]["attention"].residual[1], 0)
    # Live and null: the layer before does not move, the sublayer behind it does.
    for level in ("stream", "branch"):
        np.testing.assert_array_equal(
            found[level]["attention"].value[0], before[level]["attention"].value[0]
        )
        assert found[level]["ffn"].value[1] != before[level]["ffn"].value[1]


def test_more_iterations_come_nearer():
    few, many = (
        measured(BASE, sample_of(BASE), iterations=n)["decoder"]["stream"]["attention"]
        for n in (1, ITERATIONS)
    )
    assert (few.residual > 10 * many.residual).all() and (few.value < many.value).all()


def test_the_first_direction_matters_for_a_while_only():
    keys = [jax.random.key(seed) for seed in (3, 4)]
    few = [measured(BASE, sample_of(BASE), key=key, iterations=1)["decoder"] for key in keys]
    assert (few[0]["branch"]["ffn"].value != few[1]["branch"]["ffn"].value).all()
    many = [measured(BASE, sample_of(BASE), key=key)["decoder"] for key in keys]
    np.testing.assert_allclose(
        many[0]["branch"]["ffn"].value, many[1]["branch"]["ffn"].value, furthest(T * BASE.width)
    )


@pytest.mark.slow
def test_padding_and_other_rows_change_nothing():
    spec = SPECS["two"]
    sample = sample_of(spec, source_vocabulary=spec.source_vocabulary)
    expected = measured(spec, sample)
    inputs = dict(sample.inputs)
    wrong = (inputs["source"] + 1) % V
    inputs["source"] = jnp.where(inputs["source_valid"], inputs["source"], wrong).at[1].set(0)
    tokens = sample.tokens.at[1].set(0)
    found = measured(spec, Sample(tokens, sample.weights, inputs))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_of_no_position_there_is_no_norm():
    sample = sample_of(BASE)
    found = measured(BASE, sample._replace(weights=sample.weights * 0))
    assert all(np.isnan(value).all() for value in jax.tree.leaves(found))


def test_no_iteration_is_refused():
    with pytest.raises(ValueError, match="iterations must be at least 1, got iterations=0"):
        spectral_norms(
            BASE, parameters_of(BASE), sample_of(BASE), key=jax.random.key(0), iterations=0
        )
