"""What a run can start from: parameters of a run or of a Hugging Face model, and their hash."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jtransformer import records
from jtransformer.modules import unstack_layers
from jtransformer.spec import ModelSpec, RMSNorm, SpecError, Tree, from_tree, to_tree
from jtransformer.training.checkpoints import Checkpoints
from jtransformer.training.digests import digest
from jtransformer.training.program import Program, parameter_key

FIELD = "start_from"

Shape = tuple[int, ...]


class Origin(NamedTuple):
    """What there is to start from, apart from its numbers; plain data.

    Attributes:
        directory: As it was named.
        sha256: Hash of the parameters.
        tokenizer_sha256: Hash of what its ids stand for; None where that is not known.
        model: Settings of its model that change its answers.
        offset_scales: Whether its norms multiply by 1 + scale.
        shapes: Those of its parameters by path, of layers in a loop.
    """

    directory: str
    sha256: str
    tokenizer_sha256: str | None
    model: Tree
    offset_scales: bool
    shapes: dict[str, Shape]


class Given(NamedTuple):
    """An origin, and its parameters by path, float32 in host memory."""

    origin: Origin
    values: dict[str, np.ndarray]


def read_start(directory: str) -> Given:
    """Reads what a run is to start from.

    Args:
        directory: Of a run, whose newest checkpoint counts; or a Hugging Face directory.

    Raises:
        SpecError: If it is neither, or cannot be read.
        DamagedRecord: If a file of the run is damaged.
    """
    path = Path(directory).expanduser()
    if records.SweepFiles(path).manifest.exists():
        raise SpecError(FIELD, f"= {directory!r} holds a sweep; name one of its runs.")
    if records.RunFiles(path).spec.exists():
        model, parameters, tokenizer = _of_run(records.RunFiles(path))
    elif (path / "config.json").exists():
        model, parameters, tokenizer = _of_hugging_face(path)
    else:
        raise SpecError(
            FIELD,
            f"= {directory!r} holds neither a run (spec.json) nor a Hugging Face model "
            "(config.json); name the directory of one.",
        )
    if model.scan_layers:
        parameters = unstack_layers(model, {"params": parameters})["params"]
    values = {
        joined(path): np.asarray(leaf, np.float32)
        for path, leaf in jax.tree_util.tree_leaves_with_path(parameters)
    }
    digests = {path: digest(value) for path, value in values.items()}
    origin = Origin(
        directory=directory,
        sha256=content_sha256(digests, model),
        tokenizer_sha256=tokenizer,
        model=settings(model),
        offset_scales=has_offset_scales(model),
        shapes={path: value.shape for path, value in values.items()},
    )
    return Given(origin, values)


def _of_run(files: records.RunFiles) -> tuple[ModelSpec, Any, str | None]:
    about = records.read_json(files.spec)
    try:
        tree, identity, tokenizer = (
            about[name] for name in ("spec", "fingerprint", "tokenizer_sha256")
        )
    except (KeyError, TypeError):
        raise records.DamagedRecord(
            f"{files.spec} is damaged (it lacks what a run says of itself); restore it from a copy."
        ) from None
    spec = from_tree(tree)
    if not files.checkpoints.exists():
        raise SpecError(FIELD, f"= {str(files.directory)!r} has no checkpoint yet; train it first.")
    like = jax.eval_shape(Program(spec).start, parameter_key(spec.seed))
    with Checkpoints(files, identity) as saved:
        steps = saved.steps()
        if not steps:
            raise SpecError(
                FIELD, f"= {str(files.directory)!r} has no checkpoint yet; train it first."
            )
        try:
            state = saved.restore(steps[-1], like)
        except SpecError:
            raise
        except ValueError as error:
            raise records.DamagedRecord(
                f"The checkpoint {files.checkpoints / str(steps[-1])} is damaged ({error}); "
                "restore it from a copy, or start from another run."
            ) from None
    return spec.model, state.evaluated, tokenizer


def _of_hugging_face(directory: Path) -> tuple[ModelSpec, Any, str | None]:
    from jtransformer import interop
    from jtransformer.data.library import LibraryTokenizer

    loaded, tokenizer = interop.load(directory), None
    content = interop.tokenizer_settings(directory)
    if content is not None:
        try:
            tokenizer = LibraryTokenizer(content).sha256
        except SpecError:
            raise
        except ValueError as error:
            raise SpecError(
                FIELD, f"= {str(directory)!r}: its tokenizer is none ({error})."
            ) from None
    return loaded.spec, loaded.variables["params"], tokenizer


def content_sha256(digests: Mapping[str, str], model: ModelSpec) -> str:
    """Returns the hash of parameters.

    Args:
        digests: Hash of each, by its path, of layers in a loop.
        model: Their model.
    """
    found = hashlib.sha256(f"offset_scales={has_offset_scales(model)}\n".encode())
    for path in sorted(digests):
        found.update(f"{path} {digests[path]}\n".encode())
    return found.hexdigest()


def settings(model: ModelSpec) -> Tree:
    """Returns the settings of a model that change its answers, defaults written out."""
    from jtransformer.interop import plain

    return to_tree(plain(model))


def has_offset_scales(model: ModelSpec) -> bool:
    """Returns whether the norms of a model multiply by 1 + scale."""
    return isinstance(model.norm, RMSNorm) and model.norm.unit_offset


def joined(path: Any) -> str:
    """Returns the path of a parameter in a tree as one name."""
    return "/".join(entry.key for entry in path)
