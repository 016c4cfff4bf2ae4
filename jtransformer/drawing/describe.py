"""From a spec to its diagram."""

from jtransformer.accounting import parameters
from jtransformer.accounting.stacks import StackView, stacks_of
from jtransformer.drawing.diagram import (
    MEMORY,
    TABLE,
    Box,
    Diagram,
    Link,
    Node,
    Stack,
    boxes_within,
    parameters_within,
)
from jtransformer.drawing.ends import embedded, finished, head
from jtransformer.drawing.layers import deepnorm_of, layers_of
from jtransformer.drawing.site import Site, sizes_of
from jtransformer.drawing.words import number
from jtransformer.spec import EncoderDecoder, ModelSpec

TITLES = {
    "decoder": "Decoder",
    "prefix_decoder": "Prefix decoder",
    "encoder": "Encoder",
}


def describe(model: ModelSpec, name: str = "model") -> Diagram:
    """Returns the diagram of a model.

    Args:
        model: The model.
        name: What it is called.
    """
    stacks = tuple(_stack(model, view) for view in stacks_of(model))
    total = parameters(model).total
    # What has no box, or two, would make the picture a lie.
    found = sum(parameters_within(stack.nodes) for stack in stacks)
    assert found == total, f"the boxes have {found:,} parameters, the model {total:,}"
    return Diagram(name=name, facts=_facts(model), stacks=stacks, links=_links(stacks), total=total)


def _facts(model: ModelSpec) -> tuple[str, ...]:
    stack = model.stack
    sizes = {"D": model.width, "N": model.heads, "K": model.K, "H": model.H}
    if model.Hv != model.H:
        sizes["Hv"] = model.Hv
    sizes |= {"F": model.ffn_width, "V": model.vocabulary}
    if isinstance(stack, EncoderDecoder):
        sizes["source V"] = model.source_vocabulary or 0
        sizes |= {"Le": stack.encoder_layers, "Ld": model.layers}
    else:
        sizes["L"] = model.layers
    written = ", ".join(f"{letter} {size:,}" for letter, size in sizes.items())
    return (written, f"norms: {model.norm_placement}; initial values: {model.initialization}")


def _stack(model: ModelSpec, view: StackView) -> Stack:
    key = view.prefix.rstrip("/")
    site = Site(model, view, sizes_of(model), key=view.prefix)
    nodes: tuple[Node, ...] = (*embedded(site), *layers_of(site), *finished(site))
    # The head reads the last stack; of two the first is read by the other.
    if view == stacks_of(model)[-1]:
        nodes += head(site)
    else:
        nodes += (site.box("memory", "input", "memory", f"B S {model.width:,}"),)
    title = key.capitalize() if key else TITLES[model.stack.kind]
    facts = []
    if factors := deepnorm_of(model, view):
        stream, start = number(factors.stream_scale), number(factors.init_gain)
        facts.append(f"DeepNorm: stream times {stream}, initial values times {start}")
    return Stack(key=key, title=title, facts=tuple(facts), nodes=nodes)


def _links(stacks: tuple[Stack, ...]) -> tuple[Link, ...]:
    """Returns what joins boxes: the memory, and tables that several read."""
    links, owners = [], dict[str, Box]()
    for stack in stacks:
        for box, _ in boxes_within(stack.nodes):
            if box.key.endswith("/cross_attention"):
                links.append(Link("encoder/memory", box.key, MEMORY))
            if box.shares:
                links.append(Link(owners[box.shares].key, box.key, TABLE))
            # Of those who read a table, the one before is the nearest.
            for path in (*box.paths, *((box.shares,) if box.shares else ())):
                owners[path] = box
    return tuple(links)
