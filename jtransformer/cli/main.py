"""Dispatch: one word, then that command's flags."""

import importlib
import os
import sys
from collections.abc import Callable

import jtransformer
from jtransformer import records
from jtransformer.cli.platforms import spare_missing_tpu
from jtransformer.cli.stopping import Stopped, stops_at_once
from jtransformer.spec import SpecError, nearest

COMMANDS = {
    "sweep": "plan a grid, train every missing run, write the page; run it again to continue",
    "plan": "say what a sweep would be, cost and be able to show; writes nothing",
    "train": "train one run, or continue it",
    "worker": "train runs of a planned sweep until none is left; start as many as you like",
    "evaluate": "measure a trained run's loss, and its answers where it was trained on pairs",
    "generate": "continue a text with a trained run, or answer a source",
    "count": "say how many parameters, operations and bytes a model has",
    "draw": "draw the block diagram of a model, or of two with what differs",
    "compile": "say whether a run fits devices that are not here, and how fast it would be",
    "probe": "measure a model inside, layer by layer: a run, or a config at its initial values",
    "check": "judge a model by what must hold for every Transformer: a config, a run or a preset",
    "diff": "compare two implementations layer by layer, and name what explains the difference",
    "import_hf": "read a Hugging Face directory into the directory of a run",
    "export_hf": "write a run as a Hugging Face directory, which transformers loads",
    "reproduce": "train a run again from its directory alone and compare every figure",
    "track": "show runs in TensorBoard or Weights & Biases; again to add what is new",
    "status": "say what a work directory holds and what is missing",
    "report": "write the page of a work directory again; works while its sweep runs",
    "compare": "put several work directories on one page; pool those that differ in seeds alone",
}
USER_ERROR, FAILED_RUN, REQUEUE = 2, 1, 75


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Returns:
        0; 1 if a run failed; 2 for a user's mistake; 75 if it was asked to stop and should be
        started again.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        shown = _guarded("--help", lambda: _print(_overview()))
        return shown if arguments else USER_ERROR
    if arguments[0] == "--version":
        print(jtransformer.__version__)
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(
            f"jtransformer: {name!r} is not a command; {nearest(name, COMMANDS)}.", file=sys.stderr
        )
        return USER_ERROR
    # Before the command is imported: JAX reads these variables when it is.
    quiet_libraries()
    spare_missing_tpu(os.environ)
    command = importlib.import_module(f"jtransformer.cli.{name}")
    if any(flag in ("--help", "-h") for flag in rest):
        return _guarded(name, lambda: _print((command.__doc__ or "").strip()))
    return _guarded(name, lambda: command.run(rest))


def _print(text: str) -> int:
    """Prints at once, so that a reader who has gone is noticed here and not at exit."""
    print(text, flush=True)
    return 0


def _guarded(name: str, run: Callable[[], int]) -> int:
    """Runs a command, which a request to stop ends; says what ended it early."""

    def stoppable() -> int:
        with stops_at_once():
            return run()

    code, sentence = outcome(stoppable)
    if sentence is not None:
        print(f"jtransformer {name}: {sentence}", file=sys.stderr)
    return code


def outcome(run: Callable[[], int]) -> tuple[int, str | None]:
    """Runs a command; what ends it early becomes an exit code and a sentence.

    Returns:
        The code, and what is to be said; None where there is nothing, or nobody who reads it.
    """
    try:
        return run(), None
    except (SpecError, records.DamagedRecord) as error:
        return USER_ERROR, str(error)
    except Stopped:
        return REQUEUE, "stopped as asked; run the same command to continue."
    except BrokenPipeError:
        # Nobody reads what is printed, so nobody can be told; the work is not finished.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED_RUN, None
    except OSError as error:
        return FAILED_RUN, f"{error}; make room or mend the disk, then run it again."


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "jtransformer: does this change to a Transformer help, by how much, how sure are we?",
            "",
            "usage: jtransformer COMMAND --help",
            "",
            *lines,
            "",
            "example: jtransformer sweep --config experiments/norm_and_ffn/config.py "
            "--workdir runs/norm_and_ffn",
        ]
    )


def quiet_libraries() -> None:
    """Keeps what libraries say about themselves off the terminal; errors stay."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import logging

    logging.getLogger("absl").setLevel(logging.ERROR)
    logging.getLogger("jax").setLevel(logging.ERROR)
