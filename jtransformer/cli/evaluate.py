"""Measures a trained run on a part of its data: loss, and answers where it was trained on pairs.

usage: jtransformer evaluate --workdir RUN [flags]

The loss is plain negative log-likelihood. A run on pairs also answers every different source of the
part, the most probable token at every step or by a beam search, and is scored by the share of
answers that are right (with its 95 % interval), by error rates for words and phonemes against the
nearest reference, and by BLEU and chrF for other text.

  --part PART          train, validation or test (validation)
  --examples N         answer so many sources alone (all)
  --beams W            search with W beams
  --length T           read rows of T tokens instead of the trained length
  --checkpoint WHICH   newest, or best by validation (newest)
  --show N             print so many answers beside their references (5)
  --json               print one JSON object

example: jtransformer evaluate --workdir runs/reverse --part test
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from absl import flags

from jtransformer import records
from jtransformer.cli.arguments import read_flags
from jtransformer.cli.imported import at_hand
from jtransformer.cli.run_directory import NEWEST, read_corpus, read_run
from jtransformer.data.corpus import PARTS
from jtransformer.spec import RunSpec, SpecError, nearest


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    how = _how(values)
    workdir = Path(values.workdir).expanduser()
    trained = read_run(workdir, values.checkpoint)
    spec = trained.spec if values.length is None else _at_length(trained.spec, values.length)
    if not spec.data.has_pairs:
        _refuse_unused(values, "without pairs in data.source there is nothing to answer")

    from jtransformer import data
    from jtransformer.training import Program, mean_nll

    recorded = records.read_json(records.RunFiles(workdir).spec)["data_sha256"]
    corpus = read_corpus(workdir, trained.spec, recorded)
    if spec != trained.spec:
        corpus = data.load(at_hand(spec, workdir).data, spec.objective)
    batches = data.evaluation_batches(corpus, values.part, spec)
    found: dict[str, Any] = {
        "workdir": values.workdir,
        "step": trained.step,
        "part": values.part,
        "length": spec.data.length,
        "nll": mean_nll(Program(spec), trained.variables["params"], batches),
    }
    shown: list[str] = []
    if spec.data.has_pairs:
        from jtransformer.cli.answers import answer, scores

        answers = answer(trained, corpus, values.part, values.examples, how)
        found |= scores(trained, answers)
        rows = zip(*answers, strict=True)
        shown = [
            f"{source}  ->  {answer or '(nothing)'}  [{' | '.join(rights)}]"
            for source, answer, rights in list(rows)[: values.show]
        ]
    if values.json:
        print(json.dumps(found))
        return 0
    _print(found, shown)
    return 0


def _at_length(spec: RunSpec, length: int) -> RunSpec:
    if spec.data.has_pairs:
        raise SpecError("--length", "is for texts; the examples here end where they end.")
    try:
        return dataclasses.replace(spec, data=dataclasses.replace(spec.data, length=length))
    except SpecError as error:
        raise SpecError("--length", f"= {length} does not suit this run: {error}") from None


def _print(found: dict[str, Any], shown: list[str]) -> None:
    print(
        f"{found['workdir']} at step {found['step']}, part {found['part']}, "
        f"rows of {found['length']} tokens"
    )
    print(f"  negative log-likelihood  {found['nll']:.4f} nats per scored token")
    if "examples" not in found:
        return
    exact = found["exact_match"]
    print(
        f"  exact match              {exact['value']:.2%} of {found['examples']} sources "
        f"(95 % interval {exact['low']:.2%} to {exact['high']:.2%})"
    )
    for name, value in found.items():
        if name.endswith("_rate"):
            print(f"  {name.replace('_', ' '):<24} {value:.2%}")
        elif name in ("bleu", "chrf"):
            print(f"  {name:<24} {value['value']:.2f}  ({value['signature']})")
    if shown:
        print("source  ->  answer  [references]")
    for line in shown:
        print(f"  {line}")


def _how(values: flags.FlagValues) -> Any:
    from jtransformer.generation import BeamSearch

    if values.beams is None:
        return None
    try:
        return BeamSearch(width=values.beams)
    except SpecError as error:
        raise SpecError("--beams", error.problem) from None


def _refuse_unused(values: flags.FlagValues, reason: str) -> None:
    for name in ("examples", "beams", "show"):
        if values[name].present:
            raise SpecError(f"--{name}", f"would do nothing: {reason}.")


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", None, "workdir", flag_values=values)
    flags.DEFINE_string("checkpoint", NEWEST, "checkpoint", flag_values=values)
    flags.DEFINE_string("part", "validation", "part", flag_values=values)
    for name, default in (("examples", None), ("beams", None), ("length", None), ("show", 5)):
        flags.DEFINE_integer(name, default, name, flag_values=values)
    flags.DEFINE_bool("json", False, "json", flag_values=values)
    read_flags(values, argv, stray="see --help")
    if not values.workdir:
        raise SpecError("--workdir", "is missing; add --workdir RUN.")
    if values.json and values["show"].present:
        raise SpecError("--show", "would do nothing with --json, which prints figures alone.")
    if values.part not in PARTS:
        raise SpecError("--part", f"= {values.part!r} is unknown; {nearest(values.part, PARTS)}.")
    for name, least in (("examples", 1), ("length", 1), ("show", 0)):
        number = getattr(values, name)
        if number is not None and number < least:
            raise SpecError(f"--{name}", f"must be at least {least}, got {number}.")
    return values
