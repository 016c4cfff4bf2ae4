"""Tokenizers without tokenizer.json, and what steers the generation of an imported run."""

import json

import pytest
import tokenizers
import transformers

from jtransformer.data.library import LibraryTokenizer
from jtransformer.interop import steering, tokenizer_settings
from jtransformer.spec import SpecError

TEXT = "In the beginning God created the heaven and the earth."


@pytest.fixture
def older(tmp_path):
    """A directory of BERT's first form: vocab.txt alone."""
    made = tokenizers.BertWordPieceTokenizer()
    made.train_from_iterator([TEXT], vocab_size=60, min_frequency=1, show_progress=False)
    made.save_model(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return tmp_path


def test_one_is_made_of_older_files_by_transformers(older):
    ours = LibraryTokenizer(tokenizer_settings(older))
    theirs = transformers.BertTokenizer.from_pretrained(older)
    ids = theirs(TEXT)["input_ids"]
    assert list(ours.encode_marked(TEXT)) == ids and len(set(ids)) > 5
    assert list(ours.encode(TEXT)) == ids[1:-1]


def test_error_one_that_cannot_be_made_is_told_in_a_sentence(older):
    (older / "vocab.txt").rename(older / "source.spm")
    (older / "config.json").write_text(json.dumps({"model_type": "marian"}))
    with pytest.raises(SpecError) as caught:
        tokenizer_settings(older)
    assert "cannot be made" in str(caught.value) and "add tokenizer.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_null_there_is_none(tmp_path):
    assert tokenizer_settings(tmp_path) is None


def steered(directory, generation=None, **config):
    (directory / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (directory / "generation_config.json").write_text(json.dumps(generation))
    return steering(directory, 10)


def test_generation_is_steered_by_all_that_the_files_say(tmp_path):
    found = steered(
        tmp_path,
        {"eos_token_id": [2, 5, 11], "bad_words_ids": [[7], [3, 4], [5]], "num_beams": 4},
        eos_token_id=9,
        decoder_start_token_id=1,
        forced_bos_token_id=0,
        suppress_tokens=[8, 12],
        repetition_penalty=1.3,
        no_repeat_ngram_size=0,
    )
    # An id that the model does not have is chosen by nobody; what ends a text must be chosen.
    assert (found.start, found.eos, found.never) == ((1, 0), (2, 5), (7, 8))
    assert found.unfollowed == {"repetition_penalty": 1.3, "bad_words_ids": [[3, 4]]}


def test_null_files_that_say_nothing_steer_nothing(tmp_path):
    assert steered(tmp_path, {}, eos_token_id=None) == ((), (), (), {})


@pytest.mark.parametrize(
    ("name", "value"),
    [("eos_token_id", "</s>"), ("eos_token_id", [True]), ("eos_token_id", -1)]
    + [("bad_words_ids", 7), ("bad_words_ids", [7]), ("bad_words_ids", [["a"]])],
)
def test_error_ids_that_are_none_are_named(tmp_path, name, value):
    with pytest.raises(SpecError, match=name):
        steered(tmp_path, {name: value})
