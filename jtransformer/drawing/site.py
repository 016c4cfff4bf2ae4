"""Where a box is made: its model, its stack, and the parameters that lie there."""

import collections
import dataclasses
import math
from collections.abc import Mapping

from jtransformer.accounting.leaves import ANY_LAYER, leaves
from jtransformer.accounting.stacks import StackView
from jtransformer.drawing.diagram import Box, Role, Shape, Value
from jtransformer.drawing.words import norm_words
from jtransformer.spec import DotProduct, ModelSpec

LAYER = f"{ANY_LAYER}/"


def sizes_of(model: ModelSpec) -> Mapping[str, int]:
    """Returns how many parameters lie at each path, of one layer where it has copies."""
    found: collections.Counter[str] = collections.Counter()
    for leaf in leaves(model):
        path, shape = leaf.path.rpartition("/")[0], leaf.shape
        names = path.split("/")
        if model.scan_layers and "layers" in names:
            # The layers of a scan are one array each, whose first axis counts them.
            path = "/".join(ANY_LAYER if name == "layers" else name for name in names)
            shape = shape[1:]
        found[path] += math.prod(shape)
    return dict(found)


@dataclasses.dataclass(frozen=True)
class Site:
    """Where boxes are made.

    Attributes:
        model: The model.
        stack: The stack.
        sizes: As `sizes_of` returns them.
        key: What stands before the keys of the boxes.
        windowed: Whether the layer has the window of attention.
        heads_off: Heads of the layer that are switched off.
        has_norm_in: Whether its attention has the norm before it, where the placement has one.
    """

    model: ModelSpec
    stack: StackView
    sizes: Mapping[str, int]
    key: str = ""
    windowed: bool = False
    heads_off: tuple[int, ...] = ()
    has_norm_in: bool = True

    @property
    def length(self) -> str:
        """The letter of the tokens that the stack reads."""
        return "S" if self.stack.prefix == "encoder/" else "T"

    @property
    def stream(self) -> Shape:
        """The axes of the residual stream."""
        return ("B", self.length, self.model.width)

    @property
    def window(self) -> int | None:
        """The window of the layer; None where it sees all."""
        attention = self.model.attention
        return attention.window if isinstance(attention, DotProduct) and self.windowed else None

    def box(
        self,
        key: str,
        role: Role,
        title: str,
        *facts: str,
        values: tuple[tuple[str, Shape], ...] = (),
        paths: tuple[str, ...] = (),
    ) -> Box:
        """Makes a box, which has the parameters at some paths below its stack."""
        paths = tuple(self.stack.prefix + path for path in paths)
        return Box(
            key=self.key + key,
            role=role,
            title=title,
            facts=tuple(fact for fact in facts if fact),
            values=tuple(Value(*value) for value in values),
            paths=paths,
            # A path without parameters is a mistake here, and a KeyError.
            parameters=sum(self.sizes[path] for path in paths),
        )

    def norm(
        self, path: str, *, about: str = "", values: tuple[tuple[str, Shape], ...] = ()
    ) -> Box:
        """Makes the box of a norm of the model."""
        title, settings = norm_words(self.model)
        key = path.removeprefix(LAYER)
        title = f"{title} {about}".strip()
        return self.box(key, "norm", title, settings, values=values, paths=(path,))
