"""What programs are compiled for ahead of time: the flags of `compile` and `plan`, read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from absl import flags

from jtransformer.cli.layouts import read_mesh
from jtransformer.cli.preflight import check_writable
from jtransformer.cli.progress import say
from jtransformer.spec import Layout, SpecError

Answer = TypeVar("Answer")
LOCAL = "local"
"""As `ahead.LOCAL`, whose package loads JAX: too much for what is refused at once."""
NO_CACHE = "none"


class Target(NamedTuple):
    """What programs are compiled for.

    Attributes:
        topology: The devices, an `ahead.Topology`; as many as the layout takes.
        layout: How a run is spread over them.
        cache: Where reports are kept; None is nowhere.
    """

    topology: Any
    layout: Layout
    cache: Path | None


def define_target(values: flags.FlagValues, *, topology: str | None) -> None:
    """Adds the flags.

    Args:
        values: The flags of a command.
        topology: What is compiled for if nothing is said; None is nothing.
    """
    flags.DEFINE_string("topology", topology, "topology", flag_values=values)
    flags.DEFINE_string("mesh", None, "mesh", flag_values=values)
    flags.DEFINE_string("cache", None, "cache", flag_values=values)


def read_target(values: flags.FlagValues, usual: Layout | None) -> Target:
    """Reads what programs are compiled for; for other devices than these, before JAX has begun.

    Args:
        values: The flags of the command.
        usual: The layout if --mesh says nothing; None is what the topology has.

    Raises:
        SpecError: If there is no such topology, the layout is for another number of devices, or
            nothing can be kept in the cache.
    """
    cache = cache_directory(values.cache)
    import jax

    from jtransformer import ahead

    if values.topology != LOCAL:
        for name, word in ahead.ENVIRONMENT.items():
            os.environ.setdefault(name, word)
        # JAX has read its own variable when it was imported.
        jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
        # libtpu reads them too, and ends the process at one that is for another back end.
        os.environ["XLA_FLAGS"] = ""
    topology = refusable(lambda: ahead.topology(values.topology))
    layout = usual if values.mesh is None else read_mesh(values.mesh)
    if values.topology == LOCAL:
        # As `train` does it: what is not asked for is not used.
        layout = layout or Layout()
        topology = topology._replace(devices=topology.devices[: layout.devices])
    elif layout is None:
        layout = ahead.default_layout(topology)
    refusable(lambda: ahead.check_layout(layout, topology))
    return Target(topology, layout, cache)


def cache_directory(given: str | None) -> Path | None:
    """Returns where reports are kept: as given, or with what else a user's programs keep.

    Raises:
        SpecError: If nothing can be written there.
    """
    if given == NO_CACHE:
        return None
    if given is not None:
        path = Path(given).expanduser().absolute()
        check_writable(path, "--cache")
        return path
    # A relative path is invalid there (XDG Base Directory Specification 0.8).
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    path = (home if home.is_absolute() else Path.home() / ".cache") / "jtransformer" / "compile"
    try:
        check_writable(path, "--cache")
    except SpecError as error:
        say(f"nothing is kept: {error}")
        return None
    return path


def refusable(ask: Callable[[], Answer]) -> Answer:
    """Calls a part of `ahead`; what it refuses is a user's mistake.

    Raises:
        SpecError: Where that raises a ValueError, with its sentence.
    """
    try:
        return ask()
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError("", str(error)) from None
