"""Files of a Hugging Face directory: config.json, tensors in one file or in shards, tokenizers.

Tensors are read one at a time from their file, with no map of it left behind: pages of a mapped
file count as memory of the process as long as the map lives. The `safetensors` library judges a
file before anything is read; its format is a length, a JSON header and the numbers
(https://github.com/huggingface/safetensors). Pickled weights are read by torch's `weights_only`
alone, which refuses code.
"""

import abc
import json
import math
import pickle
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jtransformer.interop.layouts import Shape
from jtransformer.spec import SpecError

CONFIG = "config.json"
SAFE, SAFE_INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "source.spm",
    "target.spm",
    "chat_template.jinja",
    "generation_config.json",
)
"""Files that are carried along as they are."""
DTYPES: Mapping[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": jnp.bfloat16,
}
"""Types of tensors that are parameters, by their names in a safetensors file."""
MOST_BYTES_A_SHARD = 5_000_000_000


class Store(abc.ABC):
    """Stored tensors by name.

    Attributes:
        shapes: The shape of each.
        dtypes: The type of each, such as "F32"; what is no floating-point type may be there too.
        files: The file that holds each.
    """

    def __init__(self):
        self.shapes: dict[str, Shape] = {}
        self.dtypes: dict[str, str] = {}
        self.files: dict[str, Path] = {}

    def _add(self, name: str, shape: Sequence[int], dtype: str, path: Path) -> None:
        if name in self.files:
            raise SpecError(name, f"is in {self.files[name].name} and in {path.name}.")
        self.shapes[name], self.dtypes[name], self.files[name] = tuple(shape), dtype, path

    @abc.abstractmethod
    def read(self, name: str) -> np.ndarray:
        """Returns one tensor, in the type in which it is stored."""


class SafeStore(Store):
    """Tensors of safetensors files."""

    def __init__(self, paths: Sequence[Path]):
        """Reads the headers.

        Raises:
            SpecError: If a file is missing or damaged, or two hold one name.
        """
        super().__init__()
        self._offsets: dict[str, int] = {}
        for path in paths:
            header, start = _header(path)
            for name, about in header.items():
                self._add(name, about["shape"], about["dtype"], path)
                self._offsets[name] = start + about["data_offsets"][0]

    def read(self, name: str) -> np.ndarray:
        kind, count = DTYPES[self.dtypes[name]], math.prod(self.shapes[name])
        found = np.fromfile(self.files[name], kind, count, offset=self._offsets[name])
        return found.reshape(self.shapes[name])


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Returns what a safetensors file says of its tensors, and where their numbers begin."""
    from safetensors import SafetensorError, safe_open  # pyright: ignore[reportMissingImports]

    try:
        with safe_open(path, framework="np"):
            pass
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from None
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


class PickledStore(Store):
    """Tensors of pickled files, read by torch without running what a pickle may hold."""

    def __init__(self, paths: Sequence[Path]):
        """Opens the files.

        Raises:
            SpecError: If torch is missing, or a file is missing, damaged or holds more than
                tensors, or two hold one name.
        """
        super().__init__()
        self._tensors: dict[str, Any] = {}
        for path in paths:
            for name, tensor in _unpickled(path).items():
                self._add(name, tensor.shape, _name_of(tensor), path)
                # One that was saved as a parameter asks for gradients.
                self._tensors[name] = tensor.detach()

    def read(self, name: str) -> np.ndarray:
        import torch  # pyright: ignore[reportMissingImports]

        tensor = self._tensors[name].contiguous()
        if self.dtypes[name] == "BF16":
            return tensor.view(torch.int16).numpy().view(jnp.bfloat16)
        return tensor.numpy()


def _name_of(tensor: Any) -> str:
    """Returns the type of a tensor, by its name in a safetensors file where it is a parameter."""
    names = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    own = str(tensor.dtype).removeprefix("torch.")
    form = str(tensor.layout).removeprefix("torch.") if not tensor.is_meta else "meta"
    return names.get(own, own) if form == "strided" else f"{own} ({form})"


def _unpickled(path: Path) -> dict[str, Any]:
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise SpecError(
            "", f"{path.name} is pickled, which torch alone reads; install torch, or convert it."
        ) from None
    try:
        with warnings.catch_warnings():
            # It warns of forms of pickles that it then refuses.
            warnings.simplefilter("ignore", UserWarning)
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except pickle.UnpicklingError:
        raise SpecError(
            "",
            f"{path} is damaged, or holds more than tensors, which could run code as it is read; "
            "use a safetensors file, or one saved from a state_dict() alone.",
        ) from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise _damaged(path, error) from None
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in found.items()
    ):
        raise SpecError("", f"{path} is no state_dict of tensors; save model.state_dict().")
    return found


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _damaged(path: Path, error: Exception) -> SpecError:
    sentence = " ".join(str(error).split()).rstrip(".")
    return SpecError("", f"{path} cannot be read ({sentence}); get it again.")


def read_config(directory: Path) -> dict[str, Any]:
    """Reads config.json.

    Raises:
        SpecError: If there is none, or it is no JSON object.
    """
    return read_object(directory / CONFIG)


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON file that holds an object.

    Raises:
        SpecError: If there is none, or it holds anything else.
    """
    if not path.parent.is_dir():
        raise SpecError("", f"{path.parent} is no directory; give a Hugging Face directory.")
    if not is_there(path):
        raise SpecError("", f"{path.parent} holds no {path.name}; give a Hugging Face directory.")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from None
    if not isinstance(found, dict):
        raise SpecError("", f"{path} must hold a JSON object, got {type(found).__name__}.")
    return found


def open_store(directory: Path) -> Store:
    """Opens the tensors of a directory: safetensors where there are any, else pickled ones.

    Raises:
        SpecError: If there are none, or a file is missing or damaged.
    """
    for single, index, kind in (
        (SAFE, SAFE_INDEX, SafeStore),
        (PICKLED, PICKLED_INDEX, PickledStore),
    ):
        is_one, is_many = is_there(directory / single), is_there(directory / index)
        if is_one and is_many:
            raise SpecError(
                "", f"{directory} holds both {single} and {index}; remove what does not count."
            )
        if is_one:
            return kind([directory / single])
        if is_many:
            return _indexed(directory / index, kind)
    raise SpecError(
        "", f"{directory} holds no weights; it needs {SAFE}, {SAFE_INDEX}, {PICKLED} or its index."
    )


def is_there(path: Path) -> bool:
    """Says whether there is a file.

    Raises:
        SpecError: If its name is a link that leads nowhere, as where a cache was cleared.
    """
    if path.is_symlink() and not path.exists():
        raise SpecError("", f"{path} is a link to {path.readlink()}, which is gone; get it again.")
    return path.is_file()


def _indexed(index: Path, kind: Callable[[Sequence[Path]], Store]) -> Store:
    """Opens the files of an index, which must hold the tensors that it says."""
    weights = read_object(index).get("weight_map")
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights.values()):
        raise SpecError("", f"{index} has no weight_map of names to files; get it again.")
    names = sorted(set(weights.values()))
    for name in names:
        # A name could lead out of the directory.
        if Path(name).name != name:
            raise SpecError("", f"{index} names {name!r}, which is no file beside it.")
    missing = [name for name in names if not is_there(index.parent / name)]
    if missing:
        raise SpecError("", f"{index.parent} lacks {', '.join(missing)}, named in {index.name}.")
    store = kind([index.parent / name for name in names])
    for tensor in sorted({*weights, *store.files}):
        said, found = weights.get(tensor), store.files.get(tensor)
        if found is None or said != found.name:
            raise SpecError(
                tensor,
                f"is in {found.name if found else 'no file'}, and {index.name} says "
                f"{said or 'nothing of it'}; get them again.",
            )
    return store
