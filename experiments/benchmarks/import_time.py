"""What does importing the functions cost beyond importing jax?

Question: how long does `import jtransformer.functional` take in a fresh process, and how long
`import jax` alone? The second is the floor; the aim is to stay within 15 % of it.

Command: python experiments/benchmarks/import_time.py [--rounds 20]

Cost: about one minute. The two are imported in turn, in fresh processes, and the ratio is taken
round by round; the time is that of the statement, without the start of the interpreter.

Expected result: RESULT.md, beside this file.
"""

import argparse
import statistics
import subprocess
import sys

STATEMENTS = ("import jax", "import jtransformer.functional")
PROGRAM = """
import time
began = time.perf_counter()
{statement}
print(time.perf_counter() - began)
"""


def seconds(statement: str) -> float:
    """Runs an import statement in a fresh process; returns its seconds."""
    command = [sys.executable, "-c", PROGRAM.format(statement=statement)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Measures and prints the medians and the ratio."""
    parser = argparse.ArgumentParser(description="Times two imports.")
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    for statement in STATEMENTS:
        seconds(statement)  # fills the file cache and writes the bytecode
    pairs = [[seconds(statement) for statement in STATEMENTS] for _ in range(rounds)]
    for statement, taken in zip(STATEMENTS, zip(*pairs, strict=True), strict=True):
        print(f"{statement}: median {statistics.median(taken):.3f} s")
    low, middle, high = statistics.quantiles([ours / jax for jax, ours in pairs], n=4)
    print(f"ratio: median {middle:.3f} (quartiles {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
