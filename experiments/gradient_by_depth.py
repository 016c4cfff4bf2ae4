"""How does the gradient at the last layer depend on the depth of the model, before any update?

Question: at the initial values, how large is the gradient of the last layer's second feed-forward
matrix in models of 2 to 32 layers, for every placement of the norms?

Prediction: with post-LN it does not depend on the depth L, with pre-LN it falls as L^-0.5 (Xiong et
al. 2020, theorem 1 and figure 3, https://arxiv.org/abs/2002.04745): the stream of a pre-LN model
grows as L^0.5, and its final norm divides by that. The same argument gives -0.5 for "sandwich" and
"branch", which end with that norm too, and for "deepnorm", whose two factors alpha ~ L^0.25 and
beta ~ L^-0.25 (Wang et al. 2022, https://arxiv.org/abs/2203.00555) multiply to it. Without norms
the stream grows by a factor a layer, so that no power of L fits.

Command: python experiments/gradient_by_depth.py [--seeds 8] [--into FOLDER]

Cost: 100 seconds of CPU time, most of it to compile 30 programs.

Expected result: gradient_by_depth.md, beside this file.

The models have the shape of the paper's theory (ReLU, Xavier's initial values, no bias, sinusoids
on embeddings that are scaled up), as decoders of width 64 in the place of 512, on bytes of the King
James Bible. An exponent is the slope of least squares of the logarithm of the norm on that of the
depth, one for each seed; the interval is a t interval over seeds. Nothing is trained: how well a
model can be trained afterwards is another question.
"""

import argparse
import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import vl_convert

from jtransformer import data
from jtransformer import functional as F
from jtransformer.modules import build
from jtransformer.report import style
from jtransformer.spec import DataSpec, ModelSpec, RunSpec, TrainingSpec
from jtransformer.stats import Estimate, mean_estimate
from jtransformer.training import parameter_key

PLACEMENTS = ("post", "pre", "sandwich", "branch", "deepnorm", "none")
DEPTHS = (2, 4, 8, 16, 32)
UNOPTIMISED = {"xla_backend_optimization_level": 0}
"""Each program runs once, so that to compile it is most of the cost."""
RUN = RunSpec(data=DataSpec(length=32), training=TrainingSpec(batch_size=8))


class Slope(NamedTuple):
    """How a norm goes with the depth.

    Attributes:
        exponent: Slope of log norm on log depth, its mean over seeds.
        deepest: The same between the two deepest models alone.
        off: The largest factor by which a mean lies off the line that is fitted to the means.
    """

    exponent: Estimate
    deepest: Estimate
    off: float


def model_spec(placement: Any, layers: int) -> ModelSpec:
    """Returns a model; layers are scanned, since a loop of 32 takes long to compile."""
    return ModelSpec(
        layers=layers,
        norm_placement=placement,
        ffn="relu",
        initialization="xavier",
        scale_embedding=True,
        scan_layers=True,
    )


def run_of(spec: ModelSpec, seed: int) -> RunSpec:
    """Returns the run whose initial values and first batch are measured."""
    return dataclasses.replace(RUN, model=spec, seed=seed)


def gradient_norms(spec: ModelSpec, seeds: int) -> np.ndarray:
    """Returns the norm of the gradient of every layer's second feed-forward matrix.

    Args:
        spec: The model.
        seeds: How many; each has initial values and a batch of its own.

    Returns:
        Nats per parameter unit, seeds by layers.
    """
    model, corpus = build(spec), data.load(RUN.data)
    runs = [run_of(spec, seed) for seed in range(seeds)]
    batches = [data.TrainingBatches(corpus, run)[0] for run in runs]

    def norms(key: jax.Array, tokens: jax.Array, labels: jax.Array) -> jax.Array:
        parameters = model.init(key, tokens)["params"]

        def loss(kernels: jax.Array) -> jax.Array:
            layers = parameters["layers"]
            ffn = layers["ffn"] | {"out": {"kernel": kernels}}
            changed = parameters | {"layers": layers | {"ffn": ffn}}
            out: Any = model.apply({"params": changed}, tokens)
            return F.cross_entropy(out.logits, labels).loss_sum / labels.size

        gradient = jax.grad(loss)(parameters["layers"]["ffn"]["out"]["kernel"])
        return jnp.sqrt(jnp.sum(jnp.square(gradient), axis=(1, 2)))

    keys = jnp.stack([parameter_key(run.seed) for run in runs])
    tokens, labels = (
        jnp.stack([jnp.asarray(array) for array in arrays])
        for arrays in zip(*((one.tokens, one.labels) for one in batches), strict=True)
    )
    measured = jax.jit(jax.vmap(norms), compiler_options=UNOPTIMISED)
    return np.asarray(measured(keys, tokens, labels), np.float64)


def measure(seeds: int) -> pd.DataFrame:
    """Measures all models; returns placement, layers, seed, last_layer and first_layer."""
    rows = []
    for placement in PLACEMENTS:
        for layers in DEPTHS:
            found = gradient_norms(model_spec(placement, layers), seeds)
            for seed, own in enumerate(found):
                rows.append((placement, layers, seed, own[-1], own[0]))
    names = pd.Index(["placement", "layers", "seed", "last_layer", "first_layer"])
    return pd.DataFrame(rows, columns=names)


def slope(norms: Any) -> Slope:
    """Fits the exponent of one placement, a line for each seed.

    Args:
        norms: Rows of `measure`, of one placement.
    """
    by_seed = norms.pivot(index="layers", columns="seed", values="last_layer").sort_index()
    log_depth, log_norm = np.log(by_seed.index.to_numpy()), np.log(by_seed.to_numpy())
    exponents, _ = np.polyfit(log_depth, log_norm, 1)
    deepest = (log_norm[-1] - log_norm[-2]) / (log_depth[-1] - log_depth[-2])
    means = log_norm.mean(axis=1)
    off = means - np.polyval(np.polyfit(log_depth, means, 1), log_depth)
    return Slope(
        mean_estimate(exponents.tolist()),
        mean_estimate(deepest.tolist()),
        math.exp(np.abs(off).max()),
    )


def table(norms: Any) -> str:
    """Writes the result as a Markdown table: means over seeds, and exponents."""
    headings = [
        "placement",
        *map(str, DEPTHS),
        "exponent of L (95 % interval)",
        f"from {DEPTHS[-2]} to {DEPTHS[-1]} alone",
        "off the line",
        f"first / last layer at {DEPTHS[-1]}",
    ]
    lines = [f"| {' | '.join(headings)} |", "| --- |" + " ---: |" * (len(headings) - 1)]
    for placement in PLACEMENTS:
        own = norms[norms["placement"] == placement]
        found, deepest = slope(own), own[own["layers"] == DEPTHS[-1]]
        cells = [
            placement,
            *(f"{value:#.3g}" for value in own.groupby("layers")["last_layer"].mean()),
            _with_interval(found.exponent),
            _with_interval(found.deepest),
            f"×{found.off:.2f}",
            f"{(deepest['first_layer'] / deepest['last_layer']).mean():#.3g}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _with_interval(exponent: Estimate) -> str:
    text = f"{exponent.value:+.3f}"
    if exponent.low is None or exponent.high is None:
        return text
    return f"{text} ({exponent.low:+.3f} to {exponent.high:+.3f})"


def figure(norms: Any) -> dict[str, Any]:
    """Draws the norms against the depth, both on logarithmic axes, as a Vega-Lite spec.

    What lies beyond the frame is cut: without norms the gradient grows by seven powers of ten.
    """
    names = list(PLACEMENTS)
    color = alt.Color(
        "placement:N",
        title=None,
        scale=alt.Scale(domain=names, range=[*style.OKABE_ITO[: len(names)]]),
        legend=alt.Legend(orient="top", columns=len(names)),
    )
    scale = alt.Scale(type="log", nice=False, padding=16)
    x = alt.X("layers:Q", title="layers L", scale=scale, axis=alt.Axis(values=[*DEPTHS]))
    title = "gradient norm, last feed-forward matrix (nats)"
    y = alt.Y(
        "last_layer:Q",
        title=title,
        scale=alt.Scale(type="log", domain=[0.1, 5], nice=False),
        axis=alt.Axis(format="~g", values=[0.1, 0.2, 0.5, 1, 2, 5]),
    )
    means = norms.groupby(["placement", "layers"], sort=False)["last_layer"].mean().reset_index()
    start = means.query("placement == 'pre'")["last_layer"].iloc[0]
    guide = pd.DataFrame({"layers": DEPTHS, "last_layer": [
        start * (layers / DEPTHS[0]) ** -0.5 for layers in DEPTHS
    ]})  # fmt: skip
    drawn = alt.Chart(style.data(means)).encode(x=x, y=y, color=color)
    guides = alt.Chart(style.data(guide)).encode(x=x, y=y, color=alt.value(style.PAPER.ink))
    seeds = alt.Chart(style.data(norms)).mark_point(size=12, opacity=0.35, clip=True)
    words = guides.transform_filter(f"datum.layers == {DEPTHS[-1]}")
    chart = alt.layer(
        guides.mark_line(strokeDash=[4, 4], opacity=0.6),
        words.mark_text(text="as L^-0.5", align="right", dy=12, dx=-6, fontSize=11),
        seeds.encode(x=x, y=y, color=color),
        drawn.mark_line(strokeWidth=2.2, clip=True),
        drawn.mark_point(filled=True, size=40, clip=True),
    )
    return style.apply(chart.properties(height=420), style.PAPER)


def main() -> None:
    """Measures, prints the table and, where it is told to, writes the picture."""
    parser = argparse.ArgumentParser(description="Gradient of the last layer against depth.")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--into", type=Path)
    flags = parser.parse_args()
    norms = measure(flags.seeds)
    print(table(norms))
    if flags.into is None:
        return
    flags.into.mkdir(parents=True, exist_ok=True)
    norms.to_csv(flags.into / "gradient_by_depth.csv", index=False)
    svg = vl_convert.vegalite_to_svg(figure(norms))
    (flags.into / "gradient_by_depth.svg").write_text(svg, encoding="utf-8")
    (flags.into / "gradient_by_depth.png").write_bytes(vl_convert.svg_to_png(svg, scale=2.0))


if __name__ == "__main__":
    main()
