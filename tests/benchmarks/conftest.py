"""The benchmarks on the path, and a journal of invented measurements."""

import pathlib
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[2] / "experiments" / "benchmarks"
# Scripts find what is beside them; a test has to be told.
sys.path.append(str(BENCHMARKS))

PACE = {"ours": 1.0, "linen": 1.3, "torch": 1.6, "compiled": 1.5}
"""How long each peer takes, as a multiple of the time here."""


@pytest.fixture
def journal(tmp_path):
    """Three rounds in which the machine slows down, so that only ratios of a round are steady."""
    from bench.curves import AXES
    from bench.journal import Journal
    from bench.memory import LENGTHS, VARIANTS

    found = Journal(tmp_path / "out" / "measurements.jsonl", {"code": "abc", "cores": 2})
    for peer in (*PACE, "transformers"):
        missing = ["transformers"] if peer == "transformers" else []
        found.write("peer", peer=peer, missing=missing, versions={"numpy": "1"}, threads=2)
    for size in ("S", "M"):
        for peer in PACE:
            prepared = {"parameters": 10, "losses": [2.0, 1.0], "first_seconds": 1.0}
            found.write("prepared", size=size, peer=peer, **prepared)
        for round_ in range(3):
            found.write("peak", size=size, library="jax", round=round_, flops=1e11 / 2**round_)
            for peer, pace in PACE.items():
                seconds = pace * 0.01 * 2**round_
                found.write("step", size=size, peer=peer, round=round_, seconds=seconds)
    for axis, (_, values) in AXES.items():
        for value in values:
            found.write("curve", axis=axis, value=value, round=0, seconds=1e-5 * value**2)
    for form, growth in (("scan", 0.01), ("loop", 1.0)):
        for layers in (2, 24):
            seconds = 3 + growth * layers
            found.write("compile", form=form, layers=layers, round=0, seconds=seconds)
    for variant in VARIANTS:
        for length in LENGTHS:
            held = {"arguments": 2**20, "temporaries": length**2}
            found.write("memory", variant=variant, length=length, **held)
    found.write("moment", when="before", time="noon", load=0.5, commit="abc")
    return found
