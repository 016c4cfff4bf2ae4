"""A stack as a column: its nodes below one another, the stream through their middle."""

from collections.abc import Mapping

from jtransformer.drawing.boxes import BETWEEN, GAP, Size, place, size_of
from jtransformer.drawing.diagram import Box, Layers, Node, Residual, Stack
from jtransformer.drawing.metrics import LINE, width_of
from jtransformer.drawing.shapes import SIGNS, Drawn, Line, Mark, Plus, Rect, Text
from jtransformer.drawing.words import axes, group_words

RADIUS = 9
GUTTER = 22
"""On both sides of a branch; the stream passes on the left."""
HEAD = 12
"""Above the first box of a branch, where the stream leaves it."""
INSET = 10
"""Between the frame of a group and what is inside."""
HEADING = 24
Marks = Mapping[str, Mark]


def _is_label(box: Box) -> bool:
    """Whether a box is words beside the line of the stream and no rectangle."""
    return box.role in ("stream", "sum")


def _label(box: Box, marks: Marks) -> str:
    shape = axes(box.values[-1].shape) if box.values else ""
    words = [SIGNS[marks.get(box.key, "")] + box.title, shape, *box.facts]
    return " · ".join(filter(None, words))


def node_size(node: Node, marks: Marks) -> Size:
    """Returns how large a node is at least."""
    match node:
        case Box():
            return _box_size(node, marks)
        case Residual():
            return _residual_size(node, marks)
        case Layers():
            inside = _sequence_size(node.nodes, marks)
            left, right = _group_words(node, marks)
            # The stream passes between the two.
            words = 2 * (BETWEEN + max(width_of(text, "fact") for text in (left, right)))
            width = max(inside.width, words) + 2 * INSET
            return Size(width, inside.height + LINE + 3 * INSET)


def _group_words(node: Layers, marks: Marks) -> tuple[str, str]:
    words, count = group_words(node)
    return SIGNS[marks.get(node.key, "")] + words, count


def _box_size(box: Box, marks: Marks) -> Size:
    if _is_label(box):
        half = RADIUS + BETWEEN + width_of(_label(box, marks), "fact")
        return Size(2 * half, 2 * RADIUS)
    width, height = size_of(box, marks)
    return Size(2 * (width + GAP), height) if box.aside else Size(width, height)


def _sequence_size(nodes: tuple[Node, ...], marks: Marks) -> Size:
    sizes = [node_size(node, marks) for node in nodes]
    height = sum(size.height for size in sizes) + GAP * (len(nodes) - 1)
    return Size(max(size.width for size in sizes), height)


def _branch_sizes(node: Residual, marks: Marks) -> list[Size]:
    return [_sequence_size(branch, marks) for branch in node.branches]


def _residual_size(node: Residual, marks: Marks) -> Size:
    branches = _branch_sizes(node, marks)
    inner = sum(size.width for size in branches) + GAP * (len(branches) - 1)
    whole = [_box_size(box, marks) for box in (*node.before, node.add, *node.after)]
    width = max([inner, *(size.width for size in whole)]) + 2 * GUTTER
    height = HEAD + max(size.height for size in branches) + sum(size.height for size in whole)
    height += GAP * (1 + len(node.before) + len(node.after))
    if len(branches) > 1:
        height += 2 * GAP
    return Size(width, height)


def stack_size(stack: Stack, marks: Marks) -> Size:
    """Returns how large a column is, its heading included."""
    inside = _sequence_size(stack.nodes, marks)
    heading = HEADING + LINE * len(stack.facts)
    words = [width_of(stack.title, "title"), *(width_of(fact, "fact") for fact in stack.facts)]
    return Size(max(inside.width, *words), inside.height + heading)


def place_stack(stack: Stack, at: tuple[float, float], width: float, marks: Marks) -> list[Drawn]:
    """Returns a column at its place.

    Args:
        stack: The stack.
        at: The upper left corner.
        width: At least that of `stack_size`.
        marks: What a comparison says of boxes, by key.
    """
    x, y = at
    drawn: list[Drawn] = [Text(x, y + 12, stack.title, "title")]
    for nth, fact in enumerate(stack.facts, start=1):
        drawn.append(Text(x, y + 12 + LINE * nth, fact, "fact"))
    top = y + HEADING + LINE * len(stack.facts)
    return drawn + _sequence(stack.nodes, (x, top), width, marks)


def _sequence(
    nodes: tuple[Node, ...], at: tuple[float, float], width: float, marks: Marks
) -> list[Drawn]:
    """Returns nodes below one another, and the line of the stream between them."""
    (x, y), drawn, end = at, list[Drawn](), None
    middle = x + width / 2
    for node in nodes:
        height = node_size(node, marks).height
        if end is not None:
            is_entered = isinstance(node, Box) and not _is_label(node) and not node.aside
            drawn.append(Line(((middle, end), (middle, y)), has_arrow=is_entered))
        drawn += _node(node, (x, y), width, marks)
        y += height
        end, y = y, y + GAP
    return drawn


def _node(node: Node, at: tuple[float, float], width: float, marks: Marks) -> list[Drawn]:
    match node:
        case Box():
            return _box(node, at, width, marks)
        case Residual():
            return _residual(node, at, width, marks)
        case Layers():
            return _group(node, at, width, marks)


def _box(box: Box, at: tuple[float, float], width: float, marks: Marks) -> list[Drawn]:
    (x, y), (own, height) = at, size_of(box, marks)
    middle = x + width / 2
    if _is_label(box):
        centre = y + RADIUS
        text = Text(middle + RADIUS + BETWEEN, centre + 4, _label(box, marks), "fact")
        if box.role == "sum":
            return [Plus(box.key, middle, centre, RADIUS, marks.get(box.key, "")), text]
        return [Line(((middle, y), (middle, y + 2 * RADIUS))), text]
    if box.aside:
        line = Line(((middle, y), (middle, y + height)))
        return [line, *place(box, (middle + GAP, y), Size(own, height), marks)]
    return place(box, (middle - own / 2, y), Size(own, height), marks)


def _group(node: Layers, at: tuple[float, float], width: float, marks: Marks) -> list[Drawn]:
    (x, y), (own, height) = at, node_size(node, marks)
    left = x + (width - own) / 2
    words, count = _group_words(node, marks)
    baseline = y + INSET + 8
    inside = y + LINE + 2 * INSET
    mark = marks.get(node.key, "")
    return [
        Rect(node.key, left, y, own, height, "group", True, mark),
        Text(left + INSET, baseline, words, "fact"),
        Text(left + own - INSET, baseline, count, "fact", to_right=True),
        Line(((left + own / 2, y), (left + own / 2, inside))),
        *_sequence(node.nodes, (left + INSET, inside), own - 2 * INSET, marks),
        Line(((left + own / 2, y + height - INSET), (left + own / 2, y + height))),
    ]


def _residual(node: Residual, at: tuple[float, float], width: float, marks: Marks) -> list[Drawn]:
    (x, y), drawn = at, list[Drawn]()
    middle = x + width / 2
    split, top, start = y + 2, y + HEAD, y
    for box in node.before:
        drawn.append(Line(((middle, start), (middle, top)), has_arrow=True))
        drawn += _box(box, (x, top), width, marks)
        start = top + size_of(box, marks).height
        top = start + GAP
    if len(node.branches) > 1:
        top += GAP
    sizes = _branch_sizes(node, marks)
    if len(sizes) == 1:
        sizes = [Size(width - 2 * GUTTER, sizes[0].height)]
    inner = sum(size.width for size in sizes) + GAP * (len(sizes) - 1)
    branch_left, lowest = middle - inner / 2, top + max(size.height for size in sizes)
    add = lowest + GAP + (GAP if len(sizes) > 1 else 0)
    for branch, size in zip(node.branches, sizes, strict=True):
        centre = branch_left + size.width / 2
        # All branches part at one height and meet at one height.
        parting, meeting = top - GAP, lowest + GAP
        down = ((middle, start), (middle, parting), (centre, parting), (centre, top))
        up = ((centre, top + size.height), (centre, meeting), (middle, meeting), (middle, add))
        if len(sizes) == 1:
            down, up = ((middle, start), (middle, top)), ((middle, lowest), (middle, add))
        drawn += [Line(down, has_arrow=True), Line(up, has_arrow=True)]
        drawn += _branch(branch, (branch_left, top), size.width, marks)
        branch_left += size.width + GAP
    if node.has_stream:
        side, centre = middle - inner / 2 - GUTTER / 2, add + RADIUS
        path = ((middle, split), (side, split), (side, centre), (middle - RADIUS, centre))
        drawn.append(Line(path, has_arrow=True))
    drawn += _box(node.add, (x, add), width, marks)
    return drawn + _after(node, (x, add + 2 * RADIUS), width, marks)


def _branch(
    boxes: tuple[Box, ...], at: tuple[float, float], width: float, marks: Marks
) -> list[Drawn]:
    """Returns the boxes of a branch, all as wide as it is."""
    (x, y), drawn = at, list[Drawn]()
    for nth, box in enumerate(boxes):
        height = size_of(box, marks).height
        if nth:
            line = ((x + width / 2, y - GAP), (x + width / 2, y))
            drawn.append(Line(line, has_arrow=True))
        drawn += place(box, (x, y), Size(width, height), marks)
        y += height + GAP
    return drawn


def _after(node: Residual, at: tuple[float, float], width: float, marks: Marks) -> list[Drawn]:
    (x, y), drawn = at, list[Drawn]()
    for box in node.after:
        line = ((x + width / 2, y), (x + width / 2, y + GAP))
        drawn += [Line(line, has_arrow=True), *_box(box, (x, y + GAP), width, marks)]
        y += GAP + size_of(box, marks).height
    return drawn
