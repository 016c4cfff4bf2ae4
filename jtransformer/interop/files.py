"""Files of a Hugging Face directory: config.json, tensors in one file or in shards, tokenizers.

Tensors are read one at a time from their file, with no map of it left behind: pages of a mapped
file count as memory of the process as long as the map lives. The `safetensors` library judges a
file before anything is read; its format is a length, a JSON header and the numbers
(https://github.com/huggingface/safetensors). Pickled weights are read by torch's `weights_only`
alone, which refuses code.
"""

import abc
import dataclasses
import json
import pickle
import struct
import warnings
from collections.abc import Mapping, Sequence
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
    """

    shapes: dict[str, Shape]
    dtypes: dict[str, str]

    @abc.abstractmethod
    def read(self, name: str) -> np.ndarray:
        """Returns one tensor, in the type in which it is stored."""


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where the numbers of a tensor lie."""

    path: Path
    offset: int


class SafeStore(Store):
    """Tensors of safetensors files."""

    def __init__(self, paths: Sequence[Path]):
        """Reads the headers.

        Raises:
            SpecError: If a file is missing or damaged, or two hold one name.
        """
        self.shapes, self.dtypes = {}, {}
        self._places: dict[str, _Place] = {}
        for path in paths:
            self._add(path)

    def _add(self, path: Path) -> None:
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
        for name, about in header.items():
            if name in self._places:
                raise SpecError(name, f"is in {self._places[name].path.name} and in {path.name}.")
            self.shapes[name] = tuple(about["shape"])
            self.dtypes[name] = about["dtype"]
            self._places[name] = _Place(path, 8 + length + about["data_offsets"][0])

    def read(self, name: str) -> np.ndarray:
        place, shape = self._places[name], self.shapes[name]
        count = int(np.prod(shape, dtype=np.int64))
        found = np.fromfile(place.path, DTYPES[self.dtypes[name]], count, offset=place.offset)
        return found.reshape(shape)


class PickledStore(Store):
    """Tensors of pickled files, read by torch without running what a pickle may hold."""

    def __init__(self, paths: Sequence[Path]):
        """Opens the files.

        Raises:
            SpecError: If torch is missing, or a file is missing, damaged or holds more than
                tensors.
        """
        self.shapes, self.dtypes = {}, {}
        self._tensors: dict[str, Any] = {}
        for path in paths:
            for name, tensor in _unpickled(path).items():
                if name in self._tensors:
                    raise SpecError(name, f"is in {path.name} and in another file too.")
                self._tensors[name] = tensor
                self.shapes[name] = tuple(tensor.shape)
                self.dtypes[name] = _name_of(tensor)

    def read(self, name: str) -> np.ndarray:
        import torch  # pyright: ignore[reportMissingImports]

        tensor = self._tensors[name].contiguous()
        if self.dtypes[name] == "BF16":
            return tensor.view(torch.int16).numpy().view(jnp.bfloat16)
        return tensor.numpy()


def _name_of(tensor: Any) -> str:
    names = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    own = str(tensor.dtype).removeprefix("torch.")
    return names.get(own, own)


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
    if not path.is_file():
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
        if (directory / index).exists():
            return kind(_shards(directory / index))
        if (directory / single).exists():
            return kind([directory / single])
    raise SpecError(
        "", f"{directory} holds no weights; it needs {SAFE}, {SAFE_INDEX}, {PICKLED} or its index."
    )


def _shards(index: Path) -> list[Path]:
    weights = read_object(index).get("weight_map")
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights.values()):
        raise SpecError("", f"{index} has no weight_map of names to files; get it again.")
    names = sorted(set(weights.values()))
    for name in names:
        # A name could lead out of the directory.
        if Path(name).name != name:
            raise SpecError("", f"{index} names {name!r}, which is no file beside it.")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise SpecError("", f"{index.parent} lacks {', '.join(missing)}, named in {index.name}.")
    return [index.parent / name for name in names]
