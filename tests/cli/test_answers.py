"""Tests of how answers in text are scored: real pairs by the commands, beside sacrebleu itself."""

import itertools
import re

import pytest
import sacrebleu.metrics

from jtransformer import cli
from jtransformer.data.sources import read_text
from jtransformer.spec import Kjv

CONFIG = '''"""Can it modernise the language of 1611?"""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    config = to_config(presets.translation(width=64, layers=1))
    config.model.norm_placement = "pre"
    config.model.vocabulary = 64
    config.data.source.kind = "text_pairs"
    config.data.source.text_pairs.path = {path!r}
    config.data.tokenizer.kind = "characters"
    config.data.source_length = config.data.length = 40
    config.data.validation_fraction = config.data.test_fraction = 0.01
    config.data.too_long = "skip"
    config.optimizer.rule.kind = "adamw"
    config.optimizer.learning_rate = 3e-3
    config.schedule.kind = "warmup_cosine"
    config.schedule.warmup_cosine.warmup_steps = 50
    for place in ("embedding", "attention", "ffn", "residual"):
        config.model.dropout[place] = 0.0
    config.training.steps = config.training.evaluate_every = 350
    config.training.checkpoint_every = 350
    config.training.batch_size = 32
    return config
'''
TODAY = {"thou": "you", "thee": "you", "ye": "you", "thy": "your", "unto": "to", "hath": "has",
         "shalt": "shall", "saith": "says", "doth": "does", "hast": "have"}  # fmt: skip


def references():
    """Returns clauses of the Bible, each as of today, and where that is new also as it is."""
    text = read_text(Kjv())[:700_000].tobytes().decode()
    clauses = re.findall(r"[A-Za-z]+(?: [A-Za-z]+){3,5}(?=[,;:.])", text)
    old = re.compile(rf"\b(?:{'|'.join(TODAY)})\b")
    found = {}
    for clause in clauses:
        new = re.sub(r"([a-z]{3})eth\b", r"\1es", old.sub(lambda word: TODAY[word[0]], clause))
        found[clause] = list(dict.fromkeys([new, clause]))
    return found


@pytest.mark.slow
def test_bleu_and_chrf_are_those_of_sacrebleu_on_the_answers_shown(tmp_path, capsys):
    right = references()
    assert len(right) > 10_000 and {len(rights) for rights in right.values()} == {1, 2}
    lines = [f"{clause}\t{way}\n" for clause, rights in right.items() for way in rights]
    (tmp_path / "pairs").write_text("".join(lines))
    (tmp_path / "config.py").write_text(CONFIG.format(path=str(tmp_path / "pairs")))
    run = str(tmp_path / "run")
    assert cli.main(["train", "--config", str(tmp_path / "config.py"), "--workdir", run]) == 0
    capsys.readouterr()
    assert cli.main(["evaluate", "--workdir", run, "--part", "test", "--show", "9999"]) == 0
    printed, _, shown = capsys.readouterr().out.partition("source  ->  answer  [references]\n")

    rows = [re.fullmatch(r"  (.*)  ->  (.*)  \[.*\]", line).groups() for line in shown.splitlines()]
    answers = {source: "" if answer == "(nothing)" else answer for source, answer in rows}
    assert len(answers) > 50 and f" of {len(answers)} sources" in printed
    rights = [right[source] for source in answers]
    hits = sum(answer in ways for answer, ways in zip(answers.values(), rights, strict=True))
    assert 0 < hits < len(answers)
    assert f"exact match              {hits / len(answers):.2%}" in printed
    streams = list(map(list, itertools.zip_longest(*rights)))
    for name, metric in (("bleu", sacrebleu.metrics.BLEU()), ("chrf", sacrebleu.metrics.CHRF())):
        score = metric.corpus_score(list(answers.values()), streams).score
        assert 10 < score < 99
        assert f"{name:<24} {score:.2f}  ({metric.get_signature()})" in printed
