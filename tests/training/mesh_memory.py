"""Prints what an update needs on each of eight devices: run by `meshed.in_eight_devices`.

The program is compiled from shapes alone, as for devices that are not here.
"""

import json
import re
import sys

import jax
import meshed
import numpy as np

from jtransformer.data import Batch
from jtransformer.spec import Layout

ROWS, TOKENS = 16, 64
GATHERED = re.compile(r"= f32\[([\d,]*)\]\S* all-gather(-start)?\(")


def main():
    model = meshed.model(
        width=128, heads=8, head_width=16, layers=4, ffn_width=512, vocabulary=1024,
        scan_layers=True,
    )  # fmt: skip
    spec = meshed.run(model, batch_size=ROWS)
    ids = jax.ShapeDtypeStruct((ROWS, TOKENS), np.int32)
    batch = Batch(ids, ids, jax.ShapeDtypeStruct((ROWS, TOKENS), np.float32))
    found = {}
    for label in sys.argv[1:]:
        program = meshed.program_of(spec, Layout.parse(label))
        compiled = program.update.lower(*program.abstract(batch)).compile()
        sizes = compiled.memory_analysis()
        shapes = [shape for shape, _ in GATHERED.findall(compiled.as_text())]
        found[label] = {
            "state": sizes.argument_size_in_bytes,
            "temporary": sizes.temp_size_in_bytes,
            "aliased": sizes.alias_size_in_bytes,
            "gathered": [int(np.prod([int(n) for n in shape.split(",")])) for shape in shapes],
        }
    stacked = model.layers * model.width * model.ffn_width
    sys.stdout.write(json.dumps({"stacked": stacked, "layouts": found}))


if __name__ == "__main__":
    main()
