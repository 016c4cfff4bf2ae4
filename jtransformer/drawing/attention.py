"""The boxes inside of attention, in the order in which its values come to be."""

import dataclasses

from jtransformer.drawing.diagram import Box, Mask, Row, Shape
from jtransformer.drawing.latent import latent_rows
from jtransformer.drawing.masks import cross_mask, self_mask
from jtransformer.drawing.site import LAYER, Site
from jtransformer.drawing.words import (
    bias_words,
    count,
    heads_words,
    number,
    projection,
    rope_words,
    typed,
)
from jtransformer.spec import (
    DotProduct,
    EncoderDecoder,
    LatentAttention,
    LinearAttention,
    PrefixDecoder,
    Rope,
    Shaw,
)


def self_attention(site: Site) -> Box:
    """Returns the box of self-attention, with what is inside."""
    attention = site.model.attention
    if isinstance(attention, LatentAttention):
        rows = latent_rows(site, attention)
        words = f"latent: {count(site.model.heads, 'head')} read one latent per token"
    else:
        distances = _distances(site)
        rows = _projected_rows(site, "attention", site.length, beside=distances)
        if turn := _turn(site):
            rows.append((turn, None))
        words = _kind(site)
    rows += [(_attend(site),), (_out(site, "attention", site.model.Hv),)]
    return _framed(site, "attention", "Self-attention", words, rows)


def cross_attention(site: Site) -> Box:
    """Returns the box of attention to the encoder's last states, with what is inside."""
    stack, rows = site.model.stack, list[Row]()
    if isinstance(stack, EncoderDecoder) and stack.normalize_memory:
        norm = site.norm(f"{LAYER}memory_norm", about="of the memory")
        rows.append((None, dataclasses.replace(norm, span=2)))
    rows += _projected_rows(site, "cross_attention", "S")
    rows += [(_cross_attend(site),), (_out(site, "cross_attention", site.model.H),)]
    words = f"{_kind(site)}; keys and values from the encoder"
    return _framed(site, "cross_attention", "Cross-attention", words, rows)


def _framed(site: Site, name: str, title: str, words: str, rows: list[Row]) -> Box:
    facts = typed((words,), site.model.precision.attention)
    box = site.box(name, "attention", title, *facts, values=((f"{name}/input", site.stream),))
    columns = max(map(_columns, rows))
    # Where a row says no more, its only box is as wide as all columns.
    return dataclasses.replace(box, rows=tuple(_widened(row, columns) for row in rows))


def _columns(row: Row) -> int:
    return sum(1 if part is None else part.span for part in row)


def _widened(row: Row, columns: int) -> Row:
    if len(row) == 1 and row[0] is not None:
        return (dataclasses.replace(row[0], span=columns),)
    return (*row, *(None,) * (columns - _columns(row)))


def _kind(site: Site) -> str:
    """Says how heads share keys and values."""
    N, K = site.model.heads, site.model.K
    linear = "linear, " if isinstance(site.model.attention, LinearAttention) else ""
    if K == N:
        return f"{linear}multi-head: {count(N, 'head')}"
    kind = "multi-query" if K == 1 else "grouped-query"
    return f"{linear}{kind}: {count(N, 'head')} read {count(K, 'head')} of keys and values"


def _projected_rows(site: Site, name: str, keys: str, *, beside: tuple[Box, ...] = ()) -> list[Row]:
    """Returns queries, keys and values, and the norms of the first two.

    Args:
        site: Where they are.
        name: Of the attention.
        keys: Letter of the tokens that keys and values come from.
        beside: What stands beside them.
    """
    model, row = site.model, list[Box | None]()
    widths = {"query": model.H, "key": model.H, "value": model.H}
    if name == "attention":
        widths["value"] = model.Hv
    shapes: dict[str, Shape] = {}
    for part, width in widths.items():
        heads, length = (model.heads, site.length) if part == "query" else (model.K, keys)
        shapes[part] = ("B", length, heads, width)
        row.append(_product(site, f"{name}/{part}", shapes[part]))
    attention, rows = model.attention, [(*row, *beside)]
    if isinstance(attention, DotProduct) and attention.query_key_norm != "none":
        over = "each head" if attention.query_key_norm == "head" else "the whole width"
        rows.append(
            tuple(
                site.box(
                    f"{name}/{part}_norm",
                    "norm",
                    f"RMSNorm of {part}",
                    f"over {over}",
                    values=((f"{name}/{part}_normed", shapes[part]),),
                    paths=(f"{LAYER}{name}/{part}_norm",),
                )
                for part in ("query", "key")
            )
        )
    return rows


def _product(site: Site, name: str, shape: Shape) -> Box:
    """Returns a matrix that leads from the stream to heads."""
    model = site.model
    fact = projection(
        (f"{model.width:,}", heads_words(*map(int, shape[-2:]))),
        bias=model.qkv_bias,
    )
    title = name.rpartition("/")[2]
    paths = (f"{LAYER}{name}",)
    return site.box(name, "product", title, fact, values=((name, shape),), paths=paths)


def _turn(site: Site) -> Box | None:
    model = site.model
    if not isinstance(model.position, Rope):
        return None
    facts = rope_words(model, model.position, windowed=site.windowed)
    values = tuple(
        (f"attention/{part}_turned", ("B", site.length, heads, model.H))
        for part, heads in {"query": model.heads, "key": model.K}.items()
    )
    title = "Rotary positions"
    turn = site.box("attention/turn", "position", title, *facts, values=values)
    return dataclasses.replace(turn, span=2)


def _distances(site: Site) -> tuple[Box, ...]:
    """Returns the tables of Shaw's relative positions, which each layer has of its own."""
    position, model = site.model.position, site.model
    if not isinstance(position, Shaw):
        return ()
    tables = {"key": model.H} | ({"value": model.Hv} if position.values else {})
    return tuple(
        site.box(
            f"attention/{name}_distance",
            "position",
            f"{name} distance",
            f"table {2 * position.max_distance + 1:,} × {width:,}",
            paths=(f"{LAYER}attention/{name}_distance",),
        )
        for name, width in tables.items()
    )


def _attend(site: Site) -> Box:
    """Returns what joins queries, keys and values of self-attention."""
    model, length = site.model, site.length
    has_prefix = isinstance(model.stack, PrefixDecoder)
    mask = self_mask(causal=site.stack.causal, window=site.window, has_prefix=has_prefix)
    mixed = ("attention/mixed", ("B", length, model.heads, model.Hv))
    if isinstance(model.attention, LinearAttention):
        facts = ("φ(x) = elu(x) + 1", "φ(query) · φ(key), in place of a softmax")
        return _joined(site, "attention", facts, mask, (mixed,))
    facts = _score_words(site, _width_of_scores(site))
    facts += (bias_words(model),)
    weights = _weight_words(site)
    if site.heads_off:
        off = ", ".join(map(str, site.heads_off))
        weights += (f"head{'s' if len(site.heads_off) > 1 else ''} {off} read zeros",)
    scores = ("B", model.heads, length, length)
    formed = (("attention/scores", scores), ("attention/weights", scores))
    if isinstance(model.position, Shaw):
        formed = ()
    return _joined(site, "attention", (*facts, *weights), mask, (*formed, mixed))


def _cross_attend(site: Site) -> Box:
    model = site.model
    scores = ("B", model.heads, site.length, "S")
    values = (
        ("cross_attention/scores", scores),
        ("cross_attention/weights", scores),
        ("cross_attention/mixed", ("B", site.length, model.heads, model.H)),
    )
    facts = (*_score_words(site, model.H), *_weight_words(site))
    return _joined(site, "cross_attention", facts, cross_mask(), values)


def _joined(
    site: Site,
    name: str,
    facts: tuple[str, ...],
    mask: Mask,
    values: tuple[tuple[str, Shape], ...],
) -> Box:
    step = f"picture: every {mask.step:,}th token" if mask.step > 1 else ""
    about = (*facts, mask.words, step)
    title = "Read values by scores"
    box = site.box(f"{name}/read", "attention", title, *about, values=values)
    return dataclasses.replace(box, mask=mask)


def _width_of_scores(site: Site) -> int:
    attention = site.model.attention
    rotary = attention.rotary_width if isinstance(attention, LatentAttention) else None
    return site.model.H + (rotary or 0)


def _score_words(site: Site, width: int) -> tuple[str, ...]:
    attention = site.model.attention
    scale, cap = f"/ √{width:,}", None
    if isinstance(attention, DotProduct):
        scale = scale if attention.scale is None else f"× {number(attention.scale)}"
        cap = attention.soft_cap
    capped = "" if cap is None else f"capped at ±{number(cap)} by a tanh"
    return (f"scores: query · key {scale}", capped)


def _weight_words(site: Site) -> tuple[str, ...]:
    rate = site.model.dropout.attention
    return (f"softmax over keys{f', dropout {number(rate)}' if rate else ''}",)


def _out(site: Site, name: str, width: int) -> Box:
    model = site.model
    fact = projection(
        (heads_words(model.heads, width), f"{model.width:,}"), bias=model.attention_out_bias
    )
    return site.box(
        f"{name}/out",
        "product",
        "out",
        fact,
        values=((f"{name}/output", site.stream),),
        paths=(f"{LAYER}{name}/out",),
    )
