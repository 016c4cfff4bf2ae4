"""What `jtransformer.ahead` finds on four CPU devices, printed as JSON; see test_compiling.py.

A process of its own, since the number of devices is chosen once, and without the checks of shapes,
since a program is lowered for trees of shapes in the place of arrays.
"""

import dataclasses
import hashlib
import json
import pathlib
import sys
import types

import jax
import tiny_run
from quickly import quickly

from jtransformer import records
from jtransformer.accounting import parameters
from jtransformer.ahead import Decoding, compile_run, topology
from jtransformer.ahead.programs import decoding_of, lower
from jtransformer.generation import Generator, generator
from jtransformer.modules import build
from jtransformer.spec import Dropout, Layout, RMSNorm, TokenHead
from jtransformer.training import LOOP, Execution, Program, Trainer, program_key
from jtransformer.training.mesh import arrange

HERE = topology("local")
ALONE, DATA, FSDP = Layout(), Layout(data=4), Layout(fsdp=4)
BOTH = Layout(fsdp=2, tensor=2)


def digest(lowered):
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()


def fingerprint(spec, what="train", layout=ALONE, decoding=None):
    return lower(what, spec, HERE, layout, decoding or decoding_of(spec)).fingerprint


def with_model(spec, **changes):
    return dataclasses.replace(spec, model=dataclasses.replace(spec.model, **changes))


class Recorder:
    """Compiles functions as `jax.jit` does, and notes the update that is called."""

    def __init__(self):
        self.steps = []

    def __call__(self, function, **options):
        compiled = quickly(function, **options)
        is_step = isinstance(function, types.MethodType) and function.__func__ is Program.step

        def call(*arguments, **named):
            if is_step and not self.steps:
                self.steps.append(digest(compiled.lower(*arguments, **named)))
            return compiled(*arguments, **named)

        call.lower = compiled.lower
        return call


def trained(spec, directory, layout):
    """Returns the fingerprint of the update that a training run calls."""
    recorder, trainer = Recorder(), Trainer()
    arrangement = None if layout is None else arrange(layout)
    execution = LOOP if layout is None else Execution(mode="mesh", layout=layout)
    trainer._programs = {(program_key(spec), layout): Program(spec, recorder, arrangement)}
    trainer.train(spec, directory, execution)
    return recorder.steps[0]


def streamed(spec, rows, limit):
    """Returns the fingerprint of the loop by which a stream of tokens goes on."""
    noted, really = [], generator._advanced

    def advanced(*arguments):
        noted.append(digest(really.lower(*arguments)))
        return really(*arguments)

    generator._advanced = advanced
    variables = build(spec.model).init(jax.random.key(0), jax.numpy.zeros((rows, 1), int))
    list(Generator(model=spec.model, limit=limit).stream(variables, [[1]] * rows))
    generator._advanced = really
    return noted[0]


def fingerprints(spec, root):
    dropping = with_model(spec, dropout=Dropout(residual=0.1))
    return {
        "alone": [trained(dropping, root / "alone", None), fingerprint(dropping)],
        "mesh": [trained(spec, root / "mesh", BOTH), fingerprint(spec, layout=BOTH)],
        "decode": [streamed(spec, 3, 9), fingerprint(spec, "decode", ALONE, Decoding(3, 9))],
        "seed": [fingerprint(dataclasses.replace(spec, seed=5)), fingerprint(spec)],
        "norm": [fingerprint(with_model(spec, norm=RMSNorm())), fingerprint(spec)],
    }


def cached(spec, cache):
    """Returns what a first and a second call report, a third after an entry was written over."""
    first = compile_run(spec, HERE, ALONE, cache=cache)
    again = compile_run(spec, HERE, ALONE, cache=cache)
    for path in cache.iterdir():
        record = records.read_json(path)
        record["found"]["memory_bytes"] = 1234567
        records.write_json(path, record)
    third = compile_run(spec, HERE, ALONE, cache=cache)
    files = len(list(cache.iterdir()))
    other = compile_run(spec, HERE, ALONE, what=("decode",), decoding=Decoding(2, 3), cache=cache)
    for path in cache.iterdir():
        path.write_text("{")
    try:
        damaged = compile_run(spec, HERE, ALONE, what=("decode",), cache=cache)
    except records.DamagedRecord as error:
        damaged = str(error)
    return {
        "reports": [report.to_record() for report in (first, again, third, other)],
        "files": files,
        "damaged": damaged,
    }


def main(root):
    spec = tiny_run.run_spec(root, steps=2, evaluate_every=2)
    deep = with_model(spec, layers=3, scan_layers=True, head=TokenHead(tied=False))
    found = {
        "fingerprints": fingerprints(spec, root),
        "cached": cached(spec, root / "below" / "cache"),
        "data": compile_run(deep, "local", DATA, what=("train",)).to_record(),
        "fsdp": compile_run(deep, "local").to_record(),
        "parameters": {"spec": parameters(spec.model).total, "deep": parameters(deep.model).total},
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
