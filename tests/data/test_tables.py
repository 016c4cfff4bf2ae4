"""Tests for jtransformer.data.documents: parquet files and Hugging Face data sets."""

import sys

import pytest

from jtransformer.data import load
from jtransformer.data.documents import read_hugging_face, read_parquet
from jtransformer.data.sources import Example, Fault
from jtransformer.spec import DataSpec, HuggingFace, Parquet, SpecError

ROWS = {"text": ["a\tb\n", None, "", "Füße 😀", "e"], "other": ["1", "2", "3", "4", "5"]}
FOUND = [
    Example(1, None, "a\tb\n"),
    Fault(2, "has a field 'text' that is null instead of a string"),
    Fault(3, "has an empty 'text'"),
    Example(4, None, "Füße 😀"),
    Example(5, None, "e"),
]


def write(path, rows, **options):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(rows), path, **options)


def message(read, source):
    with pytest.raises(SpecError) as caught:
        list(read(source))
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    return str(caught.value)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.parquet"
    write(path, ROWS, row_group_size=2)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import datasets

    folder = tmp_path_factory.mktemp("sets")
    data = datasets.Dataset.from_dict(ROWS)
    data.save_to_disk(str(folder / "one"))
    held_out = datasets.Dataset.from_dict({"text": ["held out"]})
    datasets.DatasetDict({"train": data, "test": held_out}).save_to_disk(str(folder / "several"))
    return folder


def test_rows_of_a_parquet_file(path):
    assert list(read_parquet(Parquet(path=str(path)))) == FOUND
    pairs = list(read_parquet(Parquet(path=str(path), field="other", source_field="text")))
    assert pairs[0] == Example(1, "a\tb\n", "1") and pairs[1] == FOUND[1]
    assert [entry.number for entry in pairs] == [1, 2, 3, 4, 5]


def test_rows_are_numbered_over_several_groups(tmp_path):
    path = tmp_path / "file"
    texts = [str(i) for i in range(3000)]
    write(path, {"text": texts}, row_group_size=700)
    found = list(read_parquet(Parquet(path=str(path))))
    assert found == [Example(i + 1, None, text) for i, text in enumerate(texts)]


def test_strings_of_other_kinds(tmp_path):
    import pyarrow

    path = tmp_path / "file"
    for kind in (pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())):
        write(path, {"text": pyarrow.array(["a", "b", "a"], kind)})
        assert [e.target for e in read_parquet(Parquet(path=str(path)))] == ["a", "b", "a"]
    write(path, {"text": pyarrow.array([b"a"], pyarrow.binary())})
    (fault,) = read_parquet(Parquet(path=str(path)))
    assert fault == Fault(1, "has a field 'text' that is bytes instead of a string")


def test_a_row_that_is_not_utf8_is_told_by_number(tmp_path):
    import pyarrow

    path, kind = tmp_path / "file", pyarrow.string()
    bad = pyarrow.array([b"good", b"b\xff", b"good"], pyarrow.binary()).view(kind)
    write(path, {"text": bad})
    found = list(read_parquet(Parquet(path=str(path))))
    assert found[1] == Fault(2, "is not UTF-8 (byte 2 of the text)")
    assert [type(entry) for entry in found] == [Example, Fault, Example]


@pytest.mark.parametrize("setting", ["field", "source_field"])
def test_error_a_column_that_does_not_exist(path, folder, setting):
    sources = [
        ("parquet", read_parquet, Parquet(path=str(path), **{setting: "Text"})),
        ("hugging_face", read_hugging_face, HuggingFace(name=f"{folder}/one", **{setting: "Text"})),
    ]
    for kind, read, source in sources:
        assert message(read, source) == (
            f"data.source.{kind}.{setting} = 'Text' is no column; use 'text' or 'other'."
        )


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no table at all" * 9, None])
def test_error_a_file_that_is_no_parquet(path, content):
    whole = path.read_bytes()
    path.write_bytes(whole[:-20] if content is None else content)
    found = message(read_parquet, Parquet(path=str(path)))
    assert found.startswith(f"data.source.parquet.path = {str(path)!r} cannot be read (")


def test_error_damage_inside_a_parquet_file(path):
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56
    path.write_bytes(bytes(content))
    assert "cannot be read (" in message(read_parquet, Parquet(path=str(path)))


@pytest.mark.parametrize(
    ("file", "reason"), [("missing", "No such file"), (".", "directory"), ("/dev/zero", "device")]
)
def test_error_parquet_files_that_cannot_be_read(tmp_path, monkeypatch, file, reason):
    monkeypatch.chdir(tmp_path)
    assert reason in message(read_parquet, Parquet(path=file))


def test_rows_of_a_data_set_on_disk(folder, monkeypatch):
    assert list(read_hugging_face(HuggingFace(name=str(folder / "one")))) == FOUND
    assert list(read_hugging_face(HuggingFace(name=str(folder / "several")))) == FOUND
    monkeypatch.chdir(folder)
    (other,) = read_hugging_face(HuggingFace(name="several", split="test"))
    assert other == Example(1, None, "held out")
    pairs = list(read_hugging_face(HuggingFace(name="one", field="other", source_field="text")))
    assert pairs[0] == Example(1, "a\tb\n", "1")


def test_error_a_split_or_a_configuration_that_does_not_exist(folder):
    several, one = str(folder / "several"), str(folder / "one")
    assert message(read_hugging_face, HuggingFace(name=several, split="dev")) == (
        f"data.source.hugging_face.split = 'dev' is not in {several!r}; use 'train' or 'test'."
    )
    found = message(read_hugging_face, HuggingFace(name=one, split="test"))
    assert found.endswith("; use 'train'.")
    found = message(read_hugging_face, HuggingFace(name=one, configuration="en"))
    assert found.startswith("data.source.hugging_face.configuration = 'en' would do nothing")


@pytest.mark.parametrize("name", ["nobody/no-such-set", "a b", "~nobody-has-this-name/x"])
def test_error_a_name_without_a_network(monkeypatch, name):
    import datasets
    import huggingface_hub

    for module in (datasets.config, huggingface_hub.constants):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", True)
    found = message(read_hugging_face, HuggingFace(name=name))
    assert found.startswith(f"data.source.hugging_face.name = {name!r} cannot be read (")
    assert found.endswith(
        "); give a folder that Dataset.save_to_disk wrote, or a name on the hub and a network."
    )


def test_error_a_folder_that_is_no_data_set(tmp_path):
    found = message(read_hugging_face, HuggingFace(name=str(tmp_path)))
    assert "neither a `Dataset` directory nor a `DatasetDict` directory" in found


@pytest.mark.parametrize(
    ("read", "source", "kind", "package"),
    [
        (read_parquet, Parquet(path="x"), "parquet", "pyarrow"),
        (read_hugging_face, HuggingFace(name="x"), "hugging_face", "datasets"),
    ],
)
def test_error_without_the_package(monkeypatch, read, source, kind, package):
    for module in (package, f"{package}.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    assert message(read, source) == (
        f"data.source.kind = {kind!r} needs the package {package}; "
        "pip install 'jtransformer[data]'."
    )


def test_the_same_corpus_from_every_kind_of_table(tmp_path, folder):
    import datasets

    texts = [f"document {i}" for i in range(300)]
    write(tmp_path / "file", {"text": texts})
    datasets.Dataset.from_dict({"text": texts}).save_to_disk(str(tmp_path / "set"))
    sources = [Parquet(path=str(tmp_path / "file")), HuggingFace(name=str(tmp_path / "set"))]
    a, b = (load(DataSpec(source=source, rows="padded")) for source in sources)
    assert a.sha256 == b.sha256 and len(a.test) == len(b.test) > 0
