"""Tests for jtransformer.training.directory: whose a directory is, and its tokenizer."""

import dataclasses

import pytest
import tiny_run

from jtransformer import data, records
from jtransformer.data.vocabularies import check_vocabularies
from jtransformer.spec import EncoderDecoder, MaskedLM, SpanCorruption, SpecError
from jtransformer.training import Trainer, digest
from jtransformer.training.directory import open_directory, record_environment
from jtransformer.training.pairing import pairing_hashes

IDENTITY = "f" * 64


@pytest.fixture
def spec(tmp_path):
    return tiny_run.run_spec(tmp_path)


@pytest.fixture
def corpus(spec):
    return data.load(spec.data)


@dataclasses.dataclass(frozen=True)
class Another:
    """A tokenizer of another hash."""

    sha256: str = "a" * 64


def test_the_tokenizer_lies_beside_the_run_and_its_hash_in_the_spec(spec, corpus, tmp_path):
    files = records.RunFiles(tmp_path / "run")
    open_directory(files, spec, corpus, IDENTITY)
    saved = data.load_tokenizer(files.tokenizer)
    assert saved.sha256 == corpus.tokenizer.sha256
    assert records.read_json(files.spec)["tokenizer_sha256"] == saved.sha256
    files.tokenizer.unlink()
    open_directory(files, spec, corpus, IDENTITY)
    assert data.load_tokenizer(files.tokenizer).sha256 == saved.sha256


def test_a_torn_tokenizer_of_a_run_that_was_not_begun_is_written_again(spec, corpus, tmp_path):
    files = records.RunFiles(tmp_path / "run")
    files.directory.mkdir()
    files.tokenizer.write_text('{"sha')
    open_directory(files, spec, corpus, IDENTITY)
    assert data.load_tokenizer(files.tokenizer).sha256 == corpus.tokenizer.sha256


def test_another_tokenizer_or_run_is_refused(spec, corpus, tmp_path):
    files = records.RunFiles(tmp_path / "run")
    open_directory(files, spec, corpus, IDENTITY)
    with pytest.raises(SpecError, match="has the hash aaaaaaaa, and the run in .* was begun with"):
        open_directory(files, spec, dataclasses.replace(corpus, tokenizer=Another()), IDENTITY)
    with pytest.raises(SpecError, match="belongs to another run .fingerprint ffffffff.*eeeeeeee"):
        open_directory(files, spec, corpus, "e" * 64)


def test_too_small_a_vocabulary_is_refused_before_any_work(spec, tmp_path):
    masked = dataclasses.replace(tiny_run.masked_run_spec(tmp_path), objective=MaskedLM())
    small = dataclasses.replace(masked, model=dataclasses.replace(masked.model, vocabulary=256))
    with pytest.raises(SpecError, match="model.vocabulary.* must be at least 257"):
        Trainer().train(small, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_trainer_reads_one_text_for_each_objective(spec, tmp_path):
    trainer, masked = Trainer(), tiny_run.masked_run_spec(tmp_path)
    assert trainer.identify(spec) != trainer.identify(masked) == trainer.identify(masked)
    sizes = [corpus.specials.size for corpus in trainer._corpora.values()]
    assert sizes == [256, 257]


def corrupting(spec, **stack):
    objective, stack = SpanCorruption(), EncoderDecoder(encoder_layers=1, **stack)
    model = dataclasses.replace(spec.model, stack=stack, vocabulary=300)
    return dataclasses.replace(spec, model=model, objective=objective)


def test_one_table_for_two_tokenizers_is_refused_whatever_their_sizes(spec):
    shared, apart = corrupting(spec), corrupting(spec, share_embedding=False)
    corpus = data.load(spec.data, shared.objective)
    foreign = dataclasses.replace(corpus, source_tokenizer=Another())
    check_vocabularies(corpus, shared)
    check_vocabularies(foreign, apart)
    with pytest.raises(SpecError, match="share_embedding.*aaaaaaaa .*; use False"):
        check_vocabularies(foreign, shared)
    check_vocabularies(foreign, spec)


def test_too_small_a_source_vocabulary_is_refused(spec):
    small = corrupting(spec, share_embedding=False, source_vocabulary=257)
    corpus = data.load(spec.data, small.objective)
    with pytest.raises(SpecError, match=f"source_vocabulary.*at least {corpus.specials.size}"):
        check_vocabularies(corpus, small)


def test_hashes_of_batches_are_those_of_their_arrays_and_know_the_objective(spec, corpus):
    batches = data.TrainingBatches(corpus, spec)
    found = pairing_hashes(spec, batches.__getitem__, {})
    first = batches[0]
    expected = "-".join(digest(x)[:16] for x in (first.tokens, first.labels, first.weights))
    assert found["first_batch"] == expected
    masked = dataclasses.replace(corrupting(spec), objective=SpanCorruption(density=0.2))
    other = data.TrainingBatches(data.load(spec.data, masked.objective), masked)
    hashes = pairing_hashes(masked, other.__getitem__, {})
    present = [x for x in other[0] if x is not None]
    assert len(hashes["first_batch"].split("-")) == len(present) > 3
    assert hashes["sampling"] != found["sampling"]


@pytest.mark.parametrize("text", ["", "[]", "null"])
def test_error_a_damaged_environment(spec, tmp_path, text):
    (tmp_path / "environment.json").write_text(text)
    for accept in (False, True):
        with pytest.raises(records.DamagedRecord, match="environment.json is damaged .* delete it"):
            record_environment(records.RunFiles(tmp_path), "loop", spec.optimizer, {}, accept)


@pytest.mark.parametrize("text", ["{}", "[]", '{"fingerprint": "x"}'])
def test_error_a_directory_that_does_not_say_whose_it_is(spec, corpus, tmp_path, text):
    (tmp_path / "spec.json").write_text(text)
    with pytest.raises(records.DamagedRecord, match=r"spec.json is damaged \(it lacks .*tokenizer"):
        open_directory(records.RunFiles(tmp_path), spec, corpus, "identity")
