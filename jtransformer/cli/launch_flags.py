"""The flags of `sweep` that say who trains and how, and what they come to."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

from absl import flags

from jtransformer.cli.layouts import define_layout_flags, read_spread
from jtransformer.cli.preflight import check_writable
from jtransformer.spec import Layout, SpecError
from jtransformer.sweep import Launch
from jtransformer.sweep.launchers import Launcher, launcher
from jtransformer.sweep.ledger import LEASE_SECONDS


class Workers(NamedTuple):
    """Who trains.

    Attributes:
        launch: What workers follow.
        number: How many there are; 0 trains nothing.
        launcher: Starts them; None for this process alone.
    """

    launch: Launch
    number: int
    launcher: Launcher | None


def launch_flags() -> flags.FlagValues:
    """Returns the flags, not yet read."""
    values = flags.FlagValues()
    flags.DEFINE_string("launcher", "local", "launcher", flag_values=values)
    flags.DEFINE_multi_string("option", [], "option", flag_values=values)
    flags.DEFINE_integer("workers", 1, "workers", flag_values=values)
    flags.DEFINE_integer("retries", 0, "retries", flag_values=values)
    flags.DEFINE_float("lease", LEASE_SECONDS, "lease", flag_values=values)
    flags.DEFINE_bool("accept_environment", False, "accept_environment", flag_values=values)
    define_layout_flags(values)
    flags.DEFINE_integer("runs_at_once", None, "runs_at_once", flag_values=values)
    flags.DEFINE_integer("steps_per_dispatch", None, "steps_per_dispatch", flag_values=values)
    flags.DEFINE_string("compile_cache", None, "compile_cache", flag_values=values)
    return values


def read_workers(values: flags.FlagValues, workdir: Path) -> Workers:
    """Reads who is to train; how runs are spread is left to `spread_by`.

    Args:
        values: `launch_flags`, read.
        workdir: The work directory.

    Raises:
        SpecError: For a number out of its range, an unknown launcher or option, or a place that
            cannot be written.
    """
    for name in ("workers", "retries"):
        if getattr(values, name) < 0:
            raise SpecError(f"--{name}", f"must be at least 0, got {getattr(values, name)}.")
    if not 0 < values.lease < float("inf"):
        raise SpecError("--lease", f"must be a number of seconds above 0, got {values.lease}.")
    cache = values.compile_cache and Path(values.compile_cache).expanduser().absolute()
    if cache:
        check_writable(cache, "--compile_cache")
    launch = Launch(
        retries=values.retries,
        lease_seconds=values.lease,
        accept_environment=values.accept_environment,
        runs_at_once=values.runs_at_once,
        steps_per_dispatch=values.steps_per_dispatch,
        compile_cache=cache and str(cache),
        workers=max(1, values.workers),
    )
    chosen = launcher(values.launcher, values.option, workdir.absolute())
    is_here = values.launcher == "local" and values.workers == 1
    return Workers(launch, values.workers, None if is_here else chosen)


def spread_by(workers: Workers, values: flags.FlagValues, layout: Layout | None) -> Workers:
    """Returns the workers, told how to execute runs.

    Args:
        workers: Who trains.
        values: `launch_flags`, read.
        layout: That of the config file; None where it has none.

    Raises:
        SpecError: If there is no such mode or layout, or they have no meaning together.
    """
    spread = read_spread(values, layout)
    mesh = spread.layout and spread.layout.label
    launch = dataclasses.replace(workers.launch, mode=spread.mode or "auto", mesh=mesh)
    return workers._replace(launch=launch)
