"""How much faster does a model decode when its heads share keys and values?

Command: python experiments/grouped_queries/decoding.py [--rounds 7] [--batch 16] [--prompt 896]

Four models of width 256 and four layers with eight heads, of which 8, 4, 2 or 1 have keys and
values, random weights, continue prompts of 896 tokens by 64, greedily. All are compiled before the
first measurement; a round measures each once, in an order drawn anew. Printed are the cache, exact,
and the median tokens per second with the quartiles, and the median over rounds of the ratio to
eight.
"""

import argparse
import dataclasses
import random
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer import accounting
from jtransformer.generation import Generator
from jtransformer.modules import build
from jtransformer.spec import ModelSpec, Rope

HEADS, ADDED = 8, 64
KEY_VALUE_HEADS = (8, 4, 2, 1)
MODEL = ModelSpec(width=256, layers=4, heads=HEADS, ffn_width=1024, position=Rope())


def prepared(key_value_heads: int, tokens: np.ndarray):
    """Returns a compiled continuation of `tokens`, by a model of random weights."""
    model = dataclasses.replace(MODEL, key_value_heads=key_value_heads)
    variables = jax.jit(build(model).init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))
    generator = Generator(model=model, limit=ADDED)

    def run() -> np.ndarray:
        return np.asarray(generator(variables, tokens).tokens)

    run()
    return run


def main() -> None:
    """Measures, and prints a Markdown table."""
    parser = argparse.ArgumentParser(description="Decoding speed against heads of keys and values.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=896)
    flags = parser.parse_args()
    shape = (flags.batch, flags.prompt)
    tokens = np.random.default_rng(0).integers(0, MODEL.vocabulary, shape).astype(np.int32)
    runs = {count: prepared(count, tokens) for count in KEY_VALUE_HEADS}
    seconds: dict[int, list[float]] = {count: [] for count in runs}
    for _ in range(flags.rounds):
        for count in random.sample(KEY_VALUE_HEADS, len(KEY_VALUE_HEADS)):
            began = time.perf_counter()
            runs[count]()
            seconds[count].append(time.perf_counter() - began)
    print("| heads of keys and values | cache (MiB) | tokens/s (quartiles) | times as fast |")
    print("| ---: | ---: | ---: | ---: |")
    for count, own in seconds.items():
        model = dataclasses.replace(MODEL, key_value_heads=count)
        cache = accounting.cache_bytes(model, length=flags.prompt + ADDED, rows=flags.batch)
        low, middle, high = statistics.quantiles([flags.batch * ADDED / x for x in own], n=4)
        faster = statistics.median(
            whole / mine for whole, mine in zip(seconds[HEADS], own, strict=True)
        )
        print(
            f"| {count} | {cache / 2**20:.1f} | {middle:.0f} ({low:.0f}–{high:.0f}) | "
            f"{faster:.2f} |"
        )


if __name__ == "__main__":
    main()
