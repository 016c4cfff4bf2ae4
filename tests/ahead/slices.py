"""What `jtransformer.ahead` finds on TPU slices that are not there, as JSON; see test_slices.py.

A process of its own, since libtpu reads its environment when it is loaded.
"""

import dataclasses
import json
import os
import pathlib
import sys

import tiny_run

from jtransformer.ahead import ENVIRONMENT, compile_run, topology
from jtransformer.spec import Layout, TokenHead

os.environ.update(ENVIRONMENT)


def main(root):
    spec = tiny_run.run_spec(root)
    model = dataclasses.replace(
        spec.model, layers=3, width=256, ffn_width=512, scan_layers=True, head=TokenHead(tied=False)
    )
    spec = dataclasses.replace(spec, model=model)
    wide = dataclasses.replace(model, width=2**14, ffn_width=2**16, heads=128)
    large = dataclasses.replace(spec, model=wide)
    cache = root / "cache"
    first = compile_run(spec, "v5e:2x2", cache=cache)
    found = {
        "devices": {
            name: len(topology(name).devices)
            for name in ("v5e:1x1", "v5e:4x4", "v5e:16x16", "v5p:2x2x1", "v5p:4x4x4", "v6e:16x16")
        },
        "fsdp": first.to_record(),
        "again": compile_run(spec, "v5e:2x2", cache=cache).to_record(),
        "tensor": compile_run(spec, "v5p:2x2x1", Layout(data=2, tensor=2)).to_record(),
        "one": compile_run(spec, "v6e:1x1", Layout()).to_record(),
        "large": compile_run(large, "v5e:2x2", what=("train",)).to_record(),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
