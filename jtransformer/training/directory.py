"""A run's directory: whose it is, its tokenizer, and where its numbers were computed."""

from typing import Any

import jax

from jtransformer import records
from jtransformer.data import Corpus, save_tokenizer
from jtransformer.spec import Adam, OptimizerSpec, RunSpec, SpecError, to_tree
from jtransformer.training import hosts
from jtransformer.training.environment import (
    check_same_environment,
    check_same_host,
    environment,
)
from jtransformer.training.matrices import decayed

_NEEDED = ("fingerprint", "tokenizer_sha256")
"""What a directory says of itself, to be known as that of a run."""


def open_directory(
    files: records.RunFiles,
    spec: RunSpec,
    corpus: Corpus,
    identity: str,
    taken: dict[str, Any] | None = None,
) -> None:
    """Makes a run's directory with its spec and tokenizer, or finds that it is that run's.

    Args:
        files: The directory.
        spec: The run.
        corpus: What it reads.
        identity: Its fingerprint.
        taken: What it has taken over, where it starts from other parameters.

    Raises:
        SpecError: If it belongs to another run or tokenizer.
        DamagedRecord: If what it says of itself cannot be read.
    """
    files.directory.mkdir(parents=True, exist_ok=True)
    tokenizer = corpus.tokenizer.sha256
    if files.spec.exists():
        about = records.read_json(files.spec)
        missing = [name for name in _NEEDED if not isinstance(about, dict) or name not in about]
        if missing:
            raise records.DamagedRecord(
                f"{files.spec} is damaged (it lacks {', '.join(missing)}); restore it from a copy, "
                "or delete the directory to train the run anew."
            )
        found = about["fingerprint"]
        if found != identity:
            raise SpecError(
                "",
                f"{files.directory} belongs to another run (fingerprint {found[:8]}, this run is "
                f"{identity[:8]}); use another work directory.",
            )
        if about["tokenizer_sha256"] != tokenizer:
            raise SpecError(
                "data.tokenizer",
                f"has the hash {tokenizer[:8]}, and the run in {files.directory} was begun with "
                f"{about['tokenizer_sha256'][:8]}; bring that one back, or use another work "
                "directory.",
            )
    # Where there is no spec yet, what there is of a tokenizer may be torn.
    if not (files.spec.exists() and files.tokenizer.exists()):
        save_tokenizer(corpus.tokenizer, files.tokenizer)
    if not files.spec.exists():
        about = {
            "schema": records.SCHEMA,
            "fingerprint": identity,
            "data_sha256": corpus.sha256,
            "tokenizer_sha256": tokenizer,
            "spec": to_tree(spec),
        }
        records.write_json(files.spec, about if taken is None else about | {"start": taken})


def record_environment(
    files: records.RunFiles, mode: str, optimizer: OptimizerSpec, parameters: Any, accept: bool
) -> None:
    """Writes where and how a run is computed, or refuses another way than it was begun in.

    Of several processes the first one writes, and all compare.

    Args:
        files: Its directory.
        mode: Label of its execution.
        optimizer: Decides which parameters are decayed.
        parameters: Its parameters, by path.
        accept: Whether another environment is recorded, with an event, instead of refused.

    Raises:
        SpecError: If the environment is another, or that of another process is, and not accepted.
        DamagedRecord: If the record of it is damaged.
    """
    present = environment(mode)
    recorded, first = hosts.told(lambda: (records.read_object(files.environment), present))
    if not accept:
        check_same_host(first, present)
    if recorded is not None:
        if accept and any(recorded.get(name) != value for name, value in present.items()):
            event = {"event": "continued in another environment", "before": recorded}
            if hosts.is_first():
                records.append_row(files.events, event)
        elif not accept:
            check_same_environment(recorded, present)
            return
    names = [
        "/".join(entry.key for entry in path)
        for path, is_decayed in jax.tree_util.tree_leaves_with_path(decayed(parameters))
        if is_decayed and not isinstance(optimizer.rule, Adam)
    ]
    if hosts.is_first():
        records.write_json(files.environment, present | {"decayed_parameters": names})


def complete(files: records.RunFiles, status: dict[str, Any]) -> dict[str, Any]:
    """Makes a run complete, or finds that it is already; returns the status that counts.

    The same run has the same result wherever it is completed; where it has not, an event says so.
    """
    if records.create_json(files.status, status):
        return status
    try:
        first = records.read_json(files.status)
    except records.DamagedRecord:  # Recorded by the event of what is set aside.
        records.set_aside_status(files)
        return complete(files, status)
    differing = [name for name in ("state", "result", "pairing") if first[name] != status[name]]
    if differing:
        event = {"event": "completed twice with other results", "parts": differing}
        records.append_row(files.events, event)
    return first
