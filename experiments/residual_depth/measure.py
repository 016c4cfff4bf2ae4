"""What does the residual path do to a gradient on its way down, and does a bound say as much?

Question: a gradient of length 1 at the top of a stack of 12 or 80 layers: how long is it at the
bottom with the residual path, without it, and with branches scaled down, and how near is that to
its upper bound, the product of the spectral norms of the layers' Jacobians?

Prediction: without the path the gradient shrinks or grows by a factor a layer, so that 80 layers
lose or overflow it (He et al. 2015, https://arxiv.org/abs/1512.03385; Dong et al. 2021,
https://arxiv.org/abs/2103.03404). With it a layer is the identity and a part, and with branches of
(2 L)^-0.5 the whole stack stretches by a constant (Zhang et al. 2019,
https://arxiv.org/abs/1901.09321). The bound takes the worst direction in every layer and is too
high by a factor a layer: it says nothing of 80 layers.

Command: python experiments/residual_depth/measure.py [--seeds 8] [--into FOLDER]

Cost: RESULT.md has it; most of it is the power iterations.

Expected result: RESULT.md, beside this file.

The models are decoders of width 64 at their initial values, on a row of 32 bytes of the King James
Bible. The gradient at the top is drawn at random: what a loss would send down is one direction of
many. A layer is attention and feed-forward network, norms and sums included. Nothing is trained.
"""

import argparse
import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import vl_convert

from jtransformer import data
from jtransformer import functional as F
from jtransformer.modules import build
from jtransformer.modules.apart import observe, sublayer
from jtransformer.report import style
from jtransformer.spec import DataSpec, FixedScale, ModelSpec, RunSpec, TrainingSpec
from jtransformer.stats import mean_estimate
from jtransformer.training import parameter_key

DEPTHS = (12, 80)
RESIDUALS = ("on", "off", "scaled")
PLACEMENTS = ("none", "pre", "post")
ITERATIONS = 20
UNOPTIMISED = {"xla_backend_optimization_level": 0}
"""Each program runs once, so that to compile it is most of the cost."""
RUN = RunSpec(data=DataSpec(length=32), training=TrainingSpec(batch_size=1))


def model_spec(placement: Any, residual: str, layers: int) -> ModelSpec:
    """Returns a model; "scaled" gives every branch the factor (2 L)^-0.5."""
    return ModelSpec(
        layers=layers,
        scan_layers=True,
        norm_placement=placement,
        scale_embedding=True,
        stream_scale=float(residual != "off"),
        branch_scale=FixedScale(value=(2 * layers) ** -0.5 if residual == "scaled" else 1.0),
    )


def lengths(spec: ModelSpec, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Follows a gradient of length 1 down the stack.

    Args:
        spec: The model, with scanned layers.
        seeds: How many; each has initial values, a row and a gradient of its own.

    Returns:
        The natural logarithm of the gradient's length before each layer [seeds, L], and that of
        its upper bound.
    """
    runs = [dataclasses.replace(RUN, model=spec, seed=seed) for seed in range(seeds)]
    corpus = data.load(RUN.data)
    rows = jnp.stack([jnp.asarray(data.TrainingBatches(corpus, run)[0].tokens) for run in runs])
    one_layer = dataclasses.replace(spec, layers=1, scan_layers=False)

    def follow(key: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        parameters = build(spec).init(key, tokens)["params"]
        stacked = parameters["layers"]
        lowest = jax.tree.map(lambda own: own[0], stacked)
        alone = {name: own for name, own in parameters.items() if name != "layers"}
        output, (call,) = observe(one_layer, alone | {"layer_0": lowest}, tokens, {}, ["embedded"])
        layer = sublayer(one_layer, call, "layer", "stream")

        def up(x: jax.Array, own: Any) -> tuple[jax.Array, jax.Array]:
            return layer(own, x, call.own), x

        assert output.intermediates is not None
        _, inputs = jax.lax.scan(up, output.intermediates["embedded"], stacked)

        def down(carry: Any, one: Any) -> tuple[Any, Any]:
            gradient, length, bound = carry
            own, x, own_key = one

            def of_input(x: jax.Array) -> jax.Array:
                return layer(own, x, call.own)

            (below,) = jax.vjp(of_input, x)[1](gradient)
            factor = jnp.linalg.norm(below)
            stretch = F.spectral_norm(of_input, x, key=own_key, iterations=ITERATIONS).value
            # Kept at length 1, since 80 factors overflow; a gradient of 0 stays one.
            below = below / jnp.where(factor > 0, factor, 1)
            length, bound = length + jnp.log(factor), bound + jnp.log(stretch)
            return (below, length, bound), (length, bound)

        start = jax.random.normal(jax.random.fold_in(key, 1), inputs[0].shape)
        keys = jax.random.split(jax.random.fold_in(key, 2), spec.layers)
        top = start / jnp.linalg.norm(start), jnp.zeros(()), jnp.zeros(())
        return jax.lax.scan(down, top, (stacked, inputs, keys), reverse=True)[1]

    measured = jax.jit(jax.vmap(follow), compiler_options=UNOPTIMISED)
    length, bound = measured(jnp.stack([parameter_key(run.seed) for run in runs]), rows)
    return np.asarray(length, np.float64), np.asarray(bound, np.float64)


def measure(seeds: int, depths: Sequence[int] = DEPTHS) -> pd.DataFrame:
    """Measures all models: placement, residual, layers, seed, layer, log10 of length and bound."""
    rows = []
    for placement, residual, layers in itertools.product(PLACEMENTS, RESIDUALS, depths):
        length, bound = lengths(model_spec(placement, residual, layers), seeds)
        for seed, layer in np.ndindex(length.shape):
            own = length[seed, layer] / math.log(10), bound[seed, layer] / math.log(10)
            rows.append((placement, residual, layers, seed, layer, *own))
    names = ["placement", "residual", "layers", "seed", "layer", "length", "bound"]
    return pd.DataFrame(rows, columns=pd.Index(names))


def table(found: Any) -> str:
    """Writes what has come to the bottom as a Markdown table, in powers of ten."""
    lines = [
        "| norms | residual path | layers | length at the bottom (log10) | upper bound (log10) | "
        "bound / length, a layer |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    bottom = found[found["layer"] == 0]
    for (placement, residual, layers), own in bottom.groupby(
        ["placement", "residual", "layers"], sort=False
    ):
        length, bound = (mean_estimate(own[name].tolist()) for name in ("length", "bound"))
        slack = 10 ** ((bound.value - length.value) / layers)
        loose = f"{slack:.2f}" if math.isfinite(slack) else "—"
        cells = [placement, residual, str(layers)]
        for mean in (length, bound):
            if not math.isfinite(mean.value):
                cells.append("the stream overflows")
                continue
            within = "" if mean.half_width is None else f" ± {mean.half_width:.2f}"
            cells.append(f"{mean.value:+.2f}{within}")
        lines.append(f"| {' | '.join([*cells, loose])} |")
    return "\n".join(lines)


def figure(found: Any) -> dict[str, Any]:
    """Draws the mean length down the deepest stacks, as a Vega-Lite spec."""
    deep = found[found["layers"] == DEPTHS[-1]]
    means = deep.groupby(["placement", "residual", "layer"], sort=False)["length"].mean()
    drawn = means.reset_index()
    color = alt.Color(
        "residual:N",
        title="residual path",
        scale=alt.Scale(domain=[*RESIDUALS], range=[*style.OKABE_ITO[: len(RESIDUALS)]]),
        legend=alt.Legend(orient="top"),
    )
    dash = alt.StrokeDash("placement:N", title="norms", legend=alt.Legend(orient="top"))
    x = alt.X("layer:Q", title="layer, from the bottom")
    y = alt.Y("length:Q", title="length of the gradient (log10)")
    lines = alt.Chart(style.data(drawn)).mark_line(strokeWidth=2.2)
    return style.apply(lines.encode(x=x, y=y, color=color, strokeDash=dash), style.PAPER)


def main() -> None:
    """Measures, prints the table and, where it is told to, writes the picture."""
    parser = argparse.ArgumentParser(description="A gradient on its way down.")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--into", type=Path)
    flags = parser.parse_args()
    found = measure(flags.seeds)
    print(table(found))
    if flags.into is not None:
        flags.into.mkdir(parents=True, exist_ok=True)
        svg = vl_convert.vegalite_to_svg(figure(found))
        (flags.into / "residual_depth.svg").write_text(svg, encoding="utf-8")
        (flags.into / "residual_depth.png").write_bytes(vl_convert.svg_to_png(svg, scale=2.0))


if __name__ == "__main__":
    main()
