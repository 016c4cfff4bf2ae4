"""Reads a command's flags and its config file."""

import ast
import importlib.util
import inspect
import sys
import traceback
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags
from ml_collections import ConfigDict

from jtransformer.cli.layouts import layout_of
from jtransformer.config import inherited_settings, to_plain
from jtransformer.spec import Layout, RunSpec, SpecError, Tree, from_tree, get, nearest

OVERRIDE = "--config."
PATHS = {"workdir", "prompt_file", "into", "pilot", "compile_cache", "cache", "out"}
"""Flags that may begin with "~"."""


class Experiment(NamedTuple):
    """A config file, read, with the overrides of the command line applied.

    Attributes:
        path: The file.
        question: Its docstring.
        tree: Its run, the settings of all kinds written out.
        touched: Dotted paths that the command line set.
        inherited: Dotted paths that are as the preset had them.
        sweep: What `get_sweep()` returns, None where the file has none.
        layout: What `get_layout()` returns, None where the file has none, or none of this size.
    """

    path: Path
    question: str
    tree: Tree
    touched: frozenset[str]
    inherited: frozenset[str]
    sweep: Any
    layout: Layout | None

    def run_spec(self) -> RunSpec:
        """Returns the run, checked.

        Raises:
            SpecError: For what is wrong with it, as `jtransformer.spec.from_tree` says.
        """
        return from_tree(self.tree, touched=self.touched, inherited=self.inherited)


def parse(
    argv: list[str],
    *,
    takes_config: bool,
    switches: tuple[str, ...] = (),
    others: flags.FlagValues | None = None,
) -> flags.FlagValues:
    """Reads the flags of a command.

    Args:
        argv: What follows the command.
        takes_config: Whether it has --config and overrides; they are left to `read_experiment`.
        switches: Names of flags that are on or off.
        others: Further flags of the command; the rest is added to them.

    Raises:
        SpecError: For an unknown flag, a missing one, or a word that is no flag.
    """
    values = flags.FlagValues() if others is None else others
    flags.DEFINE_string("workdir", None, "Directory of the runs.", flag_values=values)
    if takes_config:
        flags.DEFINE_string("config", None, "The config file.", flag_values=values)
    for name in switches:
        flags.DEFINE_bool(name, False, name, flag_values=values)
    if takes_config:
        _overrides(argv)  # First, since a value after a space would look like a stray word.
    read_flags(values, argv, stray="write --workdir DIR and --config.PATH=VALUE")
    for name in ("config", "workdir") if takes_config else ("workdir",):
        if not getattr(values, name):
            raise SpecError(f"--{name}", f"is missing; add --{name} {name.upper()}.")
    return values


def read_flags(values: flags.FlagValues, argv: list[str], *, stray: str) -> None:
    """Reads the words of a command line into its flags.

    Args:
        values: The flags of the command. Where "config" is one of them, its overrides are left
            to `read_experiment`.
        argv: What follows the command.
        stray: What to do about a word that is no flag.

    Raises:
        SpecError: For an unknown flag, a wrong value, or a word that is no flag.
    """
    known, own = list(values), argv
    if "config" in values:
        known = ["config.…", *values]
        own = [word for word in argv if not word.startswith(OVERRIDE)]
    try:
        words = values(["jtransformer", *own])[1:]
    except flags.UnrecognizedFlagError as error:
        offer = nearest(error.flagname, known)
        raise SpecError(f"--{error.flagname}", f"is not a flag; {offer}.") from None
    except (flags.Error, ValueError) as error:
        raise SpecError("", f"{error}") from None
    if words:
        raise SpecError(words[0], f"is not a flag; {stray}.")
    for name in PATHS & set(values):
        given = values[name].value
        for path in given if isinstance(given, list) else [given]:
            _check_path(f"--{name}", path, is_given=bool(values[name].present))


def _check_path(flag: str, path: str | None, *, is_given: bool) -> None:
    if is_given and not path:
        raise SpecError(flag, "is empty; write a path, or leave it out.")
    try:
        Path(path or "").expanduser()
    except RuntimeError:
        raise SpecError(flag, f"= {path!r} is in the home of nobody; write the path out.") from None


def read_experiment(path: Path, argv: list[str]) -> Experiment:
    """Loads a config file and applies the overrides `--config.PATH=VALUE` of the command line.

    Args:
        path: The file; with ":SIZE" behind it, each of its functions that takes a size gets that.
        argv: What follows the command.

    Raises:
        SpecError: If the file cannot be used, or an override cannot be applied.
    """
    path, size = _file_and_size(path)
    module = _guarded(path, lambda: _load(path))
    get_config = getattr(module, "get_config", None)
    if get_config is None:
        raise SpecError(str(path), "has no get_config(); see experiments/norm_and_ffn/config.py.")
    if size is not None:
        _check_size(path, get_config, size)

    def answer(function: Callable[..., Any]) -> Any:
        takes_size = size is not None and inspect.signature(function).parameters
        return _guarded(path, (lambda: function(size)) if takes_size else function)

    config = answer(get_config)
    if not isinstance(config, ConfigDict):
        raise SpecError(
            str(path), f"get_config() must return a ConfigDict, got {type(config).__name__}."
        )
    get_sweep, get_layout = (getattr(module, name, None) for name in ("get_sweep", "get_layout"))
    layout = None if get_layout is None else answer(get_layout)
    overrides = _overrides(argv)
    _apply(config, overrides)
    return Experiment(
        path=path,
        question=(module.__doc__ or "").strip(),
        tree=to_plain(config),
        touched=frozenset(overrides),
        inherited=inherited_settings(config),
        sweep=None if get_sweep is None else answer(get_sweep),
        layout=None if layout is None else layout_of(layout, str(path)),
    )


def _file_and_size(path: Path) -> tuple[Path, str | None]:
    """Takes FILE:SIZE apart; a file that has a colon in its name is that file."""
    name, colon, size = path.name.rpartition(":")
    return (path.with_name(name), size) if colon and name and not path.exists() else (path, None)


def _check_size(path: Path, get_config: Callable[..., Any], size: str) -> None:
    """Refuses a size that the file does not name: `get_config(size: Literal[...] = ...)`."""
    hints = _guarded(path, lambda: typing.get_type_hints(get_config))
    sizes = next(
        (typing.get_args(hints.get(name)) for name in inspect.signature(get_config).parameters), ()
    )
    if not sizes:
        raise SpecError(
            "--config",
            f"= {f'{path}:{size}'!r}, but the file has one size; leave out {f':{size}'!r}.",
        )
    if size not in sizes:
        raise SpecError(
            "--config",
            f"= {f'{path}:{size}'!r}, but that is no size of the file; {nearest(size, sizes)}.",
        )


def _guarded(path: Path, user_code: Callable[[], Any]) -> Any:
    """Calls a part of a config file; whatever goes wrong there is the file's mistake.

    Raises:
        SpecError: With the error and its line.
    """
    try:
        return user_code()
    except SpecError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        here = path.resolve()
        lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == here]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
        where = f" in line {line}" if line else ""
        sentence = " ".join(str(error).split()).rstrip(".")
        problem = f"fails{where} ({type(error).__name__}: {sentence}); fix the file."
        raise SpecError(str(path), problem) from error


def _load(path: Path) -> types.ModuleType:
    if not path.is_file():
        raise SpecError("--config", f"= {str(path)!r} is not a file; give a config file in Python.")
    found = importlib.util.spec_from_file_location("jtransformer_experiment", path)
    if found is None or found.loader is None:
        raise SpecError("--config", f"= {str(path)!r} is not a Python file (*.py).")
    module = importlib.util.module_from_spec(found)
    # A config folder gains no __pycache__ by being read.
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        found.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def _overrides(argv: list[str]) -> dict[str, str]:
    found = {}
    for word in argv:
        if word.startswith(OVERRIDE):
            path, equals, text = word.removeprefix(OVERRIDE).partition("=")
            if not equals:
                raise SpecError(word, f"has no value; write {word}=VALUE.")
            found[path] = text
    return found


def _apply(config: ConfigDict, overrides: dict[str, str]) -> None:
    """Sets overrides, read as Python values; what they must be is for the spec to say.

    The config flags of ml_collections take the type from the current value instead: None has
    none to offer, and None cannot be given.
    """
    tree = to_plain(config)
    parsed = {}
    for path, text in overrides.items():
        current = get(tree, path)
        if isinstance(current, dict):
            raise SpecError(
                path, f"is a group of settings; name one of them: {', '.join(current)}."
            )
        parsed[path] = text if isinstance(current, str) else _literal(text)
    config.update_from_flattened_dict(parsed)


def _literal(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for read in (ast.literal_eval, float):  # float reads nan and inf, to be refused as such.
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return text
