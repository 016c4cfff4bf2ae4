"""Commands that read and write Hugging Face directories, from one to a run and back."""

import json

import jax
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from jtransformer.cli import main
from jtransformer.interop import load
from jtransformer.interop.mapping import flat

BEGIN, END = "<begin>", "<end>"
TEXT = "In the beginning God created the heaven and the earth. And the earth was without form."
PROMPT, ADDED = "In the earth", 9


@pytest.fixture(scope="module", autouse=True)
def as_commands_run(promotion):
    """Training mixes dtypes, as tests/cli allows too."""
    del promotion
    before = jax.config.jax_numpy_dtype_promotion
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", before)


def tokenizer():
    """Makes a tokenizer that puts a token before every text, as Llama's does."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[BEGIN, END],
        show_progress=False,
    )
    made.train_from_iterator([TEXT], trainer)
    made.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, 0)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=BEGIN, eos_token=END
    )


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A directory with a Llama and a tokenizer; the model and the tokenizer."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    directory = tmp_path_factory.mktemp("reference")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=300,
        hidden_size=24,
        intermediate_size=44,
        num_hidden_layers=1,
        num_attention_heads=3,
        num_key_value_heads=1,
        bos_token_id=0,
        eos_token_id=1,
        max_position_embeddings=77,
    )
    model, made = transformers.LlamaForCausalLM(config).eval(), tokenizer()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    made.save_pretrained(directory)
    return directory, model, made


@pytest.fixture(scope="module")
def run(reference, tmp_path_factory):
    """The run that is imported, with a text to measure it on."""
    folder = tmp_path_factory.mktemp("imported")
    text = folder / "text.txt"
    text.write_text(TEXT * 60)
    words = ["--workdir", str(folder / "run"), "--text", str(text), "--length", "16"]
    assert main(["import_hf", str(reference[0]), *words]) == 0
    return folder / "run"


def said(capsys, *words):
    code = main([str(word) for word in words])
    out = capsys.readouterr()
    assert code == 0, out.err
    return json.loads(out.out)


def refused(capsys, *words):
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    sentence = capsys.readouterr().err
    assert sentence.count("\n") == 1
    return sentence


def test_generate_gives_the_tokens_of_the_reference(run, reference, capsys):
    _, model, made = reference
    given = made(PROMPT, return_tensors="pt")["input_ids"]
    assert given[0, 0] == 0
    theirs = model.generate(given, max_new_tokens=ADDED, do_sample=False)[0, given.shape[1] :]
    words = ["--prompt", PROMPT, "--temperature", "0", "--limit", ADDED, "--json"]
    (found,) = said(capsys, "generate", "--workdir", run, *words)["continuations"]
    assert found["tokens"] == theirs.tolist()
    assert found["text"].strip() == made.decode(theirs, skip_special_tokens=True).strip()


def test_generation_ends_with_the_token_of_the_config(run, reference, capsys, tmp_path):
    _, model, made = reference
    given = made(PROMPT, return_tensors="pt")["input_ids"]
    third = int(model.generate(given, max_new_tokens=3, do_sample=False)[0, -1])
    # Whichever of several it is.
    settings = {"eos_token_id": [299, third]}
    (run / "hugging_face" / "generation_config.json").rename(tmp_path / "kept")
    (run / "hugging_face" / "generation_config.json").write_text(json.dumps(settings))
    words = ["--prompt", PROMPT, "--temperature", "0", "--limit", ADDED, "--json"]
    (found,) = said(capsys, "generate", "--workdir", run, *words)["continuations"]
    (tmp_path / "kept").rename(run / "hugging_face" / "generation_config.json")
    assert found["finished"] and found["tokens"][-1] == third and len(found["tokens"]) <= 3


def test_evaluate_measures_it_on_the_text(run, capsys):
    found = said(capsys, "evaluate", "--workdir", run, "--json")
    assert found["step"] == 0 and 3 < found["nll"] < 12


def test_an_imported_run_may_be_moved(run, capsys, tmp_path):
    before = said(capsys, "evaluate", "--workdir", run, "--json")["nll"]
    moved = run.rename(tmp_path / "moved")
    after = said(capsys, "evaluate", "--workdir", moved, "--json")["nll"]
    moved.rename(run)
    assert after == before


def test_export_gives_back_what_was_imported(run, reference, capsys, tmp_path):
    directory, model, made = reference
    target = tmp_path / "new"
    found = said(capsys, "export_hf", run, target, "--json")
    assert found["family"] == "llama" and "tokenizer.json" in found["tokenizer"]
    first, second = load(directory), load(target)
    assert second.spec == first.spec
    for path, leaf in flat(first.variables).items():
        np.testing.assert_array_equal(leaf, flat(second.variables)[path], err_msg=path)
    # What the family does not compute with came along.
    kept = ("bos_token_id", "eos_token_id", "max_position_embeddings")
    assert [second.config[name] for name in kept] == [0, 1, 77]
    again = transformers.AutoModelForCausalLM.from_pretrained(target)
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    theirs = transformers.AutoTokenizer.from_pretrained(target)
    assert theirs(TEXT)["input_ids"] == made(TEXT)["input_ids"]


def test_a_model_without_a_tokenizer_is_imported(reference, capsys, tmp_path):
    directory, model, _ = reference
    model.save_pretrained(tmp_path / "bare")
    run = tmp_path / "run"
    found = said(capsys, "import_hf", tmp_path / "bare", "--workdir", run, "--json")
    assert found["tokenizer"] is None and not found["can_be_evaluated"]
    assert found["parameters"] == sum(p.numel() for p in model.parameters())
    assert "without a tokenizer" in refused(capsys, "generate", "--workdir", run, "--prompt", "a")
    assert "without a tokenizer" in refused(capsys, "evaluate", "--workdir", run)
    assert said(capsys, "export_hf", run, tmp_path / "again", "--json")["tokenizer"] == []
    assert (tmp_path / "again/generation_config.json").exists()
    assert flat(load(tmp_path / "again").variables).keys()
    del directory


def test_mistakes_are_told_in_a_sentence(run, reference, capsys, tmp_path):
    directory = reference[0]
    assert "first word" in refused(capsys, "import_hf", "--workdir", tmp_path / "a")
    assert "--workdir is missing" in refused(capsys, "import_hf", directory)
    assert "is not empty" in refused(capsys, "import_hf", directory, "--workdir", run)
    assert "is no directory" in refused(
        capsys, "import_hf", tmp_path / "b", "--workdir", tmp_path / "c"
    )
    assert not (tmp_path / "c").exists()
    assert "is not empty" in refused(capsys, "export_hf", run, directory)
    assert "holds no run" in refused(capsys, "export_hf", tmp_path, tmp_path / "d")
    assert "family = 'gpt3' is not known" in refused(
        capsys, "export_hf", run, tmp_path / "d", "--family", "gpt3"
    )
    assert "cannot be expressed by the family qwen2" in refused(
        capsys, "export_hf", run, tmp_path / "d", "--family", "qwen2"
    )
    assert not (tmp_path / "d").exists()


def test_a_tokenizer_of_another_model_is_refused(reference, capsys, tmp_path):
    directory = reference[0]
    other = tmp_path / "other"
    other.mkdir()
    for path in directory.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    settings = json.loads((other / "tokenizer.json").read_text())
    settings["model"]["vocab"]["zzz"] = 300
    (other / "tokenizer.json").write_text(json.dumps(settings))
    assert "do not belong together" in refused(
        capsys, "import_hf", other, "--workdir", tmp_path / "run"
    )


@pytest.mark.parametrize("command", ["import_hf", "export_hf"])
def test_help_shows_an_example(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"example: jtransformer {command}" in capsys.readouterr().out
