"""Draws the block diagram of a model, or of two beside one another with what differs.

usage: jtransformer draw --preset NAME [flags]
       jtransformer draw --config FILE [--config.PATH=VALUE ...] [flags]

  --preset NAME          a published model or a run, such as gpt2_small, t5_base or decoder_lm
  --config FILE          a Python file with get_config()
  --config.PATH=VALUE    change one setting of get_config(), e.g. --config.model.ffn=swiglu
  --against WHAT         a second model beside it, with the differences marked: an arm of the
                         config's get_sweep(), sizes matched; a preset; or another config file
  --against.PATH=VALUE   change one setting of that file, or of the first one where there is none
  --out FILE             write FILE.svg or FILE.png; without it the diagram is printed as text
  --json                 print the diagram as data: boxes with shapes, parameters and masks

Everything is derived from the config: sublayers in their order, norms where they stand, shapes,
parameters of every box (their sum is what `jtransformer count` counts), tables that are shared,
masks (drawn by those of attention), dropout, types other than float32. Layers that are alike are
drawn once. How the numbers are computed (scan_layers, rematerialize) is not drawn.

example: jtransformer draw --config experiments/norm_and_ffn/config.py --against post-swiglu
"""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from jtransformer import drawing, records
from jtransformer.cli.arguments import OVERRIDE, Experiment, read_experiment, read_flags
from jtransformer.spec import ModelSpec, RunSpec, SpecError, nearest
from jtransformer.spec.presets import PRESETS
from jtransformer.sweep import make_plan, read_declaration

AGAINST = "--against."
KINDS = (".svg", ".png")
PLAIN_WIDTH = 100
"""Characters in a line where nothing says how wide a terminal is."""


class Side(NamedTuple):
    """A model that is drawn.

    Attributes:
        name: What the user called it.
        model: The model.
    """

    name: str
    model: ModelSpec


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    out = None if values.out is None else _checked_out(Path(values.out).expanduser())
    first, other = _sides(values, argv)
    if other is None:
        sheet = drawing.sheet(first.model, first.name)
    else:
        sheet = drawing.compared(first, other)
    if out is not None:
        text = drawing.svg(sheet)
        content = drawing.png(text) if out.suffix.lower() == ".png" else text.encode()
        records.write_bytes(out, content)
    if values.json:
        print(json.dumps(_data(sheet)))
    elif out is None:
        width = shutil.get_terminal_size((PLAIN_WIDTH, 1)).columns
        print("\n".join(drawing.lines(sheet, width)))
    else:
        print(out)
    return 0


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("preset", "config", "against", "out"):
        flags.DEFINE_string(name, None, name, flag_values=values)
    flags.DEFINE_bool("json", False, "json", flag_values=values)
    own = [word for word in argv if not word.startswith(AGAINST)]
    read_flags(values, own, stray="write --preset NAME or --config FILE")
    return values


def _checked_out(out: Path) -> Path:
    if out.suffix.lower() not in KINDS:
        raise SpecError(
            "--out", f"= {str(out)!r} must end in {' or '.join(KINDS)}, which say what is written."
        )
    if out.is_dir() or not out.parent.is_dir():
        what = "is a directory" if out.is_dir() else f"lies in {str(out.parent)!r}, which is none"
        raise SpecError("--out", f"= {str(out)!r} {what}; give a file in a directory that exists.")
    return out


def _sides(values: flags.FlagValues, argv: list[str]) -> tuple[Side, Side | None]:
    """Returns the model that is drawn, and the one beside it if there is one."""
    if (values.preset is None) == (values.config is None):
        found = "both" if values.preset else "neither"
        raise SpecError("", f"Give either --preset NAME or --config FILE, got {found}.")
    own = [word for word in argv if word.startswith(OVERRIDE)]
    changes = [OVERRIDE + word.removeprefix(AGAINST) for word in argv if word.startswith(AGAINST)]
    if values.config is None:
        for word in own:
            raise SpecError(word, "changes a config file, and a preset is none; use --config FILE "
                            "with it.")  # fmt: skip
        first, experiment = _preset(values.preset, "--preset"), None
    else:
        experiment = read_experiment(Path(values.config), argv)
        first = _experiment_side(experiment)
    if values.against is not None:
        return first, _named(values.against, experiment, changes)
    if not changes:
        return first, None
    if experiment is None:
        raise SpecError(changes[0].replace(OVERRIDE, AGAINST), "changes a config file, and a "
                        "preset is none; use --config FILE with it.")  # fmt: skip
    other = read_experiment(experiment.path, [*own, *changes])
    return first, Side(", ".join(_change(word) for word in changes), _model(other.run_spec()))


def _change(word: str) -> str:
    return word.removeprefix(OVERRIDE).removeprefix("model.")


def _named(name: str, experiment: Experiment | None, changes: list[str]) -> Side:
    """Returns what is named beside the first: an arm of its sweep, a preset, or a config file."""
    arms = {} if experiment is None or experiment.sweep is None else _arms(experiment)
    path = Path(name).expanduser()
    if name not in arms and path.is_file():
        return _experiment_side(read_experiment(path, changes))
    if changes:
        raise SpecError(changes[0].replace(OVERRIDE, AGAINST), f"changes a config file, and "
                        f"--against {name!r} is none; leave one of them out.")  # fmt: skip
    if name in arms:
        return Side(name, arms[name])
    if name in PRESETS:
        return _preset(name, "--against")
    known = [*arms, *PRESETS]
    what = "an arm of the sweep, a preset or a file" if arms else "a preset or a file"
    raise SpecError("--against", f"= {name!r} is not {what}; {nearest(name, known)}.")


def _arms(experiment: Experiment) -> dict[str, ModelSpec]:
    """Returns the models of the arms of a sweep, made equal as it says; no data are read."""
    plan = make_plan(
        experiment.tree,
        read_declaration(experiment.sweep),
        lambda _: "",
        touched=experiment.touched,
        inherited=experiment.inherited,
    )
    return {arm.name: arm.spec.model for arm in plan.arms}


def _preset(name: str, flag: str) -> Side:
    if name not in PRESETS:
        raise SpecError(flag, f"= {name!r} is unknown; {nearest(name, PRESETS)}.")
    return Side(name, _model(PRESETS[name]()))


def _experiment_side(experiment: Experiment) -> Side:
    path = experiment.path
    name = path.parent.name if path.stem == "config" and path.parent.name else path.stem
    return Side(name, _model(experiment.run_spec()))


def _model(spec: ModelSpec | RunSpec) -> ModelSpec:
    return spec.model if isinstance(spec, RunSpec) else spec


def _data(sheet: drawing.Sheet) -> dict[str, Any]:
    """Returns a sheet as JSON has it."""
    return {
        "diagrams": [dataclasses.asdict(diagram) for diagram in sheet.diagrams],
        "marks": list(sheet.marks),
        "settings": list(sheet.settings),
    }
