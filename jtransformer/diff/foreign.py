"""A Hugging Face directory, run by `transformers` itself, as one side of a comparison.

Where its places lie follows from the rules of its family (`captures`); what is there is noted by
hooks and by an attention function (`noting`). Families whose attention takes no such function show
their weights alone.
"""

import contextlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np

from jtransformer.diff.captures import Capture, captures
from jtransformer.diff.inputs import Inputs
from jtransformer.diff.noting import hooked, noting, to_array
from jtransformer.diff.ours import Ours, ours
from jtransformer.diff.traces import Trace, computed_type, stored_type
from jtransformer.interop import family_named, load
from jtransformer.interop.mapping import rules_of, shapes_of
from jtransformer.interop.rules import Rule
from jtransformer.spec import Encoder, ModelSpec, Rope, SpecError, TokenHead


class Foreign:
    """A model of `transformers`, and the same read into a model of ours.

    Attributes:
        name: What the user called it.
        spec: The model as a spec of ours.
        stand_in: The same as a model of ours, on which hypotheses can be tried.
    """

    def __init__(self, name: str, directory: Path):
        """Reads a directory.

        Raises:
            SpecError: If it cannot be read as a model of ours.
        """
        loaded = load(directory)
        self.name, self.spec = name, loaded.spec
        self.stand_in: Ours = ours(f"{name}, read into a model of ours", loaded.spec,
                                   loaded.variables)  # fmt: skip
        family = family_named(loaded.family)
        self._prefix = family.prefix
        self._shapes = shapes_of(loaded.spec)
        self._rules: list[Rule] = rules_of(family, loaded.spec, self._shapes)
        self._model = _from_pretrained(directory, loaded.config, family.architectures[0])

    def trace(self, inputs: Inputs, *, gradients: bool = False) -> Trace:
        """Runs the model.

        Raises:
            SpecError: If gradients are asked for and it has no loss.
        """
        import torch  # pyright: ignore[reportMissingImports]

        places = captures(self.spec, self._rules, self._shapes)
        noted: dict[str, Any] = {}
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(gradients))
            stack.enter_context(hooked(places, self._modules(), noted, gradients))
            stack.enter_context(noting(self._model, self._attentions(), noted))
            out = self._model(**self._call(inputs))
        values = {name: to_array(value) for name, (value, _) in noted.items()}
        values |= self._ends(out, values)
        rows = inputs.tokens.shape
        shown = {name: self._shaped(name, x, rows) for name, x in values.items()}
        if not isinstance(self.spec.position, Rope):
            shown = {name: x for name, x in shown.items() if not name.endswith("_turned")}
        shown |= self._repeated(shown)
        leaves = [to_array(leaf) for leaf in self._model.state_dict().values()]
        trace = Trace(shown, stored_type(leaves), computed_type([*shown.values()]))
        return self._with_gradients(trace, out, noted, places) if gradients else trace

    @property
    def padding(self) -> int | None:
        """The id that stands for padding, which some models count no position for."""
        return self._model.config.pad_token_id

    def _call(self, inputs: Inputs) -> dict[str, Any]:
        """Returns the arguments of a call, labels among them where the model has a loss."""
        import torch  # pyright: ignore[reportMissingImports]

        tokens = torch.from_numpy(inputs.tokens).long()
        given: dict[str, Any] = {"return_dict": True, "use_cache": False}
        known = inspect.signature(self._model.forward).parameters
        valid = None if inputs.valid is None else torch.from_numpy(inputs.valid).long()
        if self.spec.has_encoder:
            given |= {"input_ids": torch.from_numpy(inputs.source).long()}
            given |= {"decoder_input_ids": tokens, "decoder_attention_mask": valid}
            if inputs.source_valid is not None:
                given["attention_mask"] = torch.from_numpy(inputs.source_valid).long()
        else:
            given |= {"input_ids": tokens, "attention_mask": valid}
            if valid is not None and "position_ids" in known:
                given["position_ids"] = (valid.cumsum(1) - 1).clamp(min=0)
        if "labels" in known and isinstance(self.spec.head, TokenHead):
            given["labels"] = _labels(self.spec, inputs)
        given["output_attentions"] = True
        return {name: x for name, x in given.items() if x is not None and (
            name in known or name in ("output_attentions", "return_dict"))}  # fmt: skip

    def _modules(self) -> dict[str, Any]:
        return dict(self._model.named_modules())

    def _named(self, theirs: str) -> str:
        """Returns the name that a module has in this model, which may lack the prefix."""
        modules = self._modules()
        if theirs in modules or not theirs.startswith(self._prefix):
            return theirs
        return theirs.removeprefix(self._prefix)

    def _attentions(self) -> dict[str, str]:
        """Returns the place of each of their modules of attention."""
        found: dict[str, str] = {}
        for rule in self._rules:
            attention, _, leaf = rule.ours[0].removesuffix("/kernel").rpartition("/")
            if leaf == "query" and rule.ours[0].endswith("/kernel"):
                module = self._named(rule.theirs.rpartition(".")[0])
                found[module.rpartition(".")[0]] = attention
        return found

    def _ends(self, out: Any, values: dict[str, Any]) -> dict[str, Any]:
        """Returns logits, loss, and weights that no attention function has noted."""
        found: dict[str, Any] = {}
        for name in ("logits", "loss"):
            if out.get(name) is not None:
                found[name] = to_array(out[name])
        kinds = {"attentions": ("", "attention"), "encoder_attentions": ("encoder/", "attention"),
                 "decoder_attentions": ("decoder/", "attention"),
                 "cross_attentions": ("decoder/", "cross_attention")}  # fmt: skip
        for key, (stack, attention) in kinds.items():
            for layer, weights in enumerate(out.get(key) or ()):
                name = f"{stack}layer_{layer}/{attention}/weights"
                if weights is not None and name not in values:
                    found[name] = to_array(weights)
        return found

    def _shaped(self, name: str, x: np.ndarray, rows: tuple[int, ...]) -> np.ndarray:
        """Gives values the axes that they have here, such as `B T N H` to normed queries."""
        if x.ndim == 2 and len(x) == rows[0] * rows[1]:
            # Some join rows and tokens before they feed forward (OPT).
            return x.reshape(*rows, -1)
        if not name.endswith("_normed"):
            return x
        heads = self.spec.heads if name.endswith("query_normed") else self.spec.K
        if x.ndim == 3:
            return x.reshape(*x.shape[:2], heads, -1)
        return np.swapaxes(x, 1, 2) if x.shape[1] == heads and x.shape[2] != heads else x

    def _repeated(self, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns places that are the same as another one."""
        found: dict[str, np.ndarray] = {}
        for name, value in values.items():
            if name.endswith("/stream") and name.count("/stream") == 1:
                layer = name.removesuffix("/stream")
                last = f"{layer}/ffn/stream"
                if layer.rpartition("/")[2].startswith("layer_"):
                    if self.spec.sublayers == "sequential" and last not in values:
                        found[last] = value
        return found

    def _with_gradients(
        self, trace: Trace, out: Any, noted: dict[str, Any], places: list[Capture]
    ) -> Trace:
        """Adds the gradients of the model's own loss."""
        if out.get("loss") is None:
            raise SpecError(
                self.name, "has no loss, so that it has no gradients; leave --gradients out."
            )
        out.logits.retain_grad()
        out.loss.backward()
        alone = {one.place for one in places if one.has_gradient}
        found = {"logits": to_array(out.logits.grad)}
        for name, (_, source) in noted.items():
            if name in alone and source is not None and source[0].grad is not None:
                gradient = source[1](to_array(source[0].grad))
                found[name] = self._shaped(name, gradient, trace.values["logits"].shape[:2])
        of_parameters: dict[str, np.ndarray] = {}
        named = dict(self._model.named_parameters())
        for rule in self._rules:
            names = [self._parameter(name, named) for name in (rule.theirs, *rule.copies)]
            gradient = next((named[n].grad for n in names if n and named[n].grad is not None), None)
            if gradient is not None:
                shapes = [self._shapes[path] for path in rule.ours]
                parts = rule.layout.read(to_array(gradient), shapes)
                of_parameters |= dict(zip(rule.ours, parts, strict=True))
        self._model.zero_grad()
        return trace._replace(gradients=found, parameter_gradients=of_parameters)

    def _parameter(self, theirs: str, named: dict[str, Any]) -> str | None:
        for name in (theirs, theirs.removeprefix(self._prefix)):
            if name in named:
                return name
        return None


def foreign(name: str, directory: Path) -> Foreign:
    """Reads a Hugging Face directory as one side; needs torch and transformers.

    Args:
        name: What the user called it.
        directory: Holds config.json and the weights.

    Raises:
        SpecError: If it cannot be read as a model of ours.
    """
    return Foreign(name, directory)


def _from_pretrained(directory: Path, config: dict[str, Any], usual: str) -> Any:
    """Makes the model of a directory, in evaluation, with attention that forms its weights."""
    import torch  # pyright: ignore[reportMissingImports]
    import transformers  # pyright: ignore[reportMissingImports]

    architecture = (config.get("architectures") or [usual])[0]
    cls = getattr(transformers, architecture)
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model = cls.from_pretrained(
            directory, attn_implementation="eager", dtype=torch.float32, local_files_only=True
        )
    finally:
        transformers.logging.set_verbosity(verbosity)
        transformers.logging.enable_progress_bar()
    return model.eval()


def _labels(spec: ModelSpec, inputs: Inputs) -> Any:
    """Returns labels as their losses take them: a decoder's are the tokens, shifted by the loss."""
    import torch  # pyright: ignore[reportMissingImports]

    labels = torch.from_numpy(inputs.tokens).long().clone()
    if inputs.valid is not None:
        labels[~torch.from_numpy(inputs.valid)] = -100
        if not isinstance(spec.stack, Encoder) and not spec.has_encoder:
            # The first real token is predicted from padding, which counts for nothing.
            before = torch.from_numpy(~inputs.valid)
            labels[:, 1:][before[:, :-1]] = -100
    if spec.has_encoder:
        # Their losses of two stacks shift nothing: what is read is given besides.
        labels = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], -100)], 1)
    return labels
