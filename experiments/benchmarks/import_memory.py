"""How much memory the import of a checkpoint takes, against its size.

Question: does `import_hf` hold a checkpoint once? A GPT-2 of random numbers is written as
safetensors, and a fresh process imports it into a run. The figure is that process's highest
resident memory less its memory when everything was imported, over the bytes of the parameters.
Linux alone says them. Needs the extra `interop`.

Command: python experiments/benchmarks/import_memory.py --megabytes 1000

Cost: a minute on two CPU cores and twice the size on disk.

Expected result: below 1.3.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTH, VOCABULARY, POSITIONS = 1280, 50_257, 1024
"""Of GPT-2 large; depth makes the size."""
FLOAT32_BYTES = 4
IMPORT = """
import sys
import jax, orbax.checkpoint, safetensors
import jtransformer.cli, jtransformer.cli.import_hf
import jtransformer.data, jtransformer.interop, jtransformer.training

def resident(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))

before = resident("VmRSS")
code = jtransformer.cli.main(["import_hf", sys.argv[1], "--workdir", sys.argv[2], "--json"])
print(resident("VmHWM") - before)
sys.exit(code)
"""


def main() -> None:
    """Prints the figure as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the checkpoint")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(Path(folder), arguments.megabytes * 10**6)))


def measured(folder: Path, wanted: int) -> dict[str, float]:
    """Imports a checkpoint of about so many bytes.

    Returns:
        Bytes of the parameters, rise of the peak in bytes, and their ratio.
    """
    size = write_checkpoint(folder / "checkpoint", wanted)
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, str(folder / "checkpoint"), str(folder / "run")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    rise = int(done.stdout.split()[-1])
    return {"parameter_bytes": size, "peak_rise_bytes": rise, "ratio": rise / size}


def write_checkpoint(directory: Path, wanted: int) -> int:
    """Writes a GPT-2 of about so many bytes; returns how many they are."""
    import numpy as np
    from safetensors.numpy import save_file  # pyright: ignore[reportMissingImports]

    generator = np.random.default_rng(0)
    D = WIDTH
    in_layer = {
        "ln_1.weight": (D,),
        "ln_1.bias": (D,),
        "attn.c_attn.weight": (D, 3 * D),
        "attn.c_attn.bias": (3 * D,),
        "attn.c_proj.weight": (D, D),
        "attn.c_proj.bias": (D,),
        "ln_2.weight": (D,),
        "ln_2.bias": (D,),
        "mlp.c_fc.weight": (D, 4 * D),
        "mlp.c_fc.bias": (4 * D,),
        "mlp.c_proj.weight": (4 * D, D),
        "mlp.c_proj.bias": (D,),
    }
    outside = {
        "wte.weight": (VOCABULARY, D),
        "wpe.weight": (POSITIONS, D),
        "ln_f.weight": (D,),
        "ln_f.bias": (D,),
    }
    bytes_of = [FLOAT32_BYTES * sum(map(np.prod, part.values())) for part in (outside, in_layer)]
    layers = max(1, round((wanted - bytes_of[0]) / bytes_of[1]))
    shapes = outside | {
        f"h.{layer}.{name}": shape for layer in range(layers) for name, shape in in_layer.items()
    }
    tensors = {
        f"transformer.{name}": generator.standard_normal(shape, np.float32)
        for name, shape in shapes.items()
    }
    directory.mkdir()
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    config = {"model_type": "gpt2", "n_embd": D, "n_layer": layers, "n_head": 20}
    config |= {"n_positions": POSITIONS, "vocab_size": VOCABULARY}
    (directory / "config.json").write_text(json.dumps(config))
    return sum(tensor.nbytes for tensor in tensors.values())


if __name__ == "__main__":
    main()
