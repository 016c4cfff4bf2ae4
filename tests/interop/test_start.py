"""From a Hugging Face directory to a sweep by one command: it starts where the reference stands."""

from pathlib import Path

import jax
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, trainers

from jtransformer import data, records
from jtransformer.cli import main
from jtransformer.sweep import cell_spec

EXAMPLE = Path(__file__).parents[2] / "experiments" / "from_hugging_face" / "config.py"
LINES = ("In the beginning God created", "the heaven and the earth.", "And the earth was void,")
ARMS = """
import importlib.util

_found = importlib.util.spec_from_file_location("example", {example!r})
_example = importlib.util.module_from_spec(_found)
_found.loader.exec_module(_example)
get_config = _example.get_config


def get_sweep():
    return dict(scientific={{"model.ffn_width": (44, 52)}}, seeds=(0, 1))
"""
# So small a step that no parameter moves.
STILL = ["--config.optimizer.learning_rate=1e-12", "--config.training.steps=1"]
STILL += ["--config.training.evaluate_every=1", "--config.schedule.warmup_cosine.warmup_steps=0"]


@pytest.fixture(scope="module", autouse=True)
def as_commands_run(promotion):
    """Training mixes dtypes, as tests/cli allows too."""
    del promotion
    before = jax.config.jax_numpy_dtype_promotion
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", before)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    drawn = np.random.default_rng(0).choice(LINES, 400)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(drawn))
    return path


@pytest.fixture(scope="module")
def reference(text, tmp_path_factory):
    """A directory with a GPT-2 and a tokenizer, and the model."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    directory = tmp_path_factory.mktemp("reference")
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([text.read_text()], trainer)
    transformers.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(directory)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=290, n_embd=24, n_layer=2, n_head=3, n_positions=150, n_inner=44
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    ids = torch.tensor(made.encode(text.read_text()).ids)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(40):  # A model that is worse than a guess counts as diverged.
        rows = ids[16 * step : 16 * step + 128].reshape(4, 32)
        optimizer.zero_grad()
        model(rows, labels=rows).loss.backward()
        optimizer.step()
    model.save_pretrained(directory)
    return directory, model


def mean_loss(model, spec):
    """The mean loss of the reference over the rows of the validation part."""
    corpus = data.load(spec.data, spec.objective)
    total, count = 0.0, 0.0
    for batch in data.evaluation_batches(corpus, "validation", spec):
        with torch.no_grad():
            logits = model(torch.tensor(np.asarray(batch.tokens), dtype=torch.long)).logits
        labels = torch.tensor(np.asarray(batch.labels), dtype=torch.long)
        each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        weights = torch.tensor(np.asarray(batch.weights), dtype=torch.float32)
        total += float((each * weights).sum())
        count += float(weights.sum())
    return total / count


def test_one_command_leads_from_the_directory_to_a_sweep(
    reference, text, tmp_path, monkeypatch, capsys
):
    directory, model = reference
    monkeypatch.setenv("MODEL", str(directory))
    config, workdir = tmp_path / "config.py", tmp_path / "out"
    config.write_text(ARMS.format(example=str(EXAMPLE)))
    words = ["--config.data.source.kind=text_file", f"--config.data.source.text_file.path={text}"]
    words += ["--config.data.length=64", "--config.data.validation_fraction=0.1"]
    words += ["--config.data.test_fraction=0.1", *STILL, "--workdir", str(workdir)]
    assert main(["sweep", "--config", str(config), *words]) == 0
    sweep = records.load_sweep(workdir)
    assert [run.state for run in sweep.runs] == ["done"] * 4
    for run in sweep.runs:
        found, spec = run.metrics[0]["validation_nll"], cell_spec(sweep.manifest, run.cell)
        theirs = mean_loss(model, spec)
        same = abs(found - theirs) < 1e-4 * theirs
        assert same == (spec.model.ffn_width == 44), (found, theirs)
    page = (workdir / "report" / "index.html").read_text()
    assert "has taken over 36 of 36 parameters, 100 % of the numbers" in page
    assert "has taken over 30 of 36 parameters" in page
    assert "layer_*/ffn/in/kernel (2 times, of shape 24x44 there instead of 24x52)" in page
    assert "takes over from" in capsys.readouterr().err


def test_the_example_starts_alike_from_the_directory_and_from_the_imported_run(
    reference, text, tmp_path, monkeypatch, capsys
):
    words = ["--workdir", str(tmp_path / "run"), "--text", str(text), "--length", "16"]
    assert main(["import_hf", str(reference[0]), *words]) == 0
    for model in (reference[0], tmp_path / "run"):
        monkeypatch.setenv("MODEL", str(model))
        words = ["--config.data.source.kind=text_file", "--config.data.length=64"]
        words += [f"--config.data.source.text_file.path={text}", "--dry_run"]
        words += ["--config.data.validation_fraction=0.1", "--config.data.test_fraction=0.1"]
        capsys.readouterr()
        out = str(tmp_path / "out")
        assert main(["sweep", "--config", str(EXAMPLE), "--workdir", out, *words]) == 0
        lines = capsys.readouterr().out
        assert "36 of 36 parameters, 100 % of the numbers" in " ".join(lines.split())
        assert "Warning" not in lines


def test_a_directory_and_its_imported_run_are_one_start(reference, text, tmp_path):
    from jtransformer.training import read_start

    words = ["--workdir", str(tmp_path / "run"), "--text", str(text), "--length", "16"]
    assert main(["import_hf", str(reference[0]), *words]) == 0
    there, here = (read_start(str(path)).origin for path in (reference[0], tmp_path / "run"))
    assert there._replace(directory="") == here._replace(directory="")
