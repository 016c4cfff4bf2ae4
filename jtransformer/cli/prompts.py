"""Prompts, laid out as the rows that a run was trained on, and how tokens are shown."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jtransformer.cli.run_directory import TrainedRun
from jtransformer.spec import MaskedLM, Seq2Seq, SpanCorruption, SpecError, Words

SENTINEL = re.compile(r"<extra_id_([0-9]+)>")
"""How a user writes where a span is missing, as T5's tokenizer does."""


class Asked(NamedTuple):
    """A prompt as the run's rows have it.

    Attributes:
        prompt: What the decoder continues.
        source: What the encoder reads; None without one.
        shown: The part of the prompt whose text the continuation goes on from.
    """

    prompt: list[int]
    source: list[int] | None
    shown: list[int]


def ask(trained: TrainedRun, text: str) -> Asked:
    """Lays a prompt out as the rows that the run was trained on.

    Raises:
        SpecError: If the run continues nothing, or the prompt is empty and nothing stands before
            a text.
    """
    special, objective = trained.specials, trained.spec.objective
    if isinstance(objective, MaskedLM):
        raise SpecError(
            "",
            "The run fills in masked tokens (objective.kind 'masked_lm') and continues nothing; "
            "generate with a run of another objective.",
        )
    if trained.imported is not None:
        return _as_trained_elsewhere(trained, text)
    if isinstance(objective, SpanCorruption):
        return Asked([special.bos], _with_sentinels(trained, text), [])
    ids = [int(token) for token in trained.tokenizer.encode(text)]
    if isinstance(objective, Seq2Seq):
        return Asked([special.bos], [*ids, special.eos], [])
    if trained.spec.data.has_pairs:
        return Asked([*ids, special.bos], None, [])
    # In a stream of documents, what stands before one is the end of another.
    begin = special.bos if special.bos is not None else special.eos
    prompt = ids if begin is None else [begin, *ids]
    if not prompt:
        raise SpecError("--prompt", "is empty, and this run has no token that begins a text.")
    return Asked(prompt, None, ids)


def _as_trained_elsewhere(trained: TrainedRun, text: str) -> Asked:
    """Lays a prompt out as an imported model has seen texts: its tokenizer says what is around."""
    assert trained.imported is not None
    ids = [int(token) for token in trained.tokenizer.encode_marked(text)]
    if trained.spec.model.has_encoder:
        start = list(trained.imported.start)
        if not start:
            raise SpecError(
                "decoder_start_token_id",
                "is missing in the config.json that the run was imported with, so nobody knows "
                "what an answer begins with; add it and import again.",
            )
        return Asked(start, ids, [])
    if not ids:
        raise SpecError("--prompt", "is empty, and this model has no token that begins a text.")
    return Asked(ids, None, ids)


def _with_sentinels(trained: TrainedRun, text: str) -> list[int]:
    """Reads a text in which <extra_id_0> … stand for what is missing."""
    sentinels = trained.specials.sentinels[:-1]
    of_number = {str(i): token for i, token in enumerate(sentinels)}
    gap, ids = _gap(trained), []
    # Split by a pattern with a group, so that text and numbers alternate.
    parts = SENTINEL.split(text)
    for place, part in enumerate(parts):
        if place % 2 == 0:
            part = part.removeprefix(gap) if place else part
            part = part.removesuffix(gap) if place + 1 < len(parts) else part
            ids += [int(token) for token in trained.tokenizer.encode(part)]
        elif part in of_number:
            ids.append(of_number[part])
        else:
            raise SpecError(
                "--prompt",
                f"holds <extra_id_{part}>, and this run has <extra_id_0> … "
                f"<extra_id_{len(sentinels) - 1}>.",
            )
    if not set(ids) & set(sentinels):
        raise SpecError(
            "--prompt",
            "must hold <extra_id_0> where something is missing, since this run fills in spans.",
        )
    return ids


def _gap(trained: TrainedRun) -> str:
    """Returns what stands between two tokens of a text and is in neither."""
    return " " if isinstance(trained.spec.data.tokenizer, Words) else ""


def decoder(trained: TrainedRun) -> Callable[[Sequence[int]], str]:
    """Returns how ids are shown: special tokens are left out, but for what stands for a span."""
    names = {token: f"<extra_id_{i}>" for i, token in enumerate(trained.specials.sentinels)}

    def decode(ids: Sequence[int]) -> str:
        shown, text = [], []
        for token in ids:
            if token in names:
                shown += [trained.tokenizer.decode(text), names[token]]
                text = []
            else:
                text.append(token)
        return _gap(trained).join(filter(None, [*shown, trained.tokenizer.decode(text)]))

    return decode
