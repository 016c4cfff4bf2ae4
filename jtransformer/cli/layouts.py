"""Reads how runs are to be spread over devices: --mesh, --mode and a config's get_layout()."""

import dataclasses
from typing import Any, NamedTuple

from absl import flags

from jtransformer.spec import DIVIDING_MODES, Layout, SpecError, nearest
from jtransformer.sweep.launch import TURNS


class AskedSpread(NamedTuple):
    """What is asked of the devices.

    Attributes:
        mode: A mode of execution; None leaves it to the command.
        layout: By what each run is divided; None is over all devices.
    """

    mode: str | None = None
    layout: Layout | None = None


def define_layout_flags(values: flags.FlagValues) -> None:
    """Adds the flags, not yet read."""
    flags.DEFINE_string("mode", None, "mode", flag_values=values)
    flags.DEFINE_string("mesh", None, "mesh", flag_values=values)


def read_spread(values: flags.FlagValues, own: Layout | None) -> AskedSpread:
    """Reads what is asked; --mesh counts more than what the config file says.

    Args:
        values: Flags with those of `define_layout_flags`, read.
        own: The layout of the config file; None where it has none.

    Raises:
        SpecError: If there is no such layout, or it has no meaning for the mode.
    """
    mode, given = values.mode, None
    if mode == "":
        raise SpecError("--mode", "is empty; write a mode, or leave it out.")
    if values.mesh is not None:
        given = read_mesh(values.mesh)
        if mode not in (None, *DIVIDING_MODES):
            raise SpecError(
                "--mesh",
                f"= {values.mesh!r} has no meaning for --mode {mode}; use "
                f"{' or '.join(DIVIDING_MODES)}.",
            )
    layout = given or own
    if layout is None or mode not in (None, *DIVIDING_MODES):
        return AskedSpread(mode)
    if mode == "pmap" and layout.replicas is None:
        raise SpecError(
            "--mesh",
            f"= {layout.label!r} is not for --mode pmap, which divides rows alone; use "
            f"data={layout.devices}, or --mode mesh.",
        )
    return AskedSpread(mode or "mesh", layout)


def read_mesh(text: str) -> Layout:
    """Reads what --mesh says.

    Raises:
        SpecError: If it is no layout.
    """
    try:
        return Layout.parse(text)
    except SpecError as error:
        raise SpecError("--mesh", f"= {text!r}: {error}") from None


def layout_of(found: Any, path: str) -> Layout:
    """Reads what a config file's get_layout() returns.

    Args:
        found: What it returned.
        path: The file, for the sentence.

    Raises:
        SpecError: If it is no layout.
    """
    known = [field.name for field in dataclasses.fields(Layout)]
    if not isinstance(found, dict):
        raise SpecError(path, "get_layout() must return a dict such as {'fsdp': 4, 'tensor': 2}, "
                        f"got {type(found).__name__}.")  # fmt: skip
    for name in found:
        if name not in known:
            raise SpecError(path, f"get_layout() has {name!r}; {nearest(str(name), known)}.")
    try:
        return Layout(**found)
    except SpecError as error:
        raise error.inside(f"{path}: get_layout()") from None


def execution_of(spread: AskedSpread) -> Any:
    """Returns the execution of a run by itself; starts the JAX backend.

    Raises:
        SpecError: If the mode is none for one run, or not for several processes.
    """
    import jax

    from jtransformer.training import LOOP, Execution

    mode = spread.mode or ("loop" if jax.process_count() == 1 else "mesh")
    if mode not in TURNS:
        raise SpecError("--mode", f"= {mode!r} is not for one run; {nearest(mode, TURNS)}.")
    if mode != "mesh" and jax.process_count() > 1:
        raise SpecError(
            "--mode",
            f"= {mode!r} is for one process, and there are {jax.process_count()}; use 'mesh'.",
        )
    if mode == "loop":
        return LOOP
    found = Execution.over_devices(mode, spread.layout, jax.device_count())
    if jax.process_count() > 1 and found.all_devices < jax.device_count():
        raise SpecError(
            "--mesh",
            f"takes {found.all_devices} of the {jax.device_count()} devices of "
            f"{jax.process_count()} processes, each of which needs a part; use all of them.",
        )
    return found


def unused_devices(execution: Any) -> str | None:
    """Returns a sentence for an execution that leaves devices idle; None where it uses all."""
    import jax

    used, found = execution.all_devices, jax.device_count()
    if used >= found:
        return None
    return f"Training on {used} of {found} devices; --mesh fsdp={found} uses all of them."
