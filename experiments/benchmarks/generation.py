"""How many tokens per second does generation make, here and in Hugging Face transformers?

Question: how fast is the compiled loop of `jtransformer.generation`, beside a Python loop over one
compiled step of the same model, and beside `generate` of a GPT-2 of the same size and weights?

Command: python experiments/benchmarks/generation.py [--rounds 7] [--batches 1,16] [--cores N]

It needs `pip install torch transformers` beside the package. Cost: about a minute on two cores.

How it measures: one process per library, all alive, one working at a time, in an order drawn anew
in each round. A measurement is one call that continues a prompt of 16 tokens by 128, greedily, with
the model and its compiled program in memory already. The tokens are compared across the three
first. What is printed is the median of tokens per second with the quartiles, and for each
competitor the median over the rounds of (its time / time here): above 1, the loop here is faster.
With --cores 1 no library has threads that wait for each other, so that what else the machine does
disturbs all alike.

Expected result: RESULT.md, beside this file.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

VOCABULARY, LAYERS, WIDTH, HEADS, POSITIONS = 256, 4, 256, 8, 256
PROMPT, ADDED = 16, 128
WAYS = ("while_loop", "python_loop", "transformers")
DEVIATION = 0.08
"""Of the weights: large enough for tokens that differ, and none as probable as the next."""

Weights = dict[str, np.ndarray]
Run = Callable[[], np.ndarray]


def main() -> None:
    """Measures and prints one line per way and batch size."""
    parser = argparse.ArgumentParser(description="Times generation here and elsewhere.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--cores", type=int, help="cores that a library may use; all if not given")
    parser.add_argument("--json", help="also write every measurement to this file")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    workers = {way: Worker(context, way, arguments.cores) for way in WAYS}
    print("| batch | way | tokens/s | its time / time here |")
    print("| ---: | --- | ---: | ---: |")
    measured = {}
    for batch in map(int, arguments.batches.split(",")):
        seconds = measure(workers, batch, arguments.rounds)
        measured[batch] = seconds
        for way in WAYS:
            print(line(way, batch, seconds), flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(measured, file)
    for worker in workers.values():
        worker.ask(None)


class Worker:
    """A process that generates in one way; it sleeps until it is asked."""

    def __init__(self, context: Any, way: str, cores: int | None):
        self.here, there = context.Pipe()
        self.process = context.Process(target=serve, args=(way, there, cores), daemon=True)
        self.process.start()

    def ask(self, request: Any) -> Any:
        """Sends a request and waits for its answer; None ends the process."""
        self.here.send(request)
        return None if request is None else self.here.recv()


def serve(way: str, pipe: Any, cores: int | None) -> None:
    """Answers requests: a batch size prepares and returns the tokens, "time" returns seconds."""
    # Before any library starts its threads, of which it starts as many as it sees cores.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    prepare = {"while_loop": while_loop, "python_loop": python_loop, "transformers": transformers}
    run: Run = nothing_yet
    while (request := pipe.recv()) is not None:
        if request == "time":
            began = time.perf_counter()
            run()
            pipe.send(time.perf_counter() - began)
        else:
            run = prepare[way](weights(), prompts(request))
            pipe.send(run())


def nothing_yet() -> np.ndarray:
    """Stands for what has not been prepared."""
    raise AssertionError("ask for a batch size first")


def measure(workers: dict[str, Worker], batch: int, rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each round, by way."""
    tokens = {way: worker.ask(batch) for way, worker in workers.items()}
    for way in WAYS[1:]:
        np.testing.assert_array_equal(tokens[way], tokens[WAYS[0]], err_msg=way)
    assert len(np.unique(tokens[WAYS[0]])) > 10, "the tokens do not differ"
    seconds: dict[str, list[float]] = {way: [] for way in workers}
    for _ in range(rounds):
        for way in random.sample(list(workers), len(workers)):
            seconds[way].append(workers[way].ask("time"))
    return seconds


def line(way: str, batch: int, seconds: dict[str, list[float]]) -> str:
    """One row of the table."""
    speeds = [batch * ADDED / x for x in seconds[way]]
    ratios = [theirs / mine for theirs, mine in zip(seconds[way], seconds[WAYS[0]], strict=True)]
    cells = [str(batch), way]
    for values, digits in ((speeds, 0), (ratios, 2)):
        low, middle, high = statistics.quantiles(values, n=4)
        cells.append(f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})")
    return "| " + " | ".join(cells) + " |"


def prompts(batch: int) -> np.ndarray:
    """Prompts of one length, since `generate` elsewhere would pad others."""
    return np.random.default_rng(1).integers(0, VOCABULARY, (batch, PROMPT)).astype(np.int32)


def weights() -> Weights:
    """The same weights for all, named as GPT-2 names them."""
    drawn = np.random.default_rng(0)
    D, F = WIDTH, 4 * WIDTH
    shapes = {"wte.weight": (VOCABULARY, D), "wpe.weight": (POSITIONS, D)}
    for layer in range(LAYERS):
        block = {
            "attn.c_attn.weight": (D, 3 * D),
            "attn.c_proj.weight": (D, D),
            "mlp.c_fc.weight": (D, F),
            "mlp.c_proj.weight": (F, D),
        }
        shapes |= {f"h.{layer}.{name}": shape for name, shape in block.items()}
    return {
        name: (DEVIATION * drawn.standard_normal(shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


def here(given: Weights) -> tuple[Any, Any]:
    """The model of jtransformer and its parameters; biases are 0 and scales 1 on both sides."""
    import jax
    import jax.numpy as jnp

    from jtransformer.modules import build
    from jtransformer.spec import Learned, ModelSpec

    model = ModelSpec(
        vocabulary=VOCABULARY,
        width=WIDTH,
        layers=LAYERS,
        heads=HEADS,
        ffn="gelu_tanh",
        ffn_width=4 * WIDTH,
        position=Learned(max_length=POSITIONS),
        qkv_bias=True,
        attention_out_bias=True,
        ffn_bias=True,
    )
    start = jax.jit(build(model).init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))
    tree = start["params"]
    tree["embedding"]["table"] = given["wte.weight"]
    tree["position"]["table"] = given["wpe.weight"]
    heads = (HEADS, WIDTH // HEADS)
    for layer in range(LAYERS):
        own, block = tree[f"layer_{layer}"], f"h.{layer}."
        packed = np.split(given[block + "attn.c_attn.weight"], 3, axis=1)
        for name, kernel in zip(("query", "key", "value"), packed, strict=True):
            own["attention"][name]["kernel"] = kernel.reshape(WIDTH, *heads)
        out = given[block + "attn.c_proj.weight"]
        own["attention"]["out"]["kernel"] = out.reshape(*heads, WIDTH)
        own["ffn"]["in"]["kernel"] = given[block + "mlp.c_fc.weight"]
        own["ffn"]["out"]["kernel"] = given[block + "mlp.c_proj.weight"]
    return model, jax.device_put({"params": tree})


def while_loop(given: Weights, prompt: np.ndarray) -> Run:
    """The generation of jtransformer."""
    from jtransformer.generation import Generator

    model, variables = here(given)
    generator = Generator(model=model, limit=ADDED)
    return lambda: np.asarray(generator(variables, prompt).tokens)


def python_loop(given: Weights, prompt: np.ndarray) -> Run:
    """One compiled step of the same model, called for every token."""
    import functools

    import jax
    import jax.numpy as jnp

    from jtransformer.modules import build, empty_cache

    model, variables = here(given)

    @functools.partial(jax.jit, donate_argnums=2)
    def step(variables: Any, tokens: Any, cache: Any) -> tuple[Any, Any]:
        output: Any = build(model).apply(variables, tokens, cache=cache)
        return jnp.argmax(output.logits[:, -1], axis=-1).astype(jnp.int32)[:, None], output.cache

    make = jax.jit(lambda: empty_cache(model, B=len(prompt), capacity=PROMPT + ADDED - 1))

    def run() -> np.ndarray:
        tokens, cache, added = prompt, make(), []
        for _ in range(ADDED):
            tokens, cache = step(variables, tokens, cache)
            added.append(tokens)
        return np.concatenate(jax.device_get(added), axis=1)

    return run


def transformers(given: Weights, prompt: np.ndarray) -> Run:
    """`generate` of GPT-2 in Hugging Face transformers, on PyTorch."""
    torch: Any = importlib.import_module("torch")
    library: Any = importlib.import_module("transformers")
    config = library.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=POSITIONS,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = library.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.transformer.named_parameters():
            parameter.zero_() if name.endswith("bias") else parameter.fill_(1)
            if name in given:
                parameter.copy_(torch.from_numpy(given[name]))
    ids = torch.from_numpy(prompt.astype(np.int64))
    options = dict(max_new_tokens=ADDED, do_sample=False, pad_token_id=0)

    def run() -> np.ndarray:
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        return out[:, PROMPT:].numpy().astype(np.int32)

    return run


if __name__ == "__main__":
    main()
