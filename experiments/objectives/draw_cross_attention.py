"""Draws where the decoder of a run on pairs reads its source, as a PNG.

usage: python experiments/objectives/draw_cross_attention.py RUN FIGURE.png [--seed 0]

One column a layer, one row a head: the weights of cross-attention on one held-out pair,
teacher-forced. An attention map shows where a head reads; it is no causal attribution.
"""

import argparse
from pathlib import Path
from typing import Any

import altair as alt
import jax.numpy as jnp
import numpy as np
import pandas as pd

from jtransformer import data
from jtransformer.cli.run_directory import NEWEST, read_run
from jtransformer.modules import build


def weights(run: Path, seed: int) -> pd.DataFrame:
    """Returns the weights of every layer and head on one held-out pair."""
    trained = read_run(run, NEWEST)
    corpus = data.load(trained.spec.data, trained.spec.objective)
    examples, special = corpus.test, corpus.specials
    assert isinstance(examples, data.Examples)
    longest = [i for i in range(len(examples)) if len(examples.source(i)) >= 10] or [0]
    chosen = int(np.random.default_rng(seed).choice(longest))
    source = [*map(int, examples.source(chosen)), special.eos]
    target = [special.bos, *map(int, examples.target(chosen))]
    out: Any = build(trained.spec.model).apply(
        trained.variables,
        jnp.asarray([target]),
        source=jnp.asarray([source]),
        intermediates=("decoder/layer_*/cross_attention/weights",),
    )
    names = [corpus.tokenizer.decode([i]) for i in source[:-1]] + ["EOS"]
    answers = [*names_of(corpus, target[1:]), "EOS"]
    assert out.intermediates is not None
    rows = []
    for layer, (_, array) in enumerate(sorted(out.intermediates.items())):
        for (_, head, t, place), weight in np.ndenumerate(np.asarray(array)):
            rows.append(
                dict(
                    layer=layer,
                    head=head,
                    place=f"{place:02d} {names[place]}",
                    asked=f"{t:02d} {answers[t]}",
                    weight=float(weight),
                )
            )
    return pd.DataFrame(rows)


def names_of(corpus: data.Corpus, ids: list[int]) -> list[str]:
    """Returns what each id is shown as."""
    return [corpus.tokenizer.decode([i]) for i in ids]


def main() -> None:
    """Reads the flags and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("figure", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    chart = (
        alt.Chart(weights(flags.run, flags.seed))
        .mark_rect()
        .encode(
            x=alt.X("place:O", title="source (position, symbol)"),
            y=alt.Y("asked:O", title="symbol to come"),
            color=alt.Color("weight:Q", scale=alt.Scale(domain=[0, 1], scheme="viridis")),
        )
        .properties(width=150, height=150)
        .facet(row="head:O", column="layer:O")
    )
    chart.save(str(flags.figure), ppi=100)


if __name__ == "__main__":
    main()
