"""Judges a model by what must hold for every Transformer, each law with its figure and limit.

usage: jtransformer check --config FILE [--config.PATH=VALUE ...] [flags]
       jtransformer check --workdir RUN [flags]
       jtransformer check --preset NAME [flags]

Judged are: which input reaches which output (to the bit), padding, documents and rows apart,
decoding with a cache, positions, the loss where it starts and which token it asks for, the tree of
parameters and that each learns, gradients against differences in double precision, tied tables,
norms, saving and restoring, the same bits again, and figures worked out by hand.

  --config FILE          a config; its parameters are moved off their start, where zeros hide much
  --workdir RUN          a trained run, with the parameters whose loss is its figure
  --preset NAME          a published model or a run, at its own sizes
  --checkpoint WHICH     of a run: newest, or best by validation (newest)
  --length T             tokens of a row (12, or as few more as show a window of attention)
  --laws LIST            judge by these alone, named as in the table and joined by commas
  --json                 print one JSON object; "passed" says whether no law is broken

A law that has nothing to judge says why. The exit code is 1 if one is broken.

example: jtransformer check --config experiments/norm_and_ffn/config.py
"""

import json
import os
from pathlib import Path
from typing import Any

from absl import flags

from jtransformer import accounting, records
from jtransformer.cli.arguments import OVERRIDE, read_experiment, read_flags
from jtransformer.cli.run_directory import NEWEST, read_about, read_corpus, read_state
from jtransformer.spec import (
    DotProduct,
    Learned,
    MaskedLM,
    ModelSpec,
    RunSpec,
    SpecError,
    from_tree,
    nearest,
)
from jtransformer.spec.presets import PRESETS

USUAL_LENGTH, LEAST, LONGEST = 12, 4, 24
BYTES = 16
"""Bytes per parameter that a judgement takes: start, moved, gradient and one more."""
SUBJECTS = ("workdir", "config", "preset")


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    if values.workdir is not None:
        judged = _trained(values)
    else:
        name, spec = _untrained(values, argv)
        judged = _judged(values, name, spec)

    from jtransformer import checks
    from jtransformer.cli.check_laws import arguments
    from jtransformer.cli.check_model import Calls

    laws = checks.NAMES if values.laws is None else values.laws.split(",")
    for name in laws:
        if name not in checks.NAMES:
            offer = nearest(name, checks.NAMES)
            raise SpecError("--laws", f"= {values.laws!r} has {name!r}, no law; {offer}.")
    given, reasons = arguments(judged, Calls(judged), _available())
    report = checks.run_all(given.pop("apply"), **given, reasons=reasons, laws=laws)
    if values.json:
        print(json.dumps({"name": judged.name, "length": judged.length} | report.to_json()))
    else:
        _show(judged.name, report)
    return 0 if report.passed else 1


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name in SUBJECTS:
        flags.DEFINE_string(name, None, name, flag_values=values)
    for name in ("checkpoint", "laws"):
        flags.DEFINE_string(name, None, name, flag_values=values)
    flags.DEFINE_integer("length", None, "length", flag_values=values)
    flags.DEFINE_bool("json", False, "json", flag_values=values)
    read_flags(values, argv, stray="write --config FILE, --workdir RUN or --preset NAME")
    found = [f"--{name}" for name in SUBJECTS if getattr(values, name) is not None]
    if len(found) != 1:
        got = " and ".join(found) or "none of them"
        raise SpecError("", f"Give one of --config, --workdir and --preset, got {got}.")
    changed = [word for word in argv if word.startswith(OVERRIDE)]
    if changed and values.config is None:
        raise SpecError(changed[0], f"would do nothing with {found[0]}; use --config FILE with it.")
    if values.checkpoint is not None and values.workdir is None:
        raise SpecError("--checkpoint", f"would do nothing with {found[0]}; leave it out.")
    if values.length is not None and values.length < LEAST:
        raise SpecError("--length", f"must be at least {LEAST}, got {values.length}.")
    return values


def _untrained(values: flags.FlagValues, argv: list[str]) -> tuple[str, ModelSpec | RunSpec]:
    if values.config is not None:
        experiment = read_experiment(Path(values.config).expanduser(), argv)
        return str(experiment.path), experiment.run_spec()
    if values.preset not in PRESETS:
        raise SpecError(
            "--preset", f"= {values.preset!r} is unknown; {nearest(values.preset, PRESETS)}."
        )
    return values.preset, PRESETS[values.preset]()


def _judged(values: flags.FlagValues, name: str, spec: ModelSpec | RunSpec) -> Any:
    from jtransformer.cli.check_model import Judged

    run = spec if isinstance(spec, RunSpec) else None
    model = spec.model if isinstance(spec, RunSpec) else spec
    seed = 0 if run is None else run.seed
    _check_memory(f"--{'config' if values.config else 'preset'}", name, model)
    examples = "a preset is judged without data; use --config"
    if values.config is not None and run is not None:
        examples = _examples(run, lambda: _corpus(run))
    return Judged(name, model, run, seed, None, examples, _length(values, model))


def _trained(values: flags.FlagValues) -> Any:
    from jtransformer.cli.check_model import Judged

    workdir = Path(values.workdir).expanduser()
    files = records.RunFiles(workdir)
    about = read_about(files)
    spec = from_tree(about["spec"])
    _check_memory("--workdir", values.workdir, spec.model)
    which = NEWEST if values.checkpoint is None else values.checkpoint
    _, state = read_state(files, spec, about["fingerprint"], which)

    import jax

    parameters = jax.tree.map(jax.numpy.asarray, state.evaluated)
    examples = _examples(spec, lambda: read_corpus(workdir, spec, about["data_sha256"]))
    length = _length(values, spec.model)
    return Judged(values.workdir, spec.model, spec, spec.seed, parameters, examples, length)


def _corpus(run: RunSpec) -> Any:
    from jtransformer import data

    return data.load(run.data, run.objective)


def _examples(run: RunSpec, load: Any) -> Any:
    """Returns a batch of the run's data, or why there is none to judge."""
    if isinstance(run.objective, MaskedLM):
        return "a position is asked for its own token, which is masked"
    from jtransformer.training import probe_batch

    try:
        batch = probe_batch(load(), run)
    except SpecError as error:
        return f"the data cannot be read: {error}"
    return batch.tokens, batch.labels, batch.weights


def _length(values: flags.FlagValues, model: ModelSpec) -> int:
    """Returns the tokens of a row: enough to see past a small window, as far as positions go."""
    most = model.position.max_length if isinstance(model.position, Learned) else None
    if values.length is not None:
        if most is not None and values.length > most:
            raise SpecError(
                "--length",
                f"= {values.length} exceeds the {most} positions that the model has learned.",
            )
        return values.length
    length, attention = USUAL_LENGTH, model.attention
    if isinstance(attention, DotProduct) and attention.window is not None:
        seen = model.layers * (attention.window - 1) + 1
        length = max(length, min(seen + 2, LONGEST))
    length = length if most is None else min(length, most)
    if length < LEAST:
        raise SpecError(
            "position.max_length", f"= {most} leaves fewer than {LEAST} tokens to judge; use more."
        )
    return length


def _available() -> int:
    """Returns the bytes of memory that are free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _check_memory(flag: str, name: str, model: ModelSpec) -> None:
    total = accounting.parameters(model).total
    needed, available = BYTES * total, _available()
    if needed > available:
        raise SpecError(
            flag,
            f"= {name!r} has {total:,} parameters, whose judgement needs {needed / 1e9:.0f} GB, "
            f"and {available / 1e9:.0f} GB are free; judge a config with fewer or narrower layers.",
        )


def _show(name: str, report: Any) -> None:
    from jtransformer.cli.check_tables import table
    from jtransformer.cli.progress import console

    console().print(table(name, report))
    counts = report.to_json()["counts"]
    print(
        f"{counts['pass']} laws hold, {counts['fail']} are broken, {counts['not applicable']} do "
        f"not apply; {sum(row.seconds for row in report.rows):.1f} s"
    )
    for row in report.failures:
        print(f"broken: {row.name}: {row.detail}")
