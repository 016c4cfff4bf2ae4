"""Prints losses over meshes, of one device and of `jax.pmap`: run by `meshed.in_eight_devices`.

Arguments: names of models, labels of layouts, numbers of rows of a batch and of devices of
`jax.pmap`, each with semicolons for more; "all" layouts are those of eight devices.
"""

import json
import sys

import jax
import meshed
import numpy as np

from jtransformer.spec import Layout
from jtransformer.training import (
    Program,
    Replicas,
    dropout_key,
    hyperparameters,
    parameter_key,
)


def of_layout(spec, layout, rows):
    """What is computed over a mesh, or on one device, and what its first device has of it."""
    program = meshed.program_of(spec, layout)
    first = jax.device_get(program.start(parameter_key(0)).parameters)
    losses, evaluated, state = meshed.trained(program, spec, rows)
    matrices = [leaf for leaf in jax.tree.leaves(state.optimizer) if leaf.ndim > 1]
    return first, {
        "losses": losses,
        "evaluated": evaluated,
        "compiled": program.update._cache_size(),
        "parameters": meshed.share_of_first(state.parameters),
        "moments": meshed.share_of_first(matrices),
    }


def of_replicas(spec, devices, rows):
    program = Program(spec, meshed.quickly)
    replicas = Replicas(program.step, jax.devices()[:devices], program.microbatches)
    states, losses = replicas.fill(program.start(parameter_key(0))), []
    for batch in meshed.batches(spec, rows):
        states = replicas.advance(states, batch, hyperparameters(spec), dropout_key(spec))
        tally = replicas.take(states).tally
        losses.append(float(tally.loss_sum / tally.weight_sum))
    return {"losses": losses}


def main():
    models, layouts, rows, devices = (argument.split(";") for argument in sys.argv[1:])
    if layouts == ["all"]:
        layouts = [layout.label for layout in meshed.layouts()]
    found = {}
    for name in models:
        for count in map(int, rows):
            spec = meshed.run(meshed.MODELS[name], batch_size=count)
            start, one = of_layout(spec, None, count)
            every = {"one": one}
            for label in filter(None, layouts):
                first, every[label] = of_layout(spec, Layout.parse(label), count)
                same = jax.tree.map(np.array_equal, first, start)
                every[label]["starts_alike"] = all(jax.tree.leaves(same))
            for number in filter(None, devices):
                every[f"pmap {number}"] = of_replicas(spec, int(number), count)
            found[f"{name}, {count} rows"] = every
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
