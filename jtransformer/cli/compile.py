"""Compiles the training and decoding steps of a run for devices that need not be here.

usage: jtransformer compile --config FILE [--config.PATH=VALUE ...] [flags]

Says what each device would hold and whether it fits, what is computed and sent, and how long a
step would take, bound by what. Memory, collectives and fingerprint are those of the program that a
run is trained with, as compiled; operations are counted; the time is an estimate that has met no
TPU. Nothing is trained and no data are read.

  --config FILE          a Python file with get_config(), and get_layout() if it likes
  --config.PATH=VALUE    change one setting of get_config()
  --topology NAME        a slice of TPU v5e, v5p or v6e, such as v5e:4x4 or v5p:2x2x2, that need not
                         be here (extra `tpu-plan`); or "local", the devices at hand (the default)
  --mesh TEXT            how the run is spread over them, such as fsdp=16 or data=2,fsdp=4,tensor=2;
                         otherwise that of get_layout(), or fsdp over all; locally one device
  --decode_rows N        texts that are continued together (as many as a batch has rows)
  --decode_length T      tokens of each that the cache holds (as many as a row has)
  --search               try meshes, with shard_optimizer too where they have data, x rematerialize
                         x microbatches, and rank what fits by its time; with --mesh that one alone
  --limit N              compile at most so many of them (8), those first that promise most
  --cache DIR            where reports are kept, so that nothing is compiled twice: by default
                         jtransformer/compile in XDG_CACHE_HOME or ~/.cache; "none" keeps nothing
  --json                 print one JSON object

For a slice XLA_FLAGS are set aside; options for its compiler go into LIBTPU_INIT_ARGS.
A search that was stopped goes on where it was. What does not fit is an answer and no error: the
exit code is 0, and the last line, or "fits", says so.

example: jtransformer compile --config experiments/scale/decoder_7b.py --topology v5e:16x16
"""

import json
import shlex
from pathlib import Path
from typing import Any

from absl import flags

from jtransformer.cli.arguments import OVERRIDE, read_experiment, read_flags
from jtransformer.cli.progress import say
from jtransformer.cli.targets import LOCAL, Target, define_target, read_target, refusable
from jtransformer.spec import RunSpec, SpecError

MOST_COMPILED = 8


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    experiment = read_experiment(Path(values.config), argv)
    spec = experiment.run_spec()
    # A search is not bound to the layout that the file was written with.
    target = read_target(values, None if values.search else experiment.layout)
    if values.search:
        found = _search(spec, target, values, argv)
    else:
        found = _report(spec, target, values)
    if values.json:
        print(json.dumps(found))
        return 0
    from jtransformer.cli.compile_tables import print_report, print_search

    (print_search if values.search else print_report)(found)
    return 0


def _report(spec: RunSpec, target: Target, values: flags.FlagValues) -> dict[str, Any]:
    """Compiles both steps; returns what is known of them."""
    from jtransformer import ahead

    for name in ("decode_rows", "decode_length"):
        if values[name].present and "decode" not in ahead.programs_of(spec):
            raise SpecError(f"--{name}", "would do nothing: an encoder does not decode.")
    say(f"compiling for {target.topology.name}, mesh {target.layout.label} ...")
    usual = ahead.decoding_of(spec)
    decoding = ahead.Decoding(
        rows=values.decode_rows or usual.rows, capacity=values.decode_length or usual.capacity
    )
    report = refusable(
        lambda: ahead.compile_run(
            spec, target.topology, target.layout, decoding=decoding, cache=target.cache
        )
    )
    return {"config": values.config, **report.to_record()}


def _search(
    spec: RunSpec, target: Target, values: flags.FlagValues, argv: list[str]
) -> dict[str, Any]:
    """Tries ways to compute the run; returns what was found, the best first."""
    from jtransformer import ahead
    from jtransformer.cli.compile_tables import in_short

    begun = 0

    def compiled(one: Any) -> Any:
        nonlocal begun
        begun += 1
        say(f"[{begun}/{values.limit}] {' '.join(_chosen(one))} ...")
        found = ahead.compile_run(
            one.applied(spec), target.topology, one.layout, what=("train",), cache=target.cache
        )
        say(f"    {in_short(found.to_record()['programs']['train'])}")
        return found.programs["train"]

    fixed = None if values.mesh is None else target.layout
    found = refusable(
        lambda: ahead.search(spec, target.topology, compiled, limit=values.limit, layout=fixed)
    )
    best = next((one.candidate for one in found.tried if one.program.memory.fits), None)
    return {
        "config": values.config,
        "topology": target.topology.name,
        "tried": [
            {
                "mesh": one.candidate.layout.label,
                "rematerialize": one.candidate.rematerialize,
                "microbatches": one.candidate.microbatches,
                **one.program.to_record(),
            }
            for one in found.tried
        ],
        **{name: getattr(found, name) for name in ("candidates", "too_large", "spared", "left")},
        "command": None if best is None else _command(values.config, argv, _chosen(best)),
    }


def _chosen(candidate: Any) -> list[str]:
    """Returns the words of a command line that choose a candidate."""
    return [
        f"--mesh={candidate.layout.label.replace(' ', '')}",
        f"{OVERRIDE}model.rematerialize={candidate.rematerialize}",
        f"{OVERRIDE}training.microbatches={candidate.microbatches}",
    ]


def _command(config: str, argv: list[str], chosen: list[str]) -> str:
    """Returns the command that trains the run so; what the search has chosen stands last."""
    own = [word for word in argv if word.startswith(OVERRIDE)]
    words = ["jtransformer", "train", "--config", config, *own, *chosen, "--workdir", "DIR"]
    return shlex.join(words)


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("config", None, "config", flag_values=values)
    define_target(values, topology=LOCAL)
    for name in ("decode_rows", "decode_length"):
        flags.DEFINE_integer(name, None, name, flag_values=values)
    flags.DEFINE_integer("limit", MOST_COMPILED, "limit", flag_values=values)
    for name in ("search", "json"):
        flags.DEFINE_bool(name, False, name, flag_values=values)
    read_flags(values, argv, stray="write --config FILE and --config.PATH=VALUE")
    if not values.config:
        raise SpecError("--config", "is missing; add --config FILE.")
    for name in ("decode_rows", "decode_length", "limit"):
        given = getattr(values, name)
        if given is not None and given < 1:
            raise SpecError(f"--{name}", f"must be at least 1, got {given}.")
    if values["limit"].present and not values.search:
        raise SpecError("--limit", "would do nothing without --search; add it, or leave this out.")
    for name in ("decode_rows", "decode_length"):
        if values.search and values[name].present:
            raise SpecError(f"--{name}", "would do nothing with --search, which compiles updates.")
    return values
