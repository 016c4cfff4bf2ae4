"""Measures the inside of a model by layer: of a run, or of a config at its initial values.

usage: jtransformer probe --workdir RUN [flags]
       jtransformer probe --config FILE [--config.PATH=VALUE ...] [flags]

Measured are the first rows of the validation part, as many as an update reads. By layer: the norm
of the gradient, the size of the update that these rows would cause against that of the weights, the
residual stream, the entropy of attention, dead units or saturated gates, the largest stretch of
each sublayer (spectral norm of its Jacobian). By head: the loss without it. Nothing is trained.

  --step N          the checkpoint of that step, 0 for what it began with (the newest)
  --batches K       measure K times as many rows (1)
  --heads LIST      keep the attention maps of these heads, LAYER.HEAD, such as 0.1,2.3, or by their
                    whole names (eight, spread over the depth); for --json and --into
  --into FILE       write everything as JSON
  --json            print everything as one JSON object

With config.training.probe_steps, such as (0, 100), runs are probed while they are trained, and the
page of a sweep shows the profiles of all arms.

None of this is causal attribution: that the loss grows without a head does not say what the head
does, nor that no other would do it.

example: jtransformer probe --workdir runs/one --step 400
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from jtransformer import records
from jtransformer.cli.arguments import OVERRIDE, read_experiment, read_flags
from jtransformer.cli.imported import folder_of
from jtransformer.cli.preflight import check_writable
from jtransformer.cli.run_directory import NEWEST, read_about, read_corpus, read_state
from jtransformer.spec import ModelSpec, RunSpec, SpecError, from_tree


class Subject(NamedTuple):
    """What is measured.

    Attributes:
        name: What the user called it.
        spec: Its run.
        corpus: What it reads.
        state: Its parameters, and where its optimizer stands.
    """

    name: str
    spec: RunSpec
    corpus: Any
    state: Any


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    into = None if values.into is None else Path(values.into).expanduser()
    if into is not None:
        check_writable(into.parent, "--into")
        if into.is_dir():
            raise SpecError("--into", f"= {values.into!r} is a directory; name a file.")
    subject = _trained(values) if values.config is None else _untrained(values, argv)

    from jtransformer.training import Program, hyperparameters, probe, probe_batch

    heads = None if values.heads is None else _heads(subject.spec.model, values.heads)
    batch = probe_batch(subject.corpus, subject.spec, values.batches)
    hyper = hyperparameters(subject.spec)
    found = probe(Program(subject.spec), subject.state, batch, hyper, heads)
    if into is not None:
        into.parent.mkdir(parents=True, exist_ok=True)
        records.write_json(into, found)
    if values.json:
        print(json.dumps(found))
    else:
        _show(subject, found)
    return 0


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("workdir", "config", "heads", "into"):
        flags.DEFINE_string(name, None, name, flag_values=values)
    flags.DEFINE_integer("step", None, "step", flag_values=values)
    flags.DEFINE_integer("batches", 1, "batches", flag_values=values)
    flags.DEFINE_bool("json", False, "json", flag_values=values)
    read_flags(values, argv, stray="write --workdir RUN or --config FILE")
    if bool(values.workdir) == bool(values.config):
        found = "both" if values.workdir else "neither"
        raise SpecError("", f"Give either --workdir RUN or --config FILE, got {found}.")
    if values.workdir and any(word.startswith(OVERRIDE) for word in argv):
        raise SpecError(
            "--config.…", "would do nothing with --workdir, whose run is what it is; leave it out."
        )
    if values.config and values.step is not None:
        raise SpecError("--step", "would do nothing with --config, whose model is not trained.")
    if values.heads is not None and not (values.json or values.into):
        raise SpecError(
            "--heads", "would do nothing without --json or --into, which have the maps."
        )
    for name, least in (("step", 0), ("batches", 1)):
        number = getattr(values, name)
        if number is not None and number < least:
            raise SpecError(f"--{name}", f"must be at least {least}, got {number}.")
    return values


def _trained(values: flags.FlagValues) -> Subject:
    """Reads a run at the checkpoint that was asked for."""
    workdir = Path(values.workdir).expanduser()
    files = records.RunFiles(workdir)
    about = read_about(files)
    spec = from_tree(about["spec"])
    corpus = read_corpus(workdir, spec, about["data_sha256"])
    if values.step == 0 and folder_of(files) is None:
        start = (about.get("start") or {}).get("sha256")
        return Subject(values.workdir, spec, corpus, _initial(spec, corpus, start))
    checkpoint = NEWEST if values.step is None else values.step
    _, state = read_state(files, spec, about["fingerprint"], checkpoint, "--step")
    return Subject(values.workdir, spec, corpus, state)


def _untrained(values: flags.FlagValues, argv: list[str]) -> Subject:
    """Reads a config, whose model has its initial values, or what it starts from."""
    from jtransformer import data
    from jtransformer.data.vocabularies import check_vocabularies

    experiment = read_experiment(Path(values.config).expanduser(), argv)
    spec = experiment.run_spec()
    corpus = data.load(spec.data, spec.objective)
    data.check_batch(corpus, spec)
    check_vocabularies(corpus, spec)
    return Subject(values.config, spec, corpus, _initial(spec, corpus))


def _initial(spec: RunSpec, corpus: Any, start_sha256: str | None = None) -> Any:
    from jtransformer.training import Program, begun, parameter_key

    drawn = Program(spec).start(parameter_key(spec.seed))
    return begun(drawn, spec, corpus.tokenizer.sha256, start_sha256)


def _heads(model: ModelSpec, text: str) -> tuple[str, ...]:
    """Returns the whole names of heads; LAYER.HEAD is one of self-attention that the head reads."""
    from jtransformer import probes

    known = probes.head_names(model)
    if not known:
        raise SpecError("--heads", f"= {text!r}, but this model has no attention weights to show.")
    scope = "decoder/" if model.has_encoder else ""
    found = []
    for word in text.split(","):
        layer, point, head = word.strip().partition(".")
        name = f"{scope}layer_{layer}/attention/head_{head}" if point else word.strip()
        if name not in known:
            shown = [*known[:1], "…", *known[-1:]] if len(known) > 2 else [*known]
            raise SpecError(
                "--heads",
                f"= {text!r} has {word.strip()!r}, no head of the model; write LAYER.HEAD, such as "
                f"0.0, or a whole name: its heads are {', '.join(shown)}.",
            )
        found.append(name)
    return tuple(dict.fromkeys(found))


def _show(subject: Subject, found: dict[str, Any]) -> None:
    from jtransformer.cli.probe_tables import tables
    from jtransformer.cli.progress import console

    for table in tables(subject.name, subject.spec.loss_unit, found):
        console().print(table)
    for reason in dict.fromkeys(found["reasons"].values()):
        print(f"not there: {reason}")
    print(found["caveat"])
