"""Reads a Hugging Face directory into the directory of a run.

usage: jtransformer import_hf DIR --workdir RUN [flags]

DIR holds config.json and the weights: safetensors, in one file or in shards, or pickled ones, which
torch reads without running what they may hold. Every field of config.json is used, known not to
matter, or refused by its name; every tensor is used once, and what is missing or left over is
listed. RUN can then be given to generate, evaluate, check, probe, diff and export_hf, and as
--config.start_from to train and sweep. The files of the tokenizer come along, and generate uses
them.

A run reads text that it is measured on: where there is a tokenizer and the model continues texts,
that is the King James Bible, or the text that you name.

  --workdir RUN   where; it must not hold a run yet
  --text FILE     the text that evaluate measures the loss on (the King James Bible)
  --length N      tokens of a row of it (256, or fewer where learned positions end before)
  --json          print one JSON object

example: jtransformer import_hf models/gpt2 --workdir runs/gpt2
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from jtransformer import records
from jtransformer.cli.arguments import read_flags
from jtransformer.cli.imported import FOLDER, at_hand, carry, described, directory_of, made_whole
from jtransformer.cli.progress import say
from jtransformer.spec import (
    CausalLM,
    Characters,
    Constant,
    DataSpec,
    Decoder,
    Encoder,
    EncoderDecoder,
    Kjv,
    Learned,
    MaskedLM,
    ModelSpec,
    OptimizerSpec,
    RunSpec,
    Seq2Seq,
    Sgd,
    SpecError,
    Synthetic,
    TextFile,
    TokenizerFile,
    TrainingSpec,
    fingerprint,
    to_tree,
)

LENGTH = 256
USAGE = "jtransformer import_hf DIR --workdir RUN"


class Data(NamedTuple):
    """What an imported run reads.

    Attributes:
        tokenizer: Text to ids; None without one.
        corpus_sha256: Hash of what it is measured on; None where there is nothing.
    """

    tokenizer: Any
    corpus_sha256: str | None


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    directory, rest = directory_of(argv, USAGE)
    values = _flags(rest)
    workdir = Path(values.workdir).expanduser()
    with made_whole(workdir, "spec.json") as place:
        about = _written(directory, values, workdir, records.RunFiles(place))
    if values.json:
        print(json.dumps(about))
        return 0
    print(f"{directory} is a model of the family {about['family']}: {about['described']}")
    print(f"  parameters  {about['parameters']:,}")
    print(f"  tokenizer   {_said(about['tokenizer'])}")
    print(f"  run         {values.workdir}")
    return 0


def _written(
    directory: Path, values: flags.FlagValues, workdir: Path, files: records.RunFiles
) -> dict[str, Any]:
    """Writes the run into files, which lie at `workdir` in the end; returns what is said of it."""
    from jtransformer import interop
    from jtransformer.training import save_given

    settings = interop.tokenizer_settings(directory)
    loaded = interop.unread(directory)
    interop.steering(directory, loaded.spec.vocabulary)
    spec = _run_spec(loaded.spec, values, settings, workdir)
    tokenizer = _tokenizer(settings, loaded.spec)
    folder = files.directory / FOLDER
    names = carry((directory / "config.json", *loaded.files), folder)
    if settings is not None and "tokenizer.json" not in names:
        (folder / "tokenizer.json").write_text(json.dumps(settings), encoding="utf-8")
    data = _data(at_hand(spec, files.directory) if tokenizer else spec, tokenizer, values)
    # The parameters are read last, since they take the longest.
    pieces = None if tokenizer is None else tokenizer.sha256

    def identify(parameters: str) -> str:
        """Names the run by what came along; it has read no data."""
        content = hashlib.sha256(f"{parameters} {pieces}".encode()).hexdigest()
        return fingerprint(spec, content, records.SCHEMA)

    identity = save_given(files, spec, loaded.variables["params"], identify)
    _write_about(files, spec, identity, data)
    return {
        "workdir": values.workdir,
        "family": loaded.family,
        "described": described(loaded.spec),
        "fingerprint": identity,
        "parameters": sum(math.prod(leaf.shape) for leaf in _leaves(loaded.variables)),
        "tokenizer": None if tokenizer is None else tokenizer.pieces,
        "can_be_evaluated": data.corpus_sha256 is not None,
    }


def _leaves(variables: Any) -> Any:
    import jax

    return jax.tree.leaves(variables)


def _said(pieces: int | None) -> str:
    return "none: it can be given no text" if pieces is None else f"{pieces:,} pieces"


def _run_spec(model: ModelSpec, values: flags.FlagValues, settings: Any, workdir: Path) -> RunSpec:
    """Puts a run around a model, which no update has changed: its optimizer keeps no state."""
    most = model.position.max_length if isinstance(model.position, Learned) else LENGTH
    length = min(LENGTH, most) if values.length is None else values.length
    given: dict[str, Any] = {"length": length}
    tokenizer = Characters()
    if settings is not None:
        path = workdir.absolute() / FOLDER / "tokenizer.json"
        tokenizer = TokenizerFile(path=str(path))
    match model.stack:
        case Decoder():
            objective = CausalLM()
            text = None if values.text is None else str(Path(values.text).expanduser().absolute())
            given["source"] = Kjv() if text is None else TextFile(path=text)
        case Encoder():
            objective = MaskedLM()
        case EncoderDecoder():
            # Stands for the pairs that it was trained on, which did not come along.
            objective = Seq2Seq()
            given |= {"source": Synthetic(), "rows": "padded", "source_length": length}
        case _:
            raise SpecError("stack.kind", f"= {model.stack.kind!r} is of no family.")
    if values.text is not None and not isinstance(model.stack, Decoder):
        raise SpecError("--text", f"would do nothing: a {model.stack.kind} continues no text.")
    return RunSpec(
        model=model,
        data=DataSpec(tokenizer=tokenizer, **given),
        objective=objective,
        optimizer=OptimizerSpec(rule=Sgd(momentum=None)),
        schedule=Constant(),
        training=TrainingSpec(steps=1),
    )


def _tokenizer(settings: Any, model: ModelSpec) -> Any:
    if settings is None:
        return None
    from jtransformer.data.library import LibraryTokenizer

    try:
        tokenizer = LibraryTokenizer(settings)
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError("", f"tokenizer.json is no tokenizer ({error}); get it again.") from None
    if tokenizer.pieces > model.vocabulary:
        raise SpecError(
            "",
            f"tokenizer.json has ids up to {tokenizer.pieces - 1}, and the model has a vocabulary "
            f"of {model.vocabulary}: they do not belong together.",
        )
    return tokenizer


def _data(spec: RunSpec, tokenizer: Any, values: flags.FlagValues) -> Data:
    """Reads what the run is measured on, where there is a tokenizer and texts are continued."""
    if tokenizer is None or not isinstance(spec.objective, CausalLM):
        return Data(tokenizer, None)
    from jtransformer import data

    try:
        return Data(tokenizer, data.load(spec.data, spec.objective).sha256)
    except SpecError as error:
        if values.text is not None:
            raise
        say(f"The run cannot be evaluated ({error}) Import it with --text FILE for that.")
        return Data(tokenizer, None)


def _write_about(files: records.RunFiles, spec: RunSpec, identity: str, data: Data) -> None:
    """Writes the tokenizer, then the spec: with it the directory is that of a run."""
    if data.tokenizer is not None:
        from jtransformer.data import save_tokenizer

        save_tokenizer(data.tokenizer, files.tokenizer)
    about = {
        "schema": records.SCHEMA,
        "fingerprint": identity,
        "data_sha256": data.corpus_sha256,
        "tokenizer_sha256": None if data.tokenizer is None else data.tokenizer.sha256,
        "spec": to_tree(spec),
    }
    records.write_json(files.spec, about)


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", None, "workdir", flag_values=values)
    flags.DEFINE_string("text", None, "text", flag_values=values)
    flags.DEFINE_integer("length", None, "length", flag_values=values)
    flags.DEFINE_bool("json", False, "json", flag_values=values)
    read_flags(values, argv, stray="see --help")
    if not values.workdir:
        raise SpecError("--workdir", "is missing; add --workdir RUN.")
    return values
