"""What does memory-lean attention save, and what does it cost?

Question: at length 4096, how much memory and time do forward and backward pass of causal
attention take with all scores at once ("plain") and with one block of queries at a time
("blockwise"), given a drawn mask and a `Visibility`?

Command: python experiments/benchmarks/attention_memory.py [--length 4096] [--rounds 10]

Cost: about two minutes on two cores, and up to 3 GB of memory. The memory is what the compiler
reserves for temporaries, which is exact; the times are taken in turn, as medians, and the ratio
is taken round by round.

Expected result: RESULT.md, beside this file.
"""

import argparse
import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer import functional as F

B, N, H = 1, 8, 64


def step(q, k, v, upstream, *, backend, drawn):
    """Output and gradients of causal attention."""
    positions = jnp.arange(q.shape[1])[None]
    visibility = F.Visibility(positions, positions)
    mask = visibility.draw() if drawn else visibility
    attend = functools.partial(F.dot_product_attention, mask=mask, backend=backend)
    out, pull = jax.vjp(attend, q, k, v)
    return out, pull(upstream)


def main() -> None:
    """Measures and prints one line per variant."""
    parser = argparse.ArgumentParser(description="Measures memory-lean attention.")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    shape = (B, arguments.length, N, H)
    arrays = [jnp.asarray(generator.normal(size=shape), jnp.float32) for _ in range(4)]
    variants = {
        "plain": dict(backend="plain", drawn=True),
        "blockwise, drawn mask": dict(backend="blockwise", drawn=True),
        "blockwise, Visibility": dict(backend="blockwise", drawn=False),
    }
    compiled = {
        name: jax.jit(functools.partial(step, **options)).lower(*arrays).compile()
        for name, options in variants.items()
    }
    expected = jax.device_get(compiled["plain"](*arrays))
    for run in compiled.values():
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), run(*arrays), expected
        )
    seconds = {name: [] for name in compiled}
    for _ in range(arguments.rounds):
        for name, run in compiled.items():
            began = time.perf_counter()
            jax.block_until_ready(run(*arrays))
            seconds[name].append(time.perf_counter() - began)
    print(f"B={B}, T=S={arguments.length}, N={N}, H={H}, causal, forward and backward, float32")
    print("| variant | temporaries, MiB | of plain | seconds | time / plain |")
    print("| --- | ---: | ---: | ---: | ---: |")
    temporaries = {}
    for name, run in compiled.items():
        analysis = run.memory_analysis()
        assert analysis is not None, "this backend does not tell its memory"
        temporaries[name] = analysis.temp_size_in_bytes / 2**20
    for name, taken in seconds.items():
        ratios = [mine / plain for mine, plain in zip(taken, seconds["plain"], strict=True)]
        print(
            f"| {name} | {temporaries[name]:.0f} | {temporaries[name] / temporaries['plain']:.3f} "
            f"| {statistics.median(taken):.2f} | {statistics.median(ratios):.2f} |"
        )


if __name__ == "__main__":
    main()
