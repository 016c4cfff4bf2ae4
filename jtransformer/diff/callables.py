"""A function of someone's own as one side of a comparison.

`function(tokens)` takes token ids `B T` and returns a mapping from places to arrays, such as
`{"logits": …, "layer_0/attention/query": …}`; `layer_0/attention/query` is `B T N H` with heads
apart, and so on, as `jtransformer.modules.intermediates` has them. It may return as few of them as
it has. It is given `valid=`, `source=` and `source_valid=` where the inputs have them, and nothing
else. Gradients are what it returns as `gradient/PLACE` and `parameter_gradient/PATH`.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from jtransformer.diff.inputs import Inputs
from jtransformer.diff.traces import Trace, computed_type
from jtransformer.spec import SpecError, nearest

GRADIENT, PARAMETER_GRADIENT = "gradient/", "parameter_gradient/"


class Called(NamedTuple):
    """A function as one side.

    Attributes:
        name: What the user called it.
        function: Maps token ids to values by place.
    """

    name: str
    function: Callable[..., Mapping[str, Any]]

    def trace(self, inputs: Inputs, *, gradients: bool = False) -> Trace:
        """Calls the function.

        Raises:
            SpecError: If it fails, or returns what is no mapping from names to arrays of numbers,
                or no gradients where they are asked for.
        """
        given = {
            name: value
            for name, value in inputs._asdict().items()
            if name != "tokens" and value is not None
        }
        try:
            found = self.function(inputs.tokens, **given)
        except Exception as error:
            sentence = " ".join(str(error).split()).rstrip(".")
            problem = f"fails ({type(error).__name__}: {sentence}); fix the function."
            raise SpecError(self.name, problem) from error
        if not isinstance(found, Mapping):
            raise SpecError(
                self.name,
                f"returned {type(found).__name__}; return a mapping from places to arrays, such as "
                "{'logits': …}.",
            )
        arrays = {str(name): self._array(str(name), value) for name, value in found.items()}
        of_places = _below(GRADIENT, arrays)
        of_parameters = _below(PARAMETER_GRADIENT, arrays)
        if gradients and not (of_places or of_parameters):
            raise SpecError(
                self.name,
                f"returned no gradients; return them as '{GRADIENT}logits' … or "
                f"'{PARAMETER_GRADIENT}embedding/table' …, or leave --gradients out.",
            )
        values = {
            name: value
            for name, value in arrays.items()
            if not name.startswith((GRADIENT, PARAMETER_GRADIENT))
        }
        if not values:
            raise SpecError(self.name, "returned no values; return at least 'logits'.")
        computed = computed_type([*values.values()])
        if not gradients:
            of_places = of_parameters = {}
        return Trace(values, "", computed, of_places, of_parameters)

    def _array(self, name: str, value: Any) -> np.ndarray:
        array = np.asarray(value)
        try:
            array.astype(np.float64)
        except (TypeError, ValueError):
            raise SpecError(
                self.name, f"returned {name!r} of type {array.dtype}; return arrays of numbers."
            ) from None
        return array


def _below(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): value
        for name, value in arrays.items()
        if name.startswith(prefix)
    }


def find(name: str) -> Called:
    """Imports a function by `module:function`; modules may lie in the present directory.

    Raises:
        SpecError: If there is none.
    """
    module_name, _, attribute = name.partition(":")
    here = "" not in sys.path
    if here:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SpecError(
            name, f"cannot be imported ({error}); write module:function, as Python finds it here."
        ) from None
    finally:
        if here:
            sys.path.remove("")
    function = getattr(module, attribute, None)
    if not callable(function):
        known = [one for one in vars(module) if callable(vars(module)[one]) and one[0] != "_"]
        raise SpecError(name, f"is no function of {module_name}; {nearest(attribute, known)}.")
    return Called(name, cast(Any, function))
