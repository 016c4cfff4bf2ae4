"""Writes a run as a Hugging Face directory, which `transformers` loads.

usage: jtransformer export_hf RUN DIR [flags]

DIR gets config.json and model.safetensors (shards beyond 5 GB), and the files of the tokenizer: as
they came where the run was imported, else tokenizer.json where the tokenizer has such a form. A
model that no family can express is refused with the setting that each lacks.

  --family NAME        which family is written (the one it came from, else the first that can be)
  --checkpoint WHICH   newest, or best by validation (newest)
  --json               print one JSON object

example: jtransformer export_hf runs/gpt2 models/mine
"""

import json
from pathlib import Path
from typing import Any

from absl import flags

from jtransformer import records
from jtransformer.cli.arguments import read_flags
from jtransformer.cli.imported import carry, described, directory_of, folder_of, made_whole
from jtransformer.cli.progress import say
from jtransformer.cli.run_directory import BEST, NEWEST, read_about, read_state
from jtransformer.spec import SpecError, from_tree

USAGE = "jtransformer export_hf RUN DIR"
CONFIG, GENERATION = "config.json", "generation_config.json"


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    workdir, rest = directory_of(argv, USAGE)
    directory, rest = directory_of(rest, USAGE)
    values = _flags(rest)
    files = records.RunFiles(workdir)
    about = read_about(files)
    spec = from_tree(about["spec"])

    from jtransformer import interop

    folder, config, family = folder_of(files), None, values.family
    if folder is not None:
        config = records.read_json(folder / CONFIG)
        family = family or interop.family_of(config).name
    # What no family can express is said before a checkpoint is read.
    interop.choose(spec.model, family)
    with made_whole(directory, CONFIG) as place:
        step, state = read_state(files, spec, about["fingerprint"], values.checkpoint)
        saved = interop.save(
            place, spec.model, {"params": state.evaluated}, family=family, config=config
        )
        carried = _carry_files(files, folder, place)
    for sentence in saved.other_dropout:
        say(f"Not written, which training there would miss: {sentence}.")
    tokenizer = [name for name in carried if name != GENERATION]
    found = {
        "directory": str(directory),
        "family": saved.family,
        "step": step,
        "tokenizer": tokenizer,
        "other_dropout": saved.other_dropout,
    }
    if values.json:
        print(json.dumps(found))
        return 0
    print(f"{directory} is a model of the family {saved.family}: {described(spec.model)}")
    print(f"  step       {step}")
    lacking = "it has no form that transformers reads" if folder is None else "it came without one"
    print(f"  tokenizer  {', '.join(tokenizer) or f'none: {lacking}'}")
    return 0


def _carry_files(files: records.RunFiles, folder: Path | None, directory: Path) -> list[str]:
    """Writes the files of the tokenizer, and what steers generation; returns their names."""
    if folder is not None:
        return carry(tuple(p for p in sorted(folder.iterdir()) if p.name != CONFIG), directory)
    content: Any = records.read_json(files.tokenizer)
    state = content.get("state", {}) if isinstance(content, dict) else {}
    if state.get("kind") != "library":
        return []
    written = {
        "tokenizer.json": state["tokenizer"],
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
    }
    for name, value in written.items():
        (directory / name).write_text(json.dumps(value), encoding="utf-8")
    return list(written)


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("family", None, "family", flag_values=values)
    flags.DEFINE_string("checkpoint", NEWEST, "checkpoint", flag_values=values)
    flags.DEFINE_bool("json", False, "json", flag_values=values)
    read_flags(values, argv, stray="see --help")
    if values.checkpoint not in (NEWEST, BEST):
        raise SpecError("--checkpoint", f"must be one of {NEWEST}, {BEST}.")
    return values
