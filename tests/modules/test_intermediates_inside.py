"""Intermediates inside of attention and gates: which there are, and their formulas."""

import jax
import numpy as np
from tiny_model import STACKS, VARIANTS, T, changed, drawn, model_of, tokens_of

from jtransformer.modules.intermediates import all_names
from jtransformer.spec import DotProduct, Embedder, Rope

ROPE_NORMED = changed(
    attention=DotProduct(query_key_norm="head", soft_cap=2.0, scale=0.7),
    position=Rope(),
    key_value_heads=1,
    ffn="swiglu",
    ffn_bias=True,
    qkv_bias=True,
    layers=1,
)


def test_the_names_of_norms_turns_and_gates_and_of_other_kinds():
    """Each value is there where the model has it, and stands in the order of computation."""

    def local(spec, sublayer, **given):
        prefix = next(name for name in all_names(spec, **given) if f"/{sublayer}/" in name)
        prefix = prefix.rpartition("/")[0] + "/"
        return [x.removeprefix(prefix) for x in all_names(spec, **given) if x.startswith(prefix)]

    ends = ["output", "stream"]
    both, normed, turned = (
        [f"{name}{what}" for name in ("query", "key")] for what in ("", "_normed", "_turned")
    )
    scores = ["scores", "weights", "mixed", *ends]
    assert local(ROPE_NORMED, "attention") == ["input", *both, "value", *normed, *turned, *scores]
    assert local(ROPE_NORMED, "ffn") == ["input", "gate", "up", "activation", *ends]
    for kind in ("linear", "deepnorm"):
        assert local(VARIANTS[kind], "attention") == ["input", *both, "value", "mixed", *ends]
    assert local(VARIANTS["latent"], "attention") == ["input", *both, "value", *turned, *scores]
    two = STACKS["encoder_decoder"]
    assert local(two, "cross_attention") == ["input", *both, "value", *normed, *scores]
    # In later calls a cache has the keys and values of the memory.
    later = local(two, "cross_attention", reads_source=False)
    assert later == ["input", "query", "query_normed", *scores]
    assert all_names(changed(head=Embedder()))[-1] == "final_norm"


def test_the_values_inside_of_attention_and_gates_are_those_of_the_formula(key):
    spec = ROPE_NORMED
    apply, tokens = model_of(spec).apply, tokens_of(key)
    found = apply(drawn(spec), tokens, intermediates=("*",)).intermediates
    assert set(found) == {*all_names(spec)}
    at = {name.removeprefix("layer_0/"): np.asarray(x, np.float64) for name, x in found.items()}
    tree = jax.tree.map(lambda x: np.asarray(x, np.float64), drawn(spec)["params"]["layer_0"])
    own, network = tree["attention"], tree["ffn"]
    x = at["attention/input"]
    for name in ("query", "key", "value"):
        projected = np.einsum("BTD,DNH->BTNH", x, own[name]["kernel"]) + own[name]["bias"]
        np.testing.assert_allclose(at[f"attention/{name}"], projected, atol=1e-5)
    heads = {}
    for name in ("query", "key"):
        plain = at[f"attention/{name}"]
        normed = plain / np.sqrt((plain**2).mean(-1, keepdims=True) + 1e-6)
        normed = normed * own[f"{name}_norm"]["scale"]
        np.testing.assert_allclose(at[f"attention/{name}_normed"], normed, atol=1e-5)
        # Planes of the channels i and i + H / 2, as complex numbers.
        half = normed.shape[-1] // 2
        angle = np.arange(T)[:, None, None] * 10_000.0 ** (-np.arange(half) / half)
        z = (normed[..., :half] + 1j * normed[..., half:]) * np.exp(1j * angle)
        heads[name] = np.concatenate([z.real, z.imag], -1)
        np.testing.assert_allclose(at[f"attention/{name}_turned"], heads[name], atol=1e-5)
    scores = np.einsum("BTNH,BSH->BNTS", heads["query"], heads["key"][:, :, 0])
    scores = 2.0 * np.tanh(0.7 * scores / 2.0)
    np.testing.assert_allclose(at["attention/scores"], scores, atol=1e-5)
    weights = np.exp(scores) * np.tril(np.ones((T, T)))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(at["attention/weights"], weights, atol=1e-5)
    mixed = np.einsum("BNTS,BSH->BTNH", weights, at["attention/value"][:, :, 0])
    np.testing.assert_allclose(at["attention/mixed"], mixed, atol=1e-5)
    out = np.einsum("BTNH,NHD->BTD", mixed, own["out"]["kernel"])
    np.testing.assert_allclose(at["attention/output"], out, atol=1e-5)
    x = at["ffn/input"]
    for name in ("gate", "up"):
        hidden = x @ network[name]["kernel"] + network[name]["bias"]
        np.testing.assert_allclose(at[f"ffn/{name}"], hidden, atol=1e-5)
    active = at["ffn/gate"] / (1 + np.exp(-at["ffn/gate"]))
    np.testing.assert_allclose(at["ffn/activation"], active, atol=1e-5)
    out = (active * at["ffn/up"]) @ network["down"]["kernel"] + network["down"]["bias"]
    np.testing.assert_allclose(at["ffn/output"], out, atol=1e-5)
    logits = at["final_norm"] @ np.asarray(drawn(spec)["params"]["embedding"]["table"]).T
    np.testing.assert_allclose(at["logits"], logits, atol=1e-5)
