"""Hugging Face directories run by transformers: every family's places agree with those of ours."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from interop import references, rows_core, rows_decoders, rows_encoders

from jtransformer import cli, diff
from jtransformer.spec import Rope

ROWS = {row.name: row for row in (*rows_core.ROWS, *rows_decoders.ROWS, *rows_encoders.ROWS)}
LENGTH, SOURCE_LENGTH = 9, 7
ENDS = ("embedded", "stream", "output", "activation", "weights", "query", "key", "value")


@pytest.fixture(scope="module", autouse=True)
def quiet():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)


def saved(name, directory):
    references.reference(ROWS[name]).save_pretrained(directory)
    return directory


def inputs_of(subject):
    spec = subject.spec
    sizes = diff.Sizes(length=LENGTH, source_length=SOURCE_LENGTH if spec.has_encoder else None)
    known = spec.vocabulary, spec.source_vocabulary
    return diff.drawn(0, sizes, *known, never=subject.padding)


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_a_reference_agrees_with_ours_at_every_place(name, tmp_path):
    subject = diff.foreign(name, saved(name, tmp_path))
    inputs = inputs_of(subject)
    gradients = ROWS[name].has_head and subject.spec.head.kind == "tokens"
    theirs = subject.trace(inputs, gradients=gradients)
    mine = subject.stand_in.trace(inputs, gradients=gradients)
    found = diff.compare(mine, theirs, inputs)
    assert not found.only_b
    assert found.equal, (found.first, found.first_gradient)
    shown = {row.name.rpartition("/")[2] for row in found.rows}
    assert set(ENDS) <= shown and ("logits" in shown or not ROWS[name].has_head)
    if gradients:
        # The bias of the logits is no parameter in BART and Marian, but a constant.
        without = set(mine.parameter_gradients) - {row.name for row in found.parameters}
        assert without <= ({"head/bias"} if subject.spec.has_encoder else set())
        assert len(found.gradients) >= 4 * subject.spec.layers


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    directory = saved("llama", tmp_path_factory.mktemp("llama"))
    return diff.foreign("llama", directory), directory


def test_a_fault_of_ours_is_found_against_the_reference(llama):
    subject, _ = llama
    own = subject.stand_in
    rope = own.spec.position
    assert isinstance(rope, Rope)
    wrong = own.respecified(position=dataclasses.replace(rope, pairing="interleaved"))
    found = diff.difference(wrong, subject, inputs_of(subject))
    best = found.rounds[0].best[0]
    assert (best.kind, best.words) == ("rope pairing", "with half pairing")
    assert best.next_first is None and best.before.name == "layer_0/attention/query_turned"


def test_a_function_is_explained_by_what_stands_in_for_the_reference(llama):
    """Somebody's own code, which has gate and up the wrong way round, against a directory."""
    subject, _ = llama

    def swapped(ffn):
        return {**ffn, "gate": ffn["up"], "up": ffn["gate"]}

    tree = subject.stand_in.variables["params"]
    tree = {
        name: {**layer, "ffn": swapped(layer["ffn"])} if name.startswith("layer_") else layer
        for name, layer in tree.items()
    }
    twin = subject.stand_in.but(variables={"params": tree})
    function = diff.Called("code:model", lambda tokens: twin.trace(diff.Inputs(tokens)).values)
    found = diff.difference(function, subject, inputs_of(subject))
    assert found.side == "llama, read into a model of ours"
    assert found.rounds[0].best[0].kind == "gate and up swapped"


def test_padding_is_counted_alike(llama):
    subject, _ = llama
    inputs = inputs_of(subject)
    inputs = inputs._replace(valid=diff.padded(inputs.tokens, 3))
    assert diff.difference(subject.stand_in, subject, inputs, gradients=True).equal


def test_weights_in_bfloat16_are_known_by_their_numbers(llama, tmp_path):
    """The same weights, stored more coarsely: more than float32 rounds, but no difference."""
    subject, directory = llama
    model = transformers.LlamaForCausalLM.from_pretrained(directory)
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    coarse = diff.foreign("coarse", tmp_path)
    inputs = inputs_of(subject)
    assert (subject.trace(inputs).stored, coarse.trace(inputs).stored) == ("float32", "bfloat16")
    assert diff.difference(coarse, subject, inputs).equal
    logits = [side.trace(inputs).values["logits"] for side in (subject, coarse)]
    assert np.abs(logits[0] - logits[1]).max() > 1e-3
    assert len(jax.tree.leaves(coarse.stand_in.variables)) > 10


def test_the_command_runs_directories(llama, tmp_path, capsys):
    _, directory = llama
    assert cli.main(["diff", str(directory), str(directory), "--tokens", "5 3 9; 1 2 7"]) == 0
    assert "Equal: all" in capsys.readouterr().out
    other = saved("llama3-biased-tied", tmp_path)
    assert cli.main(["diff", str(directory), str(other), "--length", "6"]) == 1
    assert "<- first" in capsys.readouterr().out


def tokenizer(directory):
    """Saves a tokenizer of words."""
    words = tokenizers.models.WordLevel({"the": 5, "dog": 6, "walks": 7}, "the")
    own = tokenizers.Tokenizer(words)
    own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=own, unk_token="the").save_pretrained(
        directory
    )


def found_by_command(capsys, *words):
    capsys.readouterr()
    code = cli.main(["diff", *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_text_is_read_by_the_tokenizer_of_a_directory(llama, capsys):
    subject, directory = llama
    tokenizer(directory)
    code, found = found_by_command(capsys, directory, directory, "--text", "the dog walks")
    assert code == 0 and found["equal"]
    given = found_by_command(capsys, directory, directory, "--tokens", "5 6 7")[1]
    assert found == given
    assert f"{subject.spec.layers - 1}/ffn/activation" in str(found["places"])


@pytest.mark.slow
def test_a_source_is_given_to_both_stacks(tmp_path, capsys):
    directory = saved("t5", tmp_path)
    words = (directory, directory, "--tokens", "5 6 7", "--source", "2 3 4 5")
    code, found = found_by_command(capsys, *words)
    assert code == 0
    names = {row["place"] for row in found["places"]}
    assert {"encoder/layer_0/attention/weights", "decoder/layer_0/cross_attention/weights"} <= names
    assert cli.main(["diff", *map(str, words[:-1]), "2 3; 4 5"]) == 2
    assert "--source has 2 rows and the target 1" in capsys.readouterr().err
