"""A reader's encoder, written with flax.nnx of its own layers, is judged as it is.

Its LayerNorm computes a variance by one pass unless it is told otherwise, and its BatchNorm mixes
the rows of a batch: both are mistakes that a library makes for its user.
"""

import jax
import numpy as np
import pytest
from flax import nnx
from quickly import quickly

from jtransformer.checks import NormPart, run_all

V, D, N, F, T = 17, 12, 2, 20, 6
EPSILON = 1e-6


def norm_of(kind, rngs):
    if kind == "batch":
        return nnx.BatchNorm(D, use_running_average=False, epsilon=EPSILON, rngs=rngs)
    return nnx.LayerNorm(D, use_fast_variance=kind == "fast", epsilon=EPSILON, rngs=rngs)


class Reader(nnx.Module):
    def __init__(self, kind="layer", seed=0):
        rngs = nnx.Rngs(seed)
        self.embedding = nnx.Embed(V, D, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(N, D, decode=False, rngs=rngs)
        self.first, self.second, self.last = (norm_of(kind, rngs) for _ in range(3))
        self.wide, self.narrow = nnx.Linear(D, F, rngs=rngs), nnx.Linear(F, D, rngs=rngs)
        self.head = nnx.Linear(D, V, rngs=rngs)

    def __call__(self, tokens, valid=None):
        return self.from_rows(self.embedding(tokens), valid)

    def from_rows(self, x, valid=None):
        mask = None if valid is None else valid[:, None, None]
        x = x + self.attention(self.first(x), mask=mask)
        x = x + self.narrow(nnx.gelu(self.wide(self.second(x))))
        return self.head(self.last(x))


def arguments(model):
    graph, parameters, rest = nnx.split(model, nnx.Param, ...)

    def merged(parameters):
        return nnx.merge(graph, parameters, rest)

    def called(parameters, tokens, valid=None):
        return merged(parameters)(tokens, valid)

    # Statistics of a batch are written to, and so are arguments too.
    @quickly
    def compiled(parameters, rest, tokens, valid):
        return nnx.merge(graph, parameters, rest)(tokens, valid)

    def call(parameters, tokens, valid=None):
        return compiled(parameters, rest, tokens, valid)

    return dict(
        apply=lambda tokens: call(parameters, tokens),
        vocabulary=V,
        length=T,
        causal=False,
        depth=2,
        terms=max(D, F),
        positions="none",
        with_valid=lambda tokens, valid: call(parameters, tokens, valid),
        initial=lambda tokens: call(parameters, tokens),
        parameters=parameters,
        model=called,
        lookup=lambda parameters, tokens: merged(parameters).embedding(tokens),
        with_embeddings=lambda parameters, x: merged(parameters).from_rows(x),
        # The softmax ignores what is added to all scores of a query.
        without_gradient={"attention/key/bias*": "the softmax ignores it"},
        init=lambda seed: nnx.state(Reader(seed=seed), nnx.Param),
        norm=NormPart(model.first, "layer_norm", D, EPSILON),
    )


LAWS = (
    "reach by perturbation",
    "last token reaches the first position",
    "padding is invisible",
    "other rows of the batch",
    "order of tokens",
    "definition of the norm",
)


@pytest.mark.slow
def test_a_right_encoder_keeps_the_laws():
    given = arguments(Reader())
    report = run_all(given.pop("apply"), **given, laws=(*LAWS, "teacher forcing"))
    assert [row.name for row in report.rows if row.verdict == "pass"] == list(LAWS)
    assert "both ways" in report["teacher forcing"].detail


@pytest.mark.slow
def test_a_right_encoder_keeps_every_law_that_it_can_be_judged_by():
    given = arguments(Reader())
    report = run_all(given.pop("apply"), **given)
    assert report.passed, report.failures
    passed = {row.name for row in report.rows if row.verdict == "pass"}
    assert {*LAWS, "every parameter learns", "gradients by differences"} <= passed


@pytest.mark.parametrize(
    ("kind", "law"), [("fast", "definition of the norm"), ("batch", "other rows of the batch")]
)
def test_a_mistake_of_a_layer_is_caught(kind, law):
    given = arguments(Reader(kind))
    report = run_all(given.pop("apply"), **given, laws=[law])
    assert [row.name for row in report.failures] == [law]


def test_an_encoder_that_looks_back_only_is_caught():
    model = Reader()
    apply = quickly(lambda tokens: model(tokens, None))
    masked = nnx.MultiHeadAttention(N, D, decode=False, rngs=nnx.Rngs(0))
    model.attention = lambda x, mask: masked(x, mask=np.tri(T, dtype=bool)[None, None])
    report = run_all(
        apply,
        vocabulary=V,
        length=T,
        causal=False,
        laws=["last token reaches the first position", "reach by perturbation"],
    )
    assert len(report.failures) == 2


def test_a_reader_sees_what_was_not_given():
    model = Reader()
    report = run_all(
        quickly(lambda tokens: model(tokens)),
        vocabulary=V,
        length=T,
        causal=False,
        laws=["cached decoding", "same bits again"],
        reasons={"cached decoding": "it is an encoder"},
    )
    assert report["cached decoding"].detail == "it is an encoder"
    assert report["same bits again"].verdict == "pass"
    assert jax.tree.leaves(report.to_json()["counts"]) == [0, 1, 1]
