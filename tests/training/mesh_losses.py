"""Prints losses over meshes, of one device and of `jax.pmap`: run by `meshed.in_eight_devices`.

Arguments: names of runs, labels of layouts and numbers of devices of `jax.pmap`, each with
semicolons for more, and the rows of a batch.
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
    names, layouts, devices = (argument.split(";") for argument in sys.argv[1:4])
    rows, found = int(sys.argv[4]), {}
    for name in names:
        spec = meshed.run_of(name, rows)
        start, one = of_layout(spec, None, rows)
        every = {"one": one}
        for label in filter(None, layouts):
            first, every[label] = of_layout(spec, Layout.parse(label), rows)
            same = jax.tree.map(np.array_equal, first, start)
            every[label]["starts_alike"] = all(jax.tree.leaves(same))
        for number in filter(None, devices):
            every[f"pmap {number}"] = of_replicas(spec, int(number), rows)
        found[name] = every
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
