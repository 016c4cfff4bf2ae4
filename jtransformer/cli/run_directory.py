"""A trained run, read from its directory: spec, tokenizer, special tokens, parameters."""

from pathlib import Path
from typing import Any, NamedTuple

from jtransformer import records
from jtransformer.cli.imported import at_hand, no_tokenizer, read_imported
from jtransformer.spec import RunSpec, SpecError, from_tree

NEWEST, BEST = "newest", "best"
SHOWN = 12
"""Runs of a work directory that an error message names."""
FIELDS = ("schema", "fingerprint", "data_sha256", "tokenizer_sha256", "spec")


class TrainedRun(NamedTuple):
    """What a run has left.

    Attributes:
        spec: What was trained.
        tokenizer: Text to ids and back.
        specials: The ids behind the pieces.
        variables: The parameters whose loss is the run's figure.
        step: Updates that they have seen.
        imported: `interop.Steering` of a run that was trained elsewhere; None for others.
    """

    spec: RunSpec
    tokenizer: Any
    specials: Any
    variables: Any
    step: int
    imported: Any = None

    @property
    def eos(self) -> int | tuple[int, ...] | None:
        """What ends a text; None or none is nothing."""
        return self.specials.eos if self.imported is None else self.imported.eos

    @property
    def never(self) -> tuple[int, ...]:
        """What is in no text."""
        return () if self.imported is None else self.imported.never


def read_run(workdir: Path, checkpoint: str) -> TrainedRun:
    """Reads a run; nothing in its directory is changed.

    Args:
        workdir: Directory of one run.
        checkpoint: Which of its checkpoints: "newest", or "best" by validation.

    Raises:
        SpecError: If there is no such run or checkpoint.
        DamagedRecord: If one of its files is damaged.
    """
    if checkpoint not in (NEWEST, BEST):
        raise SpecError("--checkpoint", f"must be one of {NEWEST}, {BEST}, got {checkpoint!r}.")
    files = records.RunFiles(workdir)
    about = read_about(files)
    spec = from_tree(about["spec"])
    imported = read_imported(files, spec)
    if about["tokenizer_sha256"] is None:
        raise no_tokenizer(workdir)
    tokenizer = _tokenizer(files, about["tokenizer_sha256"])

    from jtransformer import data

    specials = data.specials(tokenizer.pieces, spec.data, spec.objective)
    # Those of an imported run are among the pieces of its tokenizer.
    needed = specials.size if imported is None else tokenizer.pieces
    if needed > spec.model.vocabulary:
        raise records.DamagedRecord(
            f"{files.tokenizer} needs a vocabulary of {needed}, and the run in {workdir} "
            f"has {spec.model.vocabulary}; restore the tokenizer of this run."
        )
    step, state = read_state(files, spec, about["fingerprint"], checkpoint)
    return TrainedRun(spec, tokenizer, specials, {"params": state.evaluated}, step, imported)


def read_about(files: records.RunFiles) -> dict[str, Any]:
    """Reads what a run says of itself, its spec.json.

    Raises:
        SpecError: If there is no run; where there are several below, they are named.
        DamagedRecord: If the file is damaged, or has another format.
    """
    workdir = files.directory
    if not files.spec.exists():
        found = _runs_below(workdir)
        if not found:
            raise SpecError("--workdir", f"= {str(workdir)!r} holds no run (spec.json is missing).")
        names = ", ".join(str(path) for path in found[:SHOWN])
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise SpecError(
            "--workdir",
            f"= {str(workdir)!r} holds {len(found)} runs; name one of them: {names}{more}.",
        )
    about = records.read_json(files.spec)
    missing = [name for name in FIELDS if not isinstance(about, dict) or name not in about]
    if missing:
        raise records.DamagedRecord(
            f"{files.spec} is damaged (it lacks {', '.join(missing)}); restore it from a copy."
        )
    if about["schema"] != records.SCHEMA:
        raise records.DamagedRecord(
            f"{files.spec} has format {about['schema']!r}, this version of jtransformer reads "
            f"{records.SCHEMA}; use the version that wrote it."
        )
    return about


def _runs_below(workdir: Path) -> list[Path]:
    """Lists the runs of a sweep, in its order, or the runs in folders of their own."""
    manifest = records.load_manifest(workdir)
    if manifest is None:
        return sorted(path.parent for path in workdir.glob("*/spec.json"))
    paths = [workdir / cell["directory"] for cell in manifest["cells"]]
    return [path for path in paths if records.RunFiles(path).spec.exists()]


def _tokenizer(files: records.RunFiles, expected: str) -> Any:
    from jtransformer import data

    try:
        tokenizer = data.load_tokenizer(files.tokenizer)
    except FileNotFoundError:
        raise records.DamagedRecord(
            f"{files.tokenizer} is missing; restore it from a copy, since no other tokenizer has "
            "the ids of this run."
        ) from None
    except ValueError as error:
        raise records.DamagedRecord(str(error)) from None
    if tokenizer.sha256 != expected:
        raise records.DamagedRecord(
            f"{files.tokenizer} has the hash {tokenizer.sha256[:8]}, and the run was trained with "
            f"{expected[:8]}; restore the tokenizer of this run."
        )
    return tokenizer


def read_corpus(workdir: Path, spec: RunSpec, data_sha256: str | None) -> Any:
    """Reads the data of a run, which must be those that it was trained on.

    Raises:
        SpecError: If they have changed, or the run was imported without any.
    """
    from jtransformer import data

    spec = at_hand(spec, workdir)
    if data_sha256 is None:
        raise SpecError(
            "--workdir",
            f"= {str(workdir)!r} was imported without a text to measure it on; import one that "
            "continues texts again with --text FILE, and name another one by start_from in a "
            "config that has data.",
        )
    corpus = data.load(spec.data, spec.objective)
    if corpus.sha256 != data_sha256:
        raise SpecError(
            "",
            f"The data of the run in {workdir} have changed since it was trained (SHA-256 "
            f"{corpus.sha256[:8]} instead of {data_sha256[:8]}); restore them.",
        )
    return corpus


def read_state(
    files: records.RunFiles,
    spec: RunSpec,
    fingerprint: str,
    checkpoint: str | int,
    flag: str = "--checkpoint",
) -> tuple[int, Any]:
    """Reads where a run stood.

    Args:
        files: Its directory.
        spec: The run.
        fingerprint: Its identity.
        checkpoint: "newest", "best" by validation, or a step.
        flag: What chooses it on the command line.

    Returns:
        The step, and the state of training.

    Raises:
        SpecError: If there is no such checkpoint.
        DamagedRecord: If it is damaged.
    """
    import jax

    from jtransformer.training import Checkpoints, Program, parameter_key

    where = files.checkpoints
    if not where.exists():
        raise SpecError("--workdir", f"= {str(files.directory)!r} has no checkpoint yet.")
    like = jax.eval_shape(Program(spec).start, parameter_key(spec.seed))
    with Checkpoints(files, fingerprint) as saved:
        steps = saved.steps()
        chosen = {NEWEST: max(steps, default=None), BEST: saved.best_step()}
        step = chosen[checkpoint] if isinstance(checkpoint, str) else checkpoint
        if step is None or step not in steps:
            raise SpecError(
                flag,
                f"= {checkpoint!r}, and {where} holds no such checkpoint; it has steps {steps}.",
            )
        try:
            return step, saved.restore(step, like)
        except SpecError:
            raise
        except ValueError as error:
            raise records.DamagedRecord(
                f"The checkpoint {where / str(step)} is damaged ({error}); choose another one by "
                f"{flag}."
            ) from None
