"""Tests of `jtransformer generate`, as its user meets it."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
import tiny_generation
import tiny_run
from sweep_fixture import write_sweep

from jtransformer import data, generation
from jtransformer.cli import main
from jtransformer.cli.prompts import ask, decoder
from jtransformer.cli.run_directory import TrainedRun, read_run
from jtransformer.data.tokenizers import ByteTokenizer, WordTokenizer
from jtransformer.spec import (
    DataSpec,
    Encoder,
    EncoderDecoder,
    JsonLines,
    MaskedLM,
    RunSpec,
    Seq2Seq,
    SpanCorruption,
    SpecError,
    TextPairs,
    Words,
)
from jtransformer.training import Trainer

PROMPT = "the dog in"


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly():
    with tiny_generation.compiled_quickly():
        yield


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run that was trained for a moment."""
    root = tmp_path_factory.mktemp("generate")
    Trainer().train(tiny_run.run_spec(root), root / "run")
    return root / "run"


@pytest.fixture
def command(capfd, workdir):
    def call(*words, code=0, where=workdir):
        assert main(["generate", "--workdir", str(where), *words]) == code
        return capfd.readouterr()

    return call


def test_text_is_that_of_the_tokens_and_depends_on_the_seed(command, workdir):
    words = ("--prompt", PROMPT, "--limit", "8")
    first = command(*words)
    assert first.out.endswith("\n")
    assert "The text has 17 tokens, its run was trained on 16" in first.err
    assert command(*words).out == first.out
    assert command(*words, "--seed", "1").out != first.out
    trained = read_run(workdir, "newest")
    out = generation.generate(
        trained.spec.model,
        trained.variables,
        [list(PROMPT.encode())],
        limit=8,
        sampling=generation.Sampling(),
        key=jax.random.key(0),
    )
    assert first.out == ByteTokenizer().decode(out.tokens[0]) + "\n"
    found = json.loads(command(*words, "--json").out)
    assert found["step"] == 10
    (continuation,) = found["continuations"]
    assert continuation["text"] + "\n" == first.out
    assert continuation["tokens"] == out.tokens[0].tolist()
    assert continuation["log_probability"] == pytest.approx(float(out.log_probabilities.sum()))


def test_a_file_gives_the_same_as_a_prompt(command, tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text(f"{PROMPT}\n")
    words = ("--limit", "6", "--temperature", "0")
    from_file = command(*words, "--prompt_file", str(path))
    assert from_file.out == command(*words, "--prompt", PROMPT).out
    assert not from_file.err


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_the_line_ends_of_a_file_are_text_but_for_the_last(command, workdir, tmp_path, ending):
    """Read as text, those of another system would become others."""
    path = tmp_path / "prompt.txt"
    path.write_bytes(b"the\r\ndog" + ending)
    words = ("--limit", "1", "--temperature", "0", "--json")
    from_file = command(*words, "--prompt_file", str(path))
    assert from_file.out == command(*words, "--prompt", "the\r\ndog").out


@pytest.mark.slow
def test_live_the_options_of_sampling(command):
    words = ("--prompt", PROMPT, "--limit", "8")
    greedy = command(*words, "--temperature", "0").out
    assert command(*words).out != greedy
    for option in (("--top_k", "1"), ("--top_p", "0.0"), ("--min_p", "1.0")):
        assert command(*words, *option).out == greedy


def test_beams(command):
    words = ("--prompt", PROMPT, "--limit", "4", "--beams", "3")
    found = json.loads(command(*words, "--json").out)["continuations"]
    assert len(found) == 3 and len({tuple(x["tokens"]) for x in found}) == 3
    assert [x["score"] for x in found] == sorted((x["score"] for x in found), reverse=True)
    assert command(*words).out == found[0]["text"] + "\n"


@pytest.mark.slow
def test_live_the_length_penalty(command):
    words = ("--prompt", PROMPT, "--limit", "4", "--beams", "3")
    mean = json.loads(command(*words, "--alpha", "1", "--json").out)["continuations"]
    assert mean[0]["score"] == pytest.approx(mean[0]["log_probability"] / 4)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "Give either --prompt TEXT or --prompt_file FILE, got neither"),
        (("--prompt", "a", "--prompt_file", "b"), "got both"),
        (("--prompt_file", "missing.txt"), "'missing.txt' cannot be read"),
        (("--prompt", ""), "--prompt is empty, and this run has no token that begins a text"),
        (("--prompt", "a", "b"), "b is not a flag"),
        (("--prompt", "a", "--tempreature", "1"), "did you mean 'temperature'"),
        (("--prompt", "a", "--temperature", "-1"), "--temperature must be at least 0"),
        (("--prompt", "a", "--top_k", "x"), "top_k"),
        (("--prompt", "a", "--limit", "0"), "--limit must be at least 1, got 0"),
        (("--prompt", "a", "--limit", f"1{'0' * 12}"), "limit must be at most 1073741824"),
        (("--prompt", "a", "--seed", "-1"), "--seed must lie in 0 … 2147483647, got -1"),
        (("--prompt", "a", "--seed", str(2**32)), "--seed must lie in"),
        (("--prompt", "\udcff"), "--prompt is not UTF-8"),
        (("--prompt_file", "~nobody-at-all/a"), "--prompt_file = '~nobody-at-all/a' is in the"),
        (("--prompt", "a", "--beams", "2", "--alpha", "-99"), "got alpha=-99.0, form='power'"),
        (("--prompt", "a", "--beams", "2", "--top_k", "3"), "--top_k would do nothing"),
        (("--prompt", "a", "--alpha", "1"), "--alpha would do nothing without --beams"),
        (("--prompt", "a", "--beams", "0"), "--beams must be at least 1"),
        (("--prompt", "a", "--checkpoint", "last"), "one of newest, best, got 'last'"),
    ],
)
def test_mistakes(command, words, sentence):
    said = command(*words, code=2)
    assert sentence in said.err and not said.out
    assert said.err.startswith("jtransformer generate: ") and said.err.count("\n") == 1


def test_where_the_runs_are(command, tmp_path):
    assert "holds no run" in command("--prompt", "a", code=2, where=tmp_path / "none").err
    sweep = write_sweep(tmp_path / "out", {("relu", 0.01, 0): 2.0, ("gelu", 0.01, 0): 2.0})
    for path in sweep.glob("runs/*/*"):
        (path / "spec.json").write_text("{}")
    said = command("--prompt", "a", code=2, where=sweep).err
    assert "holds 2 runs; name one of them" in said and "runs/gelu" in said and "runs/relu" in said


def changed(workdir, tmp_path, **parts):
    """A copy of the run, of which spec.json says something else."""
    shutil.copytree(workdir, tmp_path / "copy")
    path = tmp_path / "copy/spec.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))
    return tmp_path / "copy"


def test_another_tokenizer_or_checkpoint_is_refused(command, workdir, tmp_path):
    copy = changed(workdir, tmp_path, tokenizer_sha256="0" * 64)
    said = command("--prompt", "a", code=2, where=copy).err
    assert "and the run was trained with 00000000" in said
    shutil.rmtree(copy)
    copy = changed(workdir, tmp_path, fingerprint="f" * 64)
    assert "belongs to another run" in command("--prompt", "a", code=2, where=copy).err
    (copy / "tokenizer.json").unlink()
    assert "tokenizer.json is missing" in command("--prompt", "a", code=2, where=copy).err


def test_the_best_checkpoint_can_be_chosen(workdir):
    assert read_run(workdir, "newest").step == 10
    best = read_run(workdir, "best")
    assert best.step in (5, 10)
    shapes = jax.tree.map(np.shape, best.variables)
    assert shapes == jax.tree.map(np.shape, read_run(workdir, "newest").variables)


def untrained(objective, source, stack=None, rows="padded", source_length=None):
    """What `ask` needs of a run."""
    spec = RunSpec()
    text = DataSpec(source=source, rows=rows, source_length=source_length)
    special = data.specials(256, text, objective)
    model = dataclasses.replace(
        spec.model, vocabulary=special.size, **({"stack": stack} if stack else {})
    )
    spec = dataclasses.replace(spec, model=model, data=text, objective=objective)
    return TrainedRun(spec, ByteTokenizer(), special, None, 0)


PAIRS, DOCUMENTS = TextPairs(path="pairs.tsv"), JsonLines(path="texts.jsonl")


def test_a_prompt_is_laid_out_as_the_rows_of_training():
    causal = RunSpec().objective
    # Of the special tokens pad is 256, bos 257, eos 258.
    assert ask(untrained(causal, DOCUMENTS), "ab") == ([257, 97, 98], None, [97, 98])
    stream = untrained(causal, DOCUMENTS, rows="stream")
    assert ask(stream, "ab") == ([256, 97, 98], None, [97, 98])
    assert ask(untrained(causal, PAIRS), "ab") == ([97, 98, 257], None, [])
    pairs = untrained(Seq2Seq(), PAIRS, EncoderDecoder(), source_length=8)
    assert ask(pairs, "ab") == ([257], [97, 98, 258], [])
    spans = untrained(SpanCorruption(), DOCUMENTS, EncoderDecoder(), rows="stream")
    assert ask(spans, "a<extra_id_0>b<extra_id_1>") == ([257], [97, 259, 98, 260], [])
    with pytest.raises(SpecError, match="must hold <extra_id_0>"):
        ask(spans, "ab")
    for number in ("99", "9" * 5000):
        with pytest.raises(SpecError, match=f"holds <extra_id_{number}>, and this run has <extra"):
            ask(spans, f"a<extra_id_{number}>")


def test_the_spaces_around_a_missing_span_of_words_are_no_words():
    """A span of words leaves its neighbours and one sentinel: no empty words beside it."""
    spans = untrained(SpanCorruption(), DOCUMENTS, EncoderDecoder(), rows="stream")
    text = dataclasses.replace(spans.spec.data, tokenizer=Words())
    special = data.specials(3, text, SpanCorruption())
    spec = dataclasses.replace(spans.spec, data=text)
    words = TrainedRun(spec, WordTokenizer(["a", "b"]), special, None, 0)
    first, second = special.sentinels[:2]
    expected = ([special.bos], [0, first, 1, second], [])
    assert ask(words, "a <extra_id_0> b <extra_id_1>") == expected
    assert ask(words, "a<extra_id_0>b<extra_id_1>") == expected
    assert decoder(words)([first, 0, 1, second, special.eos]) == "<extra_id_0> a b <extra_id_1>"


def test_an_encoder_continues_nothing():
    with pytest.raises(SpecError, match="masked_lm.*continues nothing"):
        ask(untrained(MaskedLM(), DOCUMENTS, Encoder()), "ab")
