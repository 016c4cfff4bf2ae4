"""Continues a text with a trained run, or answers a source, token by token.

usage: jtransformer generate --workdir RUN --prompt TEXT [flags]

The text is printed as it comes. A model of pairs is given the source and answers with the target; a
model of span corruption is given a text with <extra_id_0>, <extra_id_1> … in the place of what is
missing. A work directory of several runs is answered with their names.

  --prompt TEXT        what is continued; or
  --prompt_file FILE   a file that holds it; one newline at its end does not count
  --limit N            most tokens that are added (100, or fewer where learned positions end before)
  --temperature T      below 1 more probable, above 1 less probable tokens; 0 the most probable (1)
  --top_k K            draw from the K most probable tokens alone
  --top_p P            from the smallest set of most probable tokens that has this probability
  --min_p P            from tokens at least P times as probable as the most probable one
  --beams W            search for the most probable text instead, with W beams
  --alpha A            length penalty of the search: score = log-probability / length^A (0)
  --seed S             another number draws another text (0)
  --checkpoint WHICH   newest, or best by validation (newest)
  --json               print one JSON object, with tokens and log-probabilities

example: jtransformer generate --workdir runs/one --prompt "In the beginning" --temperature 0.8
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from jtransformer.cli.arguments import read_flags
from jtransformer.cli.progress import say
from jtransformer.cli.prompts import Asked, ask, decoder
from jtransformer.cli.run_directory import NEWEST, TrainedRun, read_run
from jtransformer.spec import Learned, SpanCorruption, SpecError

LIMIT = 100
SAMPLING = ("temperature", "top_k", "top_p", "min_p")


class Request(NamedTuple):
    """What is asked of a run.

    Attributes:
        asked: The prompt.
        how: How tokens are chosen: sampling or a search.
        limit: Most tokens that are added.
        seed: Decides the draws.
        as_json: Whether one JSON object is printed in the place of text.
    """

    asked: Asked
    how: Any
    limit: int
    seed: int
    as_json: bool


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    text, how = _text(values), _how(values)
    trained = read_run(Path(values.workdir).expanduser(), values.checkpoint)
    asked = ask(trained, text)
    if trained.imported is not None and trained.imported.unfollowed:
        other = ", ".join(f"{name}={value}" for name, value in trained.imported.unfollowed.items())
        say(f"transformers would choose other tokens: generation_config.json asks for {other}.")
    unknown, read = "\N{REPLACEMENT CHARACTER}", asked.source or asked.prompt
    if unknown in trained.tokenizer.decode(read) and unknown not in text:
        say("The prompt holds pieces that the tokenizer does not know.")
    limit = _usual_limit(trained, asked) if values.limit is None else values.limit
    request = Request(asked, how, limit, values.seed, values.json)
    try:
        added = _answer(trained, request)
    except SpecError:
        raise
    except ValueError as error:
        # What a model cannot continue, and parameters that are no numbers.
        raise SpecError("", str(error)) from None
    seen, reached = trained.spec.data.length, len(asked.prompt) + added - 1
    is_own = trained.imported is None
    if is_own and reached > seen and not isinstance(trained.spec.objective, SpanCorruption):
        say(f"The text has {reached} tokens, its run was trained on {seen}: its end may be poor.")
    return 0


def _usual_limit(trained: TrainedRun, asked: Asked) -> int:
    """Returns how many tokens are added where nobody says."""
    position = trained.spec.model.position
    if not isinstance(position, Learned):
        return LIMIT
    return max(1, min(LIMIT, position.max_length - len(asked.prompt) + 1))


def _answer(trained: TrainedRun, request: Request) -> int:
    """Prints what was asked for; returns how many tokens were added at most."""
    from jtransformer.generation import BeamSearch

    if isinstance(request.how, BeamSearch):
        found = _searched(trained, request)
    elif request.as_json:
        found = [_sampled(trained, request)]
    else:
        return _stream(trained, request)
    if request.as_json:
        print(json.dumps({"step": trained.step, "continuations": found}))
    else:
        print(found[0]["text"])
    return max(len(continuation["tokens"]) for continuation in found)


def _searched(trained: TrainedRun, request: Request) -> list[dict[str, Any]]:
    """Returns the continuations that a beam search finds, best first."""
    from jtransformer.generation import beam_search

    asked = request.asked
    beams = beam_search(
        trained.spec.model,
        trained.variables,
        [asked.prompt],
        source=None if asked.source is None else [asked.source],
        limit=request.limit,
        eos=trained.eos,
        never=trained.never,
        search=request.how,
    )
    return [
        _described(trained, asked, beams.tokens[0, beam, : beams.lengths[0, beam]])
        | {
            "finished": bool(beams.finished[0, beam]),
            "log_probability": float(beams.sums[0, beam]),
            "score": float(beams.scores[0, beam]),
        }
        for beam in range(request.how.best)
        if beams.lengths[0, beam]
    ]


def _sampled(trained: TrainedRun, request: Request) -> dict[str, Any]:
    """Returns a continuation that is drawn, when it is whole."""
    import jax

    asked = request.asked
    out = _generator(trained, request)(
        trained.variables,
        [asked.prompt],
        source=None if asked.source is None else [asked.source],
        key=jax.random.key(request.seed),
    )
    length = int(out.lengths[0])
    logs = [float(x) for x in out.log_probabilities[0, :length]]
    return _described(trained, asked, out.tokens[0, :length]) | {
        "finished": bool(out.finished[0]),
        "log_probability": sum(logs),
        "log_probabilities": logs,
    }


def _stream(trained: TrainedRun, request: Request) -> int:
    """Prints a continuation as it comes; returns its length."""
    import jax

    from jtransformer.generation import TextStream

    asked = request.asked
    text, length = TextStream(decoder(trained), asked.shown), 0
    pieces = _generator(trained, request).stream(
        trained.variables,
        [asked.prompt],
        source=None if asked.source is None else [asked.source],
        key=jax.random.key(request.seed),
    )
    for (piece,) in pieces:
        length += len(piece)
        print(text.add(piece.tolist()), end="", flush=True)
    print(text.end())
    return length


def _generator(trained: TrainedRun, request: Request) -> Any:
    from jtransformer.generation import Generator

    return Generator(
        model=trained.spec.model,
        limit=request.limit,
        sampling=request.how,
        eos=trained.eos,
        never=trained.never,
    )


def _described(trained: TrainedRun, asked: Asked, tokens: Any) -> dict[str, Any]:
    from jtransformer.generation import TextStream

    ids = [int(token) for token in tokens]
    text = TextStream(decoder(trained), asked.shown)
    return {"text": text.add(ids) + text.end(), "tokens": ids}


def _how(values: flags.FlagValues) -> Any:
    """Returns how tokens are chosen: sampling or a search."""
    from jtransformer.generation import BeamSearch, Sampling

    given = {name: getattr(values, name) for name in SAMPLING if values[name].present}
    try:
        if values.beams is None:
            if values.alpha is not None:
                raise SpecError("alpha", "would do nothing without --beams; add --beams 4.")
            return Sampling(**given)
        if given:
            name = next(iter(given))
            raise SpecError(name, "would do nothing with --beams, which draws nothing.")
        penalty = {} if values.alpha is None else {"alpha": values.alpha}
        return BeamSearch(width=values.beams, best=max(values.beams, 1), **penalty)
    except SpecError as error:
        name = "beams" if error.path == "width" else error.path
        raise SpecError(f"--{name}", error.problem) from None


def _text(values: flags.FlagValues) -> str:
    if (values.prompt is None) == (values.prompt_file is None):
        found = "both" if values.prompt is not None else "neither"
        raise SpecError("", f"Give either --prompt TEXT or --prompt_file FILE, got {found}.")
    if values.prompt is not None:
        try:
            values.prompt.encode()
        except UnicodeEncodeError:
            raise SpecError("--prompt", "is not UTF-8; write it in a terminal that is.") from None
        return values.prompt
    path = Path(values.prompt_file).expanduser()
    try:
        # By bytes: read as text, the line ends of another system would become others.
        text = path.read_bytes().decode()
    except (OSError, ValueError) as error:
        raise SpecError("--prompt_file", f"= {str(path)!r} cannot be read: {error}.") from None
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("workdir", "prompt", "prompt_file"):
        flags.DEFINE_string(name, None, name, flag_values=values)
    flags.DEFINE_string("checkpoint", NEWEST, "checkpoint", flag_values=values)
    for name, default in (("limit", None), ("top_k", None), ("beams", None), ("seed", 0)):
        flags.DEFINE_integer(name, default, name, flag_values=values)
    for name in ("temperature", "top_p", "min_p", "alpha"):
        flags.DEFINE_float(name, None, name, flag_values=values)
    flags.DEFINE_bool("json", False, "json", flag_values=values)
    read_flags(values, argv, stray='write --prompt "TEXT", in quotation marks')
    if not values.workdir:
        raise SpecError("--workdir", "is missing; add --workdir RUN.")
    if values.limit is not None and values.limit < 1:
        raise SpecError("--limit", f"must be at least 1, got {values.limit}.")
    if not 0 <= values.seed < 2**31:
        raise SpecError("--seed", f"must lie in 0 … {2**31 - 1}, got {values.seed}.")
    return values
