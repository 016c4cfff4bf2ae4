"""A model of jtransformer as the functions that `jtransformer.checks` judges."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from jtransformer.checks.compiling import PRECISION, quickly
from jtransformer.cli import check_trees as trees
from jtransformer.spec import (
    Classifier,
    DotProduct,
    Embedder,
    EncoderDecoder,
    LinearAttention,
    ModelSpec,
    NoPosition,
    Precision,
    PrefixDecoder,
    RunSpec,
    TokenHead,
)

Given = dict[str, Any]
"""Arguments of `jtransformer.checks.run_all`."""
ROWS = 2
READ = 4
"""Ids of the source below this alone are read for the loss at the start, as those of the rows."""


class Judged(NamedTuple):
    """What is judged.

    Attributes:
        name: What the user called it.
        model: The model.
        run: The run that it belongs to; None for a model alone.
        seed: Of initial values.
        parameters: Those of a trained run; None is a start, moved so that nothing hides in zeros.
        examples: Tokens, labels and weights of a batch, or why there are none.
        length: Tokens of a row.
    """

    name: str
    model: ModelSpec
    run: RunSpec | None
    seed: int
    parameters: Any
    examples: Any
    length: int


def output_of(spec: ModelSpec, out: Any) -> Any:
    """Returns what stands for each position: logits, or states where a row has one answer."""
    return out.hidden if isinstance(spec.head, Classifier | Embedder) else out.logits


class Calls:
    """The compiled functions of a model; each is one program."""

    def __init__(self, judged: Judged):
        """Makes the parameters; compiles nothing else yet."""
        import jax
        import jax.numpy as jnp
        import numpy as np

        from jtransformer.modules import build
        from jtransformer.training import parameter_key

        self.judged, self.spec = judged, judged.model
        self.length, self.source_length = judged.length, max(4, judged.length - 3)
        self._module = build(self.spec)
        # Precision is of where a part is computed; in double precision all parts are.
        self._double = build(dataclasses.replace(self.spec, precision=Precision()))
        self._key = parameter_key
        zeros = jnp.zeros((1, 1), jnp.int32)
        source = zeros if self.spec.has_encoder else None
        self._init = quickly(functools.partial(self._module.init, source=source))
        self._zeros = zeros
        self.start = self.init(judged.seed)
        self.parameters = judged.parameters
        if self.parameters is None:
            self.parameters = trees.moved(self.start, judged.seed)
        self.prefix = judged.length // 2 if isinstance(self.spec.stack, PrefixDecoder) else 0
        generator = np.random.default_rng(judged.seed)
        shape = (ROWS, self.source_length)
        vocabulary = self.spec.source_vocabulary or 0
        self.source = generator.integers(max(1, vocabulary), size=shape).astype(np.int32)
        self._outputs = quickly(functools.partial(self._all, self._module))
        # Programs inside of others have no options of the compiler.
        self._outputs_inside = jax.jit(functools.partial(self._all, self._module))
        self._outputs_double = jax.jit(functools.partial(self._all, self._double))
        # Every argument is given, so that one program serves whoever changes one of them.
        self._full = quickly(lambda p, tokens, given: self._logits(p, tokens, **given))
        self._of_rows = jax.jit(
            lambda p, rows, given: self._logits(p, None, embeddings=rows, **given)
        )
        self._step = quickly(self._cached)

    def init(self, seed: int) -> Any:
        """Returns initial values."""
        import jax

        # As the laws compute, which ask for them again: another precision is another program.
        with jax.default_matmul_precision(PRECISION):
            return self._init(self._key(seed), self._zeros)["params"]

    def _logits(self, parameters: Any, tokens: Any, **given: Any) -> Any:
        return output_of(self.spec, self._module.apply({"params": parameters}, tokens, **given))

    def _all(self, module: Any, parameters: Any, tokens: Any, given: Any) -> Any:
        out = module.apply({"params": parameters}, tokens, **given)
        found = output_of(self.spec, out), out.logits, out.pooled
        kept = [found[0], *(x for x in found[1:] if x is not None and x is not found[0])]
        return tuple(kept)

    def needed(self, rows: int) -> dict[str, Any]:
        """Returns the arguments that the stack cannot do without."""
        import jax.numpy as jnp

        if self.spec.has_encoder:
            return {"source": jnp.asarray(self.source[:rows])}
        if isinstance(self.spec.stack, PrefixDecoder):
            return {"prefix_length": jnp.full(rows, self.prefix, jnp.int32)}
        return {}

    def usual(self) -> dict[str, Any]:
        """Returns every argument, with values that change nothing."""
        import jax.numpy as jnp

        T, S = self.length, self.source_length
        given = self.needed(ROWS)
        given |= {"positions": self._places(T), "valid": jnp.ones((ROWS, T), bool)}
        if self.takes_segments:
            given["segments"] = jnp.ones((ROWS, T), jnp.int32)
        if self.spec.has_encoder:
            given["source_valid"] = jnp.ones((ROWS, S), bool)
            given["source_positions"] = self._places(S)
            if self.takes_segments:
                given["source_segments"] = jnp.ones((ROWS, S), jnp.int32)
        return given

    @staticmethod
    def _places(length: int) -> Any:
        import jax.numpy as jnp

        return jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), (ROWS, length))

    @property
    def takes_segments(self) -> bool:
        """Whether rows may hold several documents."""
        apart = not isinstance(self.spec.attention, LinearAttention)
        return apart and not isinstance(self.spec.head, Classifier | Embedder)

    def apply(self, tokens: Any, parameters: Any = None) -> Any:
        """Returns logits, of the judged parameters or of others."""
        parameters = self.parameters if parameters is None else parameters
        return self._outputs(parameters, tokens, self.needed(len(tokens)))[0]

    def again(self, tokens: Any) -> Any:
        """Returns logits of a program that is compiled anew."""
        anew = quickly(functools.partial(self._all, self._module))
        return anew(self.parameters, tokens, self.needed(len(tokens)))[0]

    def initial(self, tokens: Any) -> Any:
        """Returns logits at the initial values, behind a source of few ids."""
        given = self.needed(len(tokens))
        if "source" in given:
            given["source"] = given["source"] % READ
        return self._outputs(self.start, tokens, given)[0]

    def changed(self, tokens: Any, **changes: Any) -> Any:
        """Returns logits of a call in which some arguments are others."""
        return self._full(self.parameters, tokens, self.usual() | changes)

    def outputs(self, parameters: Any, tokens: Any) -> Any:
        """Returns everything that the head computes."""
        import jax
        from jax.core import Tracer

        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(parameters))
        program = self._outputs_inside if traced else self._outputs
        return program(parameters, tokens, self.needed(len(tokens)))

    def outputs_double(self, parameters: Any, tokens: Any) -> Any:
        """Returns the same, of the model with no part in a narrow type."""
        return self._outputs_double(parameters, tokens, self.needed(len(tokens)))

    def of_rows(self, parameters: Any, rows: Any) -> Any:
        """Returns logits of rows that were looked up."""
        return self._of_rows(parameters, rows, self.needed(len(rows)))

    def of_source_rows(self, parameters: Any, rows: Any) -> Any:
        """Returns logits of fixed tokens behind rows of the source that were looked up."""
        import jax.numpy as jnp

        tokens = jnp.zeros((len(rows), self.length), jnp.int32)
        return self._logits(parameters, tokens, source_embeddings=rows)

    def _cached(self, parameters: Any, cache: Any, tokens: Any, given: Any) -> Any:
        out: Any = self._module.apply({"params": parameters}, tokens, cache=cache, **given)
        return output_of(self.spec, out), out.cache

    def first_step(self, cache: Any, tokens: Any, valid: Any = None) -> Any:
        """Begins to decode."""
        return self.step(cache, tokens, valid, **self.needed(len(tokens)))

    def step(self, cache: Any, tokens: Any, valid: Any = None, **given: Any) -> Any:
        """Decodes further tokens."""
        if valid is not None:
            given["valid"] = valid
        return self._step(self.parameters, cache, tokens, given)

    def empty_cache(self, rows: int, capacity: int, chunk: int | None = None) -> Any:
        """Returns the cache from which decoding starts."""
        from jtransformer.modules import empty_cache

        source_length = self.source_length if self.spec.has_encoder else None
        return empty_cache(
            self.spec, B=rows, capacity=capacity, chunk=chunk, source_length=source_length
        )

    def readout(self, stream: Any) -> Any:
        """Returns logits of a last stream: of a model whose branches return zeros."""
        return self._readout(self.parameters, stream)

    @functools.cached_property
    def _readout(self) -> Callable[..., Any]:
        """The program of `readout`; positions and a norm before the layers are switched off."""
        from jtransformer.modules import build

        position = self.spec.position
        if position.kind in ("sinusoidal", "learned"):
            position = NoPosition()
        spec = dataclasses.replace(
            self.spec, position=position, embedding_norm=False, first_norm=True
        )
        module = build(spec)

        def logits(parameters: Any, stream: Any) -> Any:
            quiet = trees.silent(parameters)
            given = {"params": quiet if self.spec.first_norm else trees.with_first_norm(quiet)}
            needed = self.needed(len(stream))
            return output_of(spec, module.apply(given, None, embeddings=stream, **needed))

        return quickly(logits)

    def shapes(self, spec: ModelSpec) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the parameters that a model makes, by path."""
        import jax
        import jax.numpy as jnp

        from jtransformer.modules import build

        source = self._zeros if isinstance(spec.stack, EncoderDecoder) else None
        init = functools.partial(build(spec).init, source=source)
        made = jax.eval_shape(init, self._key(0), jnp.zeros((1, 1), jnp.int32))
        found: dict[str, tuple[int, ...]] = {}

        def note(names: tuple[str, ...], leaf: Any) -> None:
            found["/".join(names)] = tuple(leaf.shape)

        trees.mapped(note, made["params"])
        return found

    @property
    def is_tied(self) -> bool:
        """Whether lookup and head share one table."""
        return isinstance(self.spec.head, TokenHead) and self.spec.head.tied

    def window_of(self, layer: int) -> int | None:
        """Returns the window of a layer."""
        attention = self.spec.attention
        return attention.window_of(layer) if isinstance(attention, DotProduct) else None
