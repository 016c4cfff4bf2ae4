"""Tests for jtransformer.generation: what is refused, before any work is done."""

import dataclasses
import math

import numpy as np
import pytest
from tiny_generation import TINY, drawn

from jtransformer.generation import BeamSearch, Generator, Sampling, beam_search, generate
from jtransformer.spec import Classifier, Encoder, EncoderDecoder, Learned, SpecError

PAIRS = dataclasses.replace(TINY, stack=EncoderDecoder())
LEARNED = dataclasses.replace(TINY, position=Learned(max_length=8))


def refused(sentence, spec=TINY, prompt=((1, 2, 3),), limit=4, **given):
    """A refusal needs no parameters, because nothing has been computed yet."""
    with pytest.raises(ValueError, match=sentence):
        generate(spec, None, prompt, limit=limit, **given)
    options = {name: given[name] for name in given if name in ("valid", "source", "source_valid")}
    if "key" not in given and "rows" not in given and "eos" not in given:
        with pytest.raises(ValueError, match=sentence):
            search = BeamSearch(width=2)
            beam_search(spec, None, prompt, limit=limit, eos=None, search=search, **options)


def test_models_that_continue_nothing():
    refused("encoder", dataclasses.replace(TINY, stack=Encoder()))
    refused("head.kind='classes'", dataclasses.replace(TINY, head=Classifier()))


def test_prompts_that_are_none():
    refused(r"axes B T.*prompt.shape=\(3,\)", prompt=(1, 2, 3))
    refused(r"axes B T.*prompt.shape=\(1, 0\)", prompt=np.zeros((1, 0), np.int32))
    refused("dtype=float64", prompt=[[0.5]])
    refused(r"0 … 10 \(vocabulary=11\), got 1 … 11", prompt=[[1, 11]])
    refused("got -1 … 3", prompt=[[-1, 3]])
    refused(r"got none in rows \[1\]", prompt=[[1], [2]], valid=[[True], [False]])
    refused(r"axes \(1, 3\), got shape=\(1, 2\)", valid=np.array([[True, True]]))
    refused("must be boolean", valid=[[1, 1, 0]])
    refused("limit must be at least 1, got limit=0", limit=0)


def test_padding_may_hold_any_id():
    with pytest.raises(TypeError):  # Not refused: the missing parameters are missed later.
        generate(TINY, None, [[1, 99]], valid=np.array([[True, False]]), limit=1)


def test_sources():
    refused("reads no source", source=[[1]])
    refused("give source too", PAIRS)
    refused(r"same rows, got source.shape=\(2, 1\)", PAIRS, source=[[1], [2]])
    refused("ids of source must lie in 0 … 10", PAIRS, source=[[11]])


def test_positions_that_were_never_learned():
    refused("max_length=8, a prompt of 3 tokens and limit=7; use limit=6", LEARNED, limit=7)
    refused("max_length=8 and 9 tokens", LEARNED, prompt=[[1] * 9], limit=1)
    pairs = dataclasses.replace(LEARNED, stack=EncoderDecoder())
    refused("source must fit.*max_length=8 and 9 tokens", pairs, source=[[1] * 9])


def test_padding_takes_no_learned_position():
    valid = np.array([[False] * 5 + [True] * 3])
    out = generate(LEARNED, drawn(LEARNED), [[1] * 8], valid=valid, limit=6)
    assert out.lengths.tolist() == [6]


def test_keys_rows_and_end_tokens():
    refused("needs a key, got key=None, temperature=1.0", sampling=Sampling(), key=None)
    refused(r"rows=\[1, 2\] for 1 rows", rows=[1, 2])
    refused(r"rows=\[-1\]", rows=[-1])
    refused("eos=11, vocabulary=11", eos=11)
    refused(r"eos=\(1, 11\), vocabulary=11", eos=(1, 11))
    refused(r"never=\(11,\), vocabulary=11", never=(11,), eos=None)
    refused("never must leave tokens to choose", never=(1, 2), eos=2)
    refused("never must leave tokens to choose", never=tuple(range(11)), eos=None)
    with pytest.raises(ValueError, match="eos=-1"):
        beam_search(TINY, None, [[1]], limit=1, eos=-1, search=BeamSearch())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (dict(temperature=-1.0), "temperature must be at least 0, got -1.0"),
        (dict(temperature=math.nan), "temperature must be finite"),
        (dict(top_k=0), "top_k must be at least 1, got 0"),
        (dict(top_p=1.5), "top_p must be at most 1, got 1.5"),
        (dict(min_p=-0.1), "min_p must be at least 0"),
        (dict(temperature=0, top_k=3), "top_k = 3 would do nothing at temperature 0"),
    ],
)
def test_sampling(options, sentence):
    """Fault GEN-03 among them: a negative temperature would turn the order round."""
    with pytest.raises(SpecError, match=sentence):
        Sampling(**options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (dict(width=0), "width must be at least 1, got 0"),
        (dict(width=2, best=3), "best must not exceed width, got best=3, width=2"),
        (dict(alpha=math.inf), "alpha must be finite"),
        (dict(form="mean", alpha=1.0), "form must be one of power, gnmt, got 'mean'"),
        (dict(form="gnmt"), "form = 'gnmt' would do nothing with alpha 0"),
    ],
)
def test_beam_searches(options, sentence):
    with pytest.raises(SpecError, match=sentence):
        BeamSearch(**options)


def test_a_generator_is_a_value():
    assert Generator(model=TINY, limit=3) == Generator(model=dataclasses.replace(TINY), limit=3)
    assert len({Generator(model=TINY, limit=3), Generator(model=TINY, limit=4)}) == 2
