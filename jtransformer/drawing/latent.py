"""The boxes of latent attention before its scores."""

import dataclasses

from jtransformer.drawing.diagram import Box, Row, Shape
from jtransformer.drawing.site import LAYER, Site
from jtransformer.drawing.words import heads_words, projection, rope_words
from jtransformer.spec import LatentAttention, Rope


def latent_rows(site: Site, attention: LatentAttention) -> list[Row]:
    """Returns what leads from the stream to queries, keys and values, by one latent per token."""
    model, N, C = site.model, site.model.heads, attention.latent_width
    Hr, length = attention.rotary_width, site.length

    def box(name: str, fact: str, shape: Shape = (), *, about: str = "") -> Box:
        values = ((f"attention/{name}", shape),) if shape else ()
        paths = (f"{LAYER}attention/{name}",)
        title = name.replace("_", " ")
        key = f"attention/{name}"
        return site.box(key, "product", title, fact, about, values=values, paths=paths)

    def led(*, to: str) -> str:
        return projection((f"{model.width:,}", to), bias=model.qkv_bias)

    def expanded(name: str, width: int) -> Box:
        return box(name, f"{C:,} → {heads_words(N, width)}", ("B", length, N, width))

    query = box("query", led(to=heads_words(N, model.H)), ("B", length, N, model.H))
    latent = dataclasses.replace(box("latent", led(to=f"{C:,}")), span=2)
    norm = site.box(
        "attention/latent_norm",
        "norm",
        "RMSNorm of latent",
        f"width {C:,}",
        paths=(f"{LAYER}attention/latent_norm",),
    )
    norm = dataclasses.replace(norm, span=2)
    from_latent = (None, expanded("key", model.H), expanded("value", model.Hv))
    if not Hr:
        return [(query, latent), (None, norm), from_latent]
    rotary = (
        box("query_rotary", led(to=heads_words(N, Hr))),
        box("key_rotary", led(to=f"{Hr:,}"), about="one for all heads"),
    )
    assert isinstance(model.position, Rope)
    turn = site.box(
        "attention/turn",
        "position",
        "Rotary positions",
        *rope_words(model, model.position, windowed=False),
        values=(
            ("attention/query_turned", ("B", length, N, Hr)),
            ("attention/key_turned", ("B", length, 1, Hr)),
        ),
    )
    turn = dataclasses.replace(turn, span=2)
    return [(query, latent, *rotary), (None, norm), (*from_latent, turn)]
