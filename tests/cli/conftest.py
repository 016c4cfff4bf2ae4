"""What several files of commands start from."""

import os

import pytest
import tiny_run

from jtransformer import ahead


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A config file of a tiny run."""
    return tiny_run.config_file(tmp_path_factory.mktemp("config"), {})


@pytest.fixture
def compilers(monkeypatch):
    """Gives back what a command sets for compilers of devices that are not here."""
    for name in ahead.ENVIRONMENT:
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache for a whole file: its programs are compiled once."""
    return tmp_path_factory.mktemp("cache")
