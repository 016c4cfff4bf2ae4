"""Hypotheses about what stands before and behind the layers, and about types of numbers."""

import dataclasses

from jtransformer.diff.hypotheses.kinds import Found, Hypothesis, at_top, cast, of_changes
from jtransformer.diff.ours import Ours
from jtransformer.spec import Precision, TokenHead

SIXTEEN = ("bfloat16", "float16")


def embedding_scale(ours: Ours) -> Found:
    """Yields embeddings with the factor sqrt(width), or without it."""
    word = "without" if ours.spec.scale_embedding else "with"
    fields = {f"{word} the embedding scale": {"scale_embedding": not ours.spec.scale_embedding}}
    yield from of_changes("embedding scale", "embedded", ours, fields)


def head(ours: Ours) -> Found:
    """Yields a tied head with its factor or without it, and an untied one that is tied."""
    own = ours.spec.head
    if not isinstance(own, TokenHead):
        return
    if own.tied:
        word = "without" if own.scale_down else "with"
        other = dataclasses.replace(own, scale_down=not own.scale_down)
        fields = {f"{word} the factor (width)^-0.5 of the tied head": {"head": other}}
        yield from of_changes("tied head scale", "logits", ours, fields)
    else:
        changed = ours.respecified(head=dataclasses.replace(own, tied=True))
        if changed is not None:
            tree = ours.variables["params"]["head"]
            bias = {"head": {"bias": tree["bias"]} if "bias" in tree else None}
            words = "with the head tied to the embeddings"
            yield Hypothesis("tied head", words, "logits", at_top(changed, **bias))
    if own.soft_cap is not None:
        fields = {"without a cap of the logits": {"head": dataclasses.replace(own, soft_cap=None)}}
        yield from of_changes("cap of the logits", "logits", ours, fields)


def label_shift(ours: Ours) -> Found:
    """Yields labels that are not shifted, or shifted twice."""
    if not isinstance(ours.spec.head, TokenHead):
        return
    words = {
        0: "with labels that are not shifted",
        1: "with labels shifted by one token",
        2: "with labels shifted twice",
    }
    usual = 1 if ours.spec.causal else 0
    own = usual if ours.label_shift is None else ours.label_shift
    for shift, sentence in words.items():
        if shift != own:
            yield Hypothesis("label shift", sentence, "loss", ours.but(label_shift=shift))


def dtype(ours: Ours) -> Found:
    """Yields parameters that were rounded to 16 bits, and computing in 16 bits or in 32."""
    kind = "dtype"
    for name in SIXTEEN:
        if ours.stored != name:
            words = f"with parameters rounded to {name}"
            rounded = ours.but(variables=cast(ours, name))
            yield Hypothesis(kind, words, "", rounded.but(variables=cast(rounded, "float32")))
        if ours.computed != name:
            words = f"computed in {name}"
            yield Hypothesis(kind, words, "", ours.but(variables=cast(ours, name)))
    if ours.computed == "float32":
        precision = Precision(
            stream="bfloat16", attention="bfloat16", ffn="bfloat16", head="bfloat16"
        )
        fields = {"with products in bfloat16": {"precision": precision}}
        yield from of_changes(kind, "", ours, fields)
    else:
        changed = ours.respecified(precision=Precision())
        if changed is not None:
            changed = changed.but(variables=cast(ours, "float32"))
            yield Hypothesis(kind, "computed in float32", "", changed)
