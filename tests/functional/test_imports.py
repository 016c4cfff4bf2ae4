"""The functions load nothing beyond jax, numpy and jaxtyping, and every axis is in the alphabet."""

import inspect
import re
import subprocess
import sys
import typing

import jtransformer.functional
from jtransformer.shapes import ALPHABET

PROBE = """
import sys
import jax, jax.numpy, numpy, jaxtyping
before = set(sys.modules)
import jtransformer.functional
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def test_a_fresh_process_loads_nothing_more():
    command = [sys.executable, "-W", "error", "-c", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # The standard library may load more of itself; nothing of a third party may appear.
    assert set(done.stdout.split()) - sys.stdlib_module_names == {"jtransformer"}


def test_everything_public_exists_and_is_documented():
    names = jtransformer.functional.__all__
    assert len(set(names)) == len(names)
    for name in names:
        public = getattr(jtransformer.functional, name)
        assert not callable(public) or public.__doc__, name


def test_options_are_keyword_only_and_have_defaults_of_their_own():
    for name in jtransformer.functional.__all__:
        public = getattr(jtransformer.functional, name)
        if not inspect.isfunction(public):
            continue
        for parameter in inspect.signature(public).parameters.values():
            is_number = isinstance(parameter.default, bool | int | float | str)
            if is_number:
                assert parameter.kind is parameter.KEYWORD_ONLY, (name, parameter.name)


def test_every_axis_of_a_signature_is_in_the_alphabet():
    letters = set()
    for name in jtransformer.functional.__all__:
        public = inspect.unwrap(getattr(jtransformer.functional, name))
        if not inspect.isfunction(public):
            continue
        for annotation in typing.get_type_hints(public).values():
            for array in (annotation, *typing.get_args(annotation)):
                letters |= set(re.findall(r"\b[A-Z][a-z]?\b", getattr(array, "dim_str", "")))
    assert {"B", "T", "S", "N", "H", "Hv", "D", "F", "V"} <= letters
    assert letters <= set(ALPHABET)
