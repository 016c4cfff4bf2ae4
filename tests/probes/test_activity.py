"""What a model does on a batch: values from its intermediates, laws, and what moves them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probed import LENGTHS, masks_of, parameters_of, sample_of
from quickly import quickly
from tiny_model import BASE, STACKS, VARIANTS, B, S, T, V, changed, model_of

from jtransformer.probes import Sample, activity, head_names
from jtransformer.spec import Classifier, DotProduct, Embedder, LatentAttention, NoPosition, Rope

CAUSAL = np.tril(np.ones((T, T)))
MEASURES = {}


def measured(spec, sample, parameters=None, maps=()):
    """Measures by a compiled program that tests share."""
    if (spec, maps) not in MEASURES:
        MEASURES[spec, maps] = quickly(functools.partial(activity, spec, maps=maps))
    own = parameters_of(spec) if parameters is None else parameters
    return MEASURES[spec, maps](own, sample)


def inside(spec, sample):
    out = model_of(spec).apply(
        {"params": parameters_of(spec)}, sample.tokens, **sample.inputs, intermediates=("*",)
    )
    kept = {name: np.asarray(x, np.float64) for name, x in out.intermediates.items()}
    return kept, np.asarray(out.logits, np.float64)


def edited(tree, path, edit):
    """Changes one parameter."""
    name, *rest = path.split("/")
    return tree | {name: edited(tree[name], "/".join(rest), edit) if rest else edit(tree[name])}


def relu_model(**changes):
    return changed(VARIANTS["post"], **changes)


@pytest.mark.parametrize("spec", [VARIANTS["post"], STACKS["encoder_decoder"]], ids=["one", "two"])
def test_values_are_those_of_the_intermediates(spec):
    sample = sample_of(spec, source_vocabulary=spec.source_vocabulary or V)
    found = measured(spec, sample)
    kept, logits = inside(spec, sample)
    for stack, counted in masks_of(spec, sample).items():
        of_stack = found.stacks[stack]
        prefix = f"{stack}/" if spec.has_encoder else ""
        depth = spec.stack.encoder_layers if stack == "encoder" else spec.layers
        names = [f"{prefix}embedded", *(f"{prefix}layer_{n}/stream" for n in range(depth))]
        assert of_stack.positions == counted.sum()
        for at, name in enumerate(names):
            picked = kept[name][counted]
            np.testing.assert_allclose(of_stack.stream.rms[at], np.sqrt((picked**2).mean()), 1e-5)
            assert of_stack.stream.outlier_channel[at] == (picked**2).mean(0).argmax()
        sublayers = ("attention", "cross_attention") if prefix == "decoder/" else ("attention",)
        assert set(of_stack.entropy) == set(sublayers)
        for name in sublayers:
            for n in range(depth):
                weights = kept[f"{prefix}layer_{n}/{name}/weights"]
                logs = np.log(np.where(weights > 0, weights, 1))
                entropy = -(weights * logs).sum(-1).transpose(0, 2, 1)[counted].mean(0)
                np.testing.assert_allclose(of_stack.entropy[name].nats[n], entropy, rtol=1e-5)
    scored = np.asarray(sample.weights) > 0
    np.testing.assert_allclose(found.logits.sd, logits[scored].std(-1).mean(), rtol=1e-5)
    np.testing.assert_allclose(found.logits.largest, np.abs(logits[scored]).max(), rtol=1e-5)


def test_zeros_of_relu_and_gates_are_those_of_the_intermediates():
    spec = relu_model()
    sample = sample_of(spec)
    kept, _ = inside(spec, sample)
    counted = masks_of(spec, sample)["decoder"]
    silent = measured(spec, sample).stacks["decoder"].silent
    for n in range(spec.layers):
        is_zero = kept[f"layer_{n}/ffn/activation"][counted] == 0
        np.testing.assert_allclose(silent.zero_fraction[n], is_zero.mean(), rtol=1e-5)
        np.testing.assert_allclose(silent.dead_fraction[n], is_zero.all(0).mean(), atol=1e-7)
    spec = VARIANTS["branch"]
    sample = sample_of(spec)
    kept, _ = inside(spec, sample)
    found = measured(spec, sample).stacks["decoder"]
    assert found.silent is None
    for n in range(spec.layers):
        gate = parameters_of(spec)[f"layer_{n}"]["ffn"]["gate"]
        x = kept[f"layer_{n}/ffn/input"] @ np.asarray(gate["kernel"]) + np.asarray(gate["bias"])
        s = 1 / (1 + np.exp(-x[counted]))
        flat = np.abs(s * (1 + x[counted] * (1 - s))) < 0.05
        np.testing.assert_allclose(found.saturated[n], flat.mean(), rtol=1e-5)


@pytest.mark.parametrize("dead", [0, 3])
def test_planted_dead_units_are_found(dead):
    spec = relu_model(ffn_bias=True)
    bias = jnp.where(jnp.arange(spec.ffn_width) < dead, -1e3, 1e3)
    own = edited(parameters_of(spec), "layer_1/ffn/in/bias", lambda _: bias)
    silent = measured(spec, sample_of(spec), own).stacks["decoder"].silent
    np.testing.assert_allclose(silent.dead_fraction[1], dead / spec.ffn_width, rtol=1e-6)
    np.testing.assert_allclose(silent.zero_fraction[1], dead / spec.ffn_width, rtol=1e-6)


def blank(tree, names):
    """Zeroes the matrices of queries, so that every score is the same."""

    def zeroed(path, x):
        return x * 0 if any(entry.key in names for entry in path) else x

    return jax.tree_util.tree_map_with_path(zeroed, tree)


UNIFORM = {
    "windows": changed(
        attention=DotProduct(window=3, window_pattern="window,full"), key_value_heads=1
    ),
    "scanned": changed(
        attention=DotProduct(window=2, window_pattern="full,window"), scan_layers=True
    ),
    "latent": changed(
        attention=LatentAttention(latent_width=5, rotary_width=2, value_width=3), position=Rope()
    ),
    "encoder": changed(STACKS["encoder"], position=NoPosition()),
    "two": changed(STACKS["two_scanned"], position=NoPosition()),
    "prefix": changed(STACKS["prefix_decoder"], position=NoPosition()),
}


@pytest.mark.parametrize("spec", UNIFORM.values(), ids=UNIFORM)
def test_equal_scores_spread_a_head_over_all_that_it_sees(spec):
    sample = sample_of(spec)
    own = blank(parameters_of(spec), ("query", "query_rotary"))
    for of_stack in measured(spec, sample, own).stacks.values():
        for entropy in of_stack.entropy.values():
            np.testing.assert_allclose(entropy.relative, 1, rtol=1e-5)


def test_equal_scores_have_the_entropy_of_the_keys():
    spec = UNIFORM["windows"]
    sample = sample_of(spec)
    own = blank(parameters_of(spec), ("query",))
    nats = measured(spec, sample, own).stacks["decoder"].entropy["attention"].nats
    scored = np.nonzero(np.asarray(sample.weights))[1]
    # No real query sees padding: it is at the end.
    np.testing.assert_allclose(nats[0], np.log(np.minimum(scored + 1, 3)).mean(), rtol=1e-5)
    np.testing.assert_allclose(nats[1], np.log(scored + 1).mean(), rtol=1e-5)


def test_packed_documents_see_their_own_keys_alone():
    spec = UNIFORM["windows"]
    segments = jnp.asarray([[1, 1, 1, 1, 2, 2, 2], [1, 2, 2, 2, 2, 0, 0]], jnp.int32)
    weights = jnp.asarray(segments > 0, jnp.float32)
    sample = Sample(sample_of(spec).tokens, weights, {"segments": segments})
    own = blank(parameters_of(spec), ("query",))
    nats = measured(spec, sample, own).stacks["decoder"].entropy["attention"].nats
    full = np.log([1, 2, 3, 4, 1, 2, 3, 1, 1, 2, 3, 4]).mean()
    np.testing.assert_allclose(nats[1], full, rtol=1e-5)


def test_a_map_is_the_weights_of_the_fullest_row():
    spec = STACKS["encoder_decoder"]
    sample = sample_of(spec, source_vocabulary=spec.source_vocabulary)
    sample = jax.tree.map(lambda x: x[::-1], sample)
    maps = ("encoder/layer_0/attention/head_2", "decoder/layer_1/cross_attention/head_0")
    found = measured(spec, sample, maps=maps)
    kept, _ = inside(spec, sample)
    assert found.row == 1 and set(found.maps) == set(maps)
    for name, shape in zip(maps, ((S, S), (T, S)), strict=True):
        sublayer, _, head = name.rpartition("/head_")
        expected = kept[f"{sublayer}/weights"][1, int(head)]
        assert found.maps[name].shape == shape
        np.testing.assert_allclose(found.maps[name], expected, atol=1e-6)


def test_the_names_of_heads():
    assert head_names(changed(layers=1, heads=2)) == (
        "layer_0/attention/head_0", "layer_0/attention/head_1",
    )  # fmt: skip
    assert head_names(VARIANTS["linear"]) == head_names(VARIANTS["deepnorm"]) == ()
    two = head_names(STACKS["encoder_decoder"])
    assert len(two) == 3 * (1 + 2 + 2) and two[-1] == "decoder/layer_1/cross_attention/head_2"


@pytest.mark.parametrize(
    ("spec", "name", "message"),
    [
        (BASE, "layer_0/attention/head_3", "its heads are layer_0/attention/head_0 … layer_1/"),
        (VARIANTS["linear"], "layer_0/attention/head_0", "none of its heads has any"),
    ],
)
def test_a_map_of_no_head_is_refused(spec, name, message):
    with pytest.raises(ValueError, match=f"{name}.*{message}"):
        activity(spec, None, sample_of(spec), maps=(name,))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(VARIANTS["branch"], id="one"),
        pytest.param(STACKS["two_scanned"], id="two", marks=pytest.mark.slow),
    ],
)
def test_padding_and_rows_without_a_score_change_nothing(spec):
    sample = sample_of(spec)
    expected = measured(spec, sample)
    padded = np.arange(T) >= np.array(LENGTHS)[:, None]
    inputs = dict(sample.inputs)
    if spec.has_encoder:
        wrong = (inputs["source"] + 1) % V
        inputs["source"] = jnp.where(inputs["source_valid"], inputs["source"], wrong)
    tokens = jnp.where(padded, (sample.tokens + 1) % V, sample.tokens)
    changed_padding = measured(spec, Sample(tokens, sample.weights, inputs))
    jax.tree.map(np.testing.assert_array_equal, changed_padding, expected)

    other = sample_of(spec, seed=5)
    blind = Sample(other.tokens, other.weights * 0, other.inputs)
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), blind, sample)
    longer = measured(spec, both)
    assert longer.row == B + expected.row
    longer, expected = longer._replace(row=0), expected._replace(row=0)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), longer, expected)


def test_a_score_more_changes_what_is_counted():
    sample = sample_of(BASE)
    fewer = sample._replace(weights=sample.weights.at[0, 1].set(0))
    found, expected = (measured(BASE, one).stacks["decoder"] for one in (fewer, sample))
    assert found.positions == expected.positions - 1
    assert (found.stream.rms != expected.stream.rms).all()


LIVE = {
    "embedding/table": "all",
    "layer_1/attention/query/kernel": "entropy",
    "layer_1/attention/out/kernel": "stream",
    "layer_1/ffn/gate/kernel": "saturated",
    "layer_1/ffn/down/kernel": "stream",
    "final_norm/scale": "logits",
}


@pytest.mark.parametrize("path", LIVE)
def test_live_each_part_moves_its_measure(path):
    spec, sample = VARIANTS["branch"], sample_of(VARIANTS["branch"])
    # Not by one factor, which the norm of a branch takes off again.
    own = edited(
        parameters_of(spec),
        path,
        lambda x: x * jnp.broadcast_to(jnp.linspace(1, 3, x.shape[-1]), x.shape),
    )
    found, expected = measured(spec, sample, own), measured(spec, sample)

    def moved(pick):
        return np.any(np.asarray(pick(found)) != np.asarray(pick(expected)), axis=-1).tolist()

    def stack(got):
        return got.stacks["decoder"]

    by_layer = {
        "entropy": moved(lambda got: stack(got).entropy["attention"].nats),
        "saturated": moved(lambda got: stack(got).saturated[:, None]),
        "stream": moved(lambda got: stack(got).stream.rms[:, None]),
    }
    first = {"all": "stream", "logits": "logits"}.get(LIVE[path], LIVE[path])
    if path.startswith("layer_1"):
        assert by_layer[first][-1]
        assert not by_layer["entropy"][0] and not any(by_layer["stream"][:2])
    elif path == "embedding/table":
        assert all(all(layers) for layers in by_layer.values())
    else:
        assert not any(any(layers) for layers in by_layer.values())
    assert found.logits.sd != expected.logits.sd


def test_compiled_and_step_by_step_agree():
    spec = changed(layers=1, ffn="reglu")
    step_by_step = activity(spec, parameters_of(spec), sample_of(spec))
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5),
        measured(spec, sample_of(spec)),
        step_by_step,
    )


@pytest.mark.parametrize("head", [Classifier(classes=3), Embedder()], ids=["classes", "none"])
def test_heads_that_answer_once_for_a_row(head):
    spec = changed(head=head, layers=1)
    sample = sample_of(spec)
    found = measured(spec, sample)
    if isinstance(head, Embedder):
        assert found.logits is None
        return
    _, logits = inside(spec, sample)
    np.testing.assert_allclose(found.logits.sd, logits.std(-1).mean(), rtol=1e-5)
