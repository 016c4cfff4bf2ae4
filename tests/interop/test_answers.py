"""Runs that were imported, as commands use them: answers of encoder-decoders, identity, export."""

import json
import shutil

import jax
import pytest
import tokenizers
import torch
import transformers
from safetensors.numpy import load_file, save_file
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from jtransformer import records
from jtransformer.cli import main
from jtransformer.cli.imported import made_whole
from jtransformer.spec import SpecError

PAD, END = 0, 1
TEXT = "In the beginning God created the heaven and the earth."
LIMIT = 6
MARIAN = dict(
    vocab_size=270,
    d_model=12,
    encoder_layers=1,
    decoder_layers=2,
    encoder_attention_heads=3,
    decoder_attention_heads=3,
    encoder_ffn_dim=20,
    decoder_ffn_dim=20,
    max_position_embeddings=40,
    pad_token_id=PAD,
    eos_token_id=END,
    decoder_start_token_id=PAD,
    bos_token_id=None,
    forced_eos_token_id=None,
)
T5 = dict(
    vocab_size=270,
    d_model=12,
    d_kv=5,
    d_ff=20,
    num_layers=2,
    num_decoder_layers=2,
    num_heads=3,
    pad_token_id=PAD,
    eos_token_id=END,
    decoder_start_token_id=PAD,
)
MODELS = {
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)),
    "marian": lambda: transformers.MarianMTModel(transformers.MarianConfig(**MARIAN)),
}


@pytest.fixture(scope="module", autouse=True)
def as_commands_run(promotion):
    """Training mixes dtypes, as tests/cli allows too."""
    del promotion
    before = jax.config.jax_numpy_dtype_promotion
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", before)


def tokenizer():
    """Makes a tokenizer that puts the end behind every text."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "</s>"]
    made.train_from_iterator(
        [TEXT],
        trainers.BpeTrainer(
            vocab_size=265, initial_alphabet=alphabet, special_tokens=special, show_progress=False
        ),
    )
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", END)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="</s>"
    )


@pytest.fixture(scope="module", params=["marian", pytest.param("t5", marks=pytest.mark.slow)])
def reference(request, tmp_path_factory):
    """A directory with an encoder-decoder and a tokenizer; the model and the tokenizer."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    directory = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    model, made = MODELS[request.param]().eval(), tokenizer()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # Marian's sinusoids are not stored.
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    made.save_pretrained(directory)
    return directory, model, made


def said(capsys, *words):
    capsys.readouterr()
    code = main([str(word) for word in words])
    out = capsys.readouterr()
    assert code == 0, out.err
    return json.loads(out.out), out.err


def answer(capsys, run):
    words = ["--prompt", TEXT, "--temperature", "0", "--limit", LIMIT, "--json"]
    found, err = said(capsys, "generate", "--workdir", run, *words)
    return found["continuations"][0]["tokens"], err


def test_an_encoder_decoder_answers_as_the_reference(reference, capsys, tmp_path):
    directory, model, made = reference
    said(capsys, "import_hf", directory, "--workdir", tmp_path / "run", "--json")
    source = made(TEXT, return_tensors="pt")["input_ids"]
    assert source[0, -1] == END
    options = dict(max_new_tokens=LIMIT, do_sample=False, num_beams=1)
    theirs = model.generate(source, **options)[0, 1:].tolist()
    ours, err = answer(capsys, tmp_path / "run")
    assert ours == theirs and "would choose other tokens" not in err
    # What is in no text, as the padding of Marian's published models, is in none here.
    never = [[theirs[0]]]
    other = model.generate(source, bad_words_ids=never, **options)[0, 1:].tolist()
    steer = tmp_path / "run" / "hugging_face" / "generation_config.json"
    content = json.loads(steer.read_text()) | {"bad_words_ids": never}
    steer.write_text(json.dumps(content))
    ours, _ = answer(capsys, tmp_path / "run")
    assert ours == other != theirs
    steer.write_text(json.dumps(content | {"repetition_penalty": 1.5}))
    _, err = answer(capsys, tmp_path / "run")
    assert "would choose other tokens" in err and "repetition_penalty=1.5" in err


@pytest.fixture
def marian(tmp_path):
    MODELS["marian"]().save_pretrained(tmp_path / "marian")
    return tmp_path / "marian"


@pytest.mark.slow
def test_imports_of_equal_specs_are_told_apart_by_their_content(marian, capsys, tmp_path):
    def fingerprint(directory, run):
        found, _ = said(capsys, "import_hf", directory, "--workdir", tmp_path / run, "--json")
        about = records.read_json(tmp_path / run / "spec.json")
        assert about["fingerprint"] == found["fingerprint"]
        return found["fingerprint"]

    first = fingerprint(marian, "first")
    assert fingerprint(shutil.copytree(marian, tmp_path / "moved"), "second") == first
    tensors = load_file(marian / "model.safetensors")
    name = "model.decoder.layers.1.fc1.bias"
    save_file(tensors | {name: tensors[name] + 1}, marian / "model.safetensors")
    other = fingerprint(marian, "third")
    tokenizer().save_pretrained(marian)
    assert len({first, other, fingerprint(marian, "fourth")}) == 3


def test_an_import_that_fails_leaves_nothing(marian, capsys, tmp_path):
    tensors = load_file(marian / "model.safetensors")
    name = "model.decoder.layers.1.fc1.bias"
    save_file(tensors | {name: tensors[name] * float("nan")}, marian / "model.safetensors")
    assert main(["import_hf", str(marian), "--workdir", str(tmp_path / "run")]) == 2
    assert "not finite" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_directory_is_made_whole_or_not_at_all(tmp_path):
    place = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt), made_whole(place, "last") as partial:
        (partial / "first").write_text("")
        raise KeyboardInterrupt
    assert not place.exists()
    # What was killed outright is begun anew.
    (place / ".partial").mkdir(parents=True)
    (place / ".partial" / "torn").write_text("")
    with made_whole(place, "last") as partial:
        (partial / "last").write_text("")
        (partial / "first").mkdir()
        assert [path.name for path in place.iterdir()] == [".partial"]
    assert sorted(path.name for path in place.iterdir()) == ["first", "last"]
    with pytest.raises(SpecError, match="is not empty"), made_whole(place, "last"):
        pass
    with pytest.raises(SpecError, match="is a file"), made_whole(place / "last", "last"):
        pass
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(SpecError, match="leads nowhere"), made_whole(tmp_path / "link", "last"):
        pass


def test_an_imported_run_was_not_trained_here(marian, capsys, tmp_path):
    said(capsys, "import_hf", marian, "--workdir", tmp_path / "run", "--json")
    assert main(["reproduce", "--workdir", str(tmp_path / "run")]) == 2
    assert "was imported, not trained" in capsys.readouterr().err
