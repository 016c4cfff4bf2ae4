"""The boxes before the layers of a stack, and those behind the last."""

import dataclasses

from jtransformer.drawing.diagram import Box, Shape
from jtransformer.drawing.site import Site
from jtransformer.drawing.words import number, projection, typed
from jtransformer.spec import (
    Alibi,
    Classifier,
    Embedder,
    Encoder,
    EncoderDecoder,
    Learned,
    NoPosition,
    RelativeBias,
    Rope,
    Shaw,
    Sinusoidal,
    T5Bias,
    Tagger,
    TokenHead,
)
from jtransformer.spec.stacks import PrefixDecoder

TABLE = "embedding"
"""Path of the table of the model's tokens."""


def embedded(site: Site) -> tuple[Box, ...]:
    """Returns what makes the stream of a stack of its tokens."""
    model = site.model
    is_source = site.length == "S"
    vocabulary = model.source_vocabulary if is_source else model.vocabulary
    known = f"ids 0 to {(vocabulary or 0) - 1:,}"
    source = "source tokens" if is_source else "tokens"
    tokens = site.box("tokens", "input", source, f"B {site.length}, {known}")
    found = [tokens, _tokens(site, vocabulary or 0)]
    found += _types(site) + _positions(site)
    if model.embedding_norm:
        found.append(site.norm("embedding_norm"))
    if rate := model.dropout.embedding:
        found.append(site.box("embedding_dropout", "dropout", f"Dropout {number(rate)}"))
    facts = typed((), model.precision.stream)
    stream = site.box(
        "stream", "stream", "residual stream", *facts, values=(("embedded", site.stream),)
    )
    return (*found, stream, *_bias_table(site))


def _tokens(site: Site, vocabulary: int) -> Box:
    model, stack = site.model, site.model.stack
    scale = f"rows × √{model.width:,}" if model.scale_embedding else ""
    facts = (f"table {vocabulary:,} × {model.width:,}", scale)
    box = site.box(TABLE, "embedding", "Token embedding", *facts)
    own, path = True, TABLE
    if isinstance(stack, EncoderDecoder):
        # The encoder comes first: what both stacks read counts there.
        own = site.length == "S" or not stack.share_embedding
        path = TABLE if stack.share_embedding or site.length == "T" else "source_embedding"
    if own:
        return dataclasses.replace(box, paths=(path,), parameters=site.sizes[path])
    return dataclasses.replace(
        box, shares=path, facts=(*box.facts, "the table of the source, counted there")
    )


def _types(site: Site) -> list[Box]:
    stack = site.model.stack
    if not (isinstance(stack, Encoder) and stack.token_types):
        return []
    fact = f"added: table {stack.token_types:,} × {site.model.width:,}"
    return [site.box("token_type", "embedding", "Token types", fact, paths=("token_type",))]


def _positions(site: Site) -> list[Box]:
    match site.model.position:
        case Sinusoidal(layout=layout):
            fact = f"added: sines and cosines, {layout}"
            return [site.box("position", "position", "Sinusoidal positions", fact)]
        case Learned(max_length=length, first=first):
            width = site.model.width
            facts = (
                f"added: table {first + length:,} × {width:,}, for {length:,} tokens",
                f"the first token has position {first:,}" if first else "",
            )
            title = "Learned positions"
            return [site.box("position", "position", title, *facts, paths=("position",))]
        case NoPosition() | Rope() | T5Bias() | RelativeBias() | Alibi() | Shaw():
            return []


def _bias_table(site: Site) -> tuple[Box, ...]:
    """Returns the table of biases that the layers of a stack share."""
    match site.model.position:
        case T5Bias(buckets=buckets, max_distance=distance):
            looks_both = not site.stack.causal or isinstance(site.model.stack, PrefixDecoder)
            ways = "to both sides" if looks_both else "backwards"
            rows, about = buckets, f"buckets to {distance:,} tokens, {ways}"
            title = "T5 bias of scores"
        case RelativeBias(max_distance=distance):
            rows, about = 2 * distance + 1, f"distances to {distance:,} tokens"
            title = "Bias of scores"
        case NoPosition() | Sinusoidal() | Learned() | Rope() | Alibi() | Shaw():
            return ()
    facts = (f"table {rows:,} × {site.model.heads:,} heads", about, "shared by all layers")
    box = site.box("position_bias", "position", title, *facts, paths=("position_bias",))
    return (dataclasses.replace(box, aside=True),)


def finished(site: Site) -> tuple[Box, ...]:
    """Returns the norm at the end of a stack, where it has one."""
    if not site.model.has_final_norm:
        return ()
    return (site.norm("final_norm", about="at the end", values=(("final_norm", site.stream),)),)


def head(site: Site) -> tuple[Box, ...]:
    """Returns what the head of a model computes from the last states."""
    model, D = site.model, site.model.width
    # A head lies beside the stacks, not inside of one.
    site = dataclasses.replace(site, stack=site.stack._replace(prefix=""))
    match model.head:
        case TokenHead() as chosen:
            return (*_pooler(site, aside=True), *_transform(site, chosen), _scores(site, chosen))
        case Classifier(classes=classes, pooling=pooling):
            pooled = (_pool(site, pooling), *_pooler(site, aside=False))
            return (*pooled, _classes(site, classes, ("B", classes), "a sequence"))
        case Tagger(classes=classes):
            shape = ("B", site.length, classes)
            return (*_pooler(site, aside=True), _classes(site, classes, shape, "each token"))
        case Embedder(pooling=pooling, embedding_width=width, unit_length=unit):
            found = [_pool(site, pooling), *_pooler(site, aside=False)]
            if width:
                found.append(_dense(site, "head", "Matrix", (D, width), bias=False))
            if unit:
                found.append(site.box("unit_length", "scale", "Scaled to length 1"))
            last = site.box("pooled", "input", "embedding", f"B {width or D:,}")
            return (*found, last)


def _dense(site: Site, path: str, title: str, widths: tuple[int, int], *, bias: bool) -> Box:
    start, end = widths
    fact = projection((f"{start:,}", f"{end:,}"), bias=bias)
    facts = typed((fact,), site.model.precision.head)
    return site.box(path, "head", title, *facts, paths=(path,))


def _pooler(site: Site, *, aside: bool) -> tuple[Box, ...]:
    """Returns the pooler of an encoder; beside the stream where the head does not read it."""
    stack, D = site.model.stack, site.model.width
    if not (isinstance(stack, Encoder) and stack.pooler):
        return ()
    title = "Pooler of the first token" if aside else "Pooler"
    box = _dense(site, "pooler", title, (D, D), bias=True)
    return (dataclasses.replace(box, aside=aside, facts=(*box.facts, "tanh")),)


def _pool(site: Site, pooling: str) -> Box:
    words = {"first": "state of the first token", "last": "state of the last token"}
    title = words.get(pooling, f"{pooling} over tokens")
    facts = typed((f"B {site.model.width:,}",), site.model.precision.head)
    return site.box("pool", "head", f"Pool: {title}", *facts)


def _classes(site: Site, classes: int, shape: Shape, what: str) -> Box:
    title = f"Scores of classes for {what}"
    box = _dense(site, "head", title, (site.model.width, classes), bias=True)
    logits = site.box("", "head", "", values=(("logits", shape),)).values
    return dataclasses.replace(box, values=logits)


def _transform(site: Site, chosen: TokenHead) -> tuple[Box, ...]:
    if not chosen.transform:
        return ()
    D = site.model.width
    dense = _dense(site, "head_transform", "Dense, GELU", (D, D), bias=chosen.transform_bias)
    return dense, site.norm("head_norm")


def _scores(site: Site, chosen: TokenHead) -> Box:
    model, D, V = site.model, site.model.width, site.model.vocabulary
    own = ("head",) if chosen.bias or not chosen.tied else ()
    facts = (
        projection((f"{D:,}", f"{V:,}"), bias=chosen.bias),
        "matrix: the token embedding" if chosen.tied else "",
        f"states / √{D:,}" if chosen.scale_down else "",
        "" if chosen.soft_cap is None else f"capped at ±{number(chosen.soft_cap)} by a tanh",
    )
    logits = (("logits", ("B", site.length, V)),)
    facts = typed(facts, model.precision.head)
    box = site.box("head", "head", "Scores of tokens", *facts, values=logits, paths=own)
    return dataclasses.replace(box, shares=TABLE if chosen.tied else "")
