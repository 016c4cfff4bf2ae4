"""A strict reader of a foreign config.json: every field is used, known not to matter, or refused.

A field that is skipped is how weights load, shapes match and logits differ. So whoever reads a
config names each field, and at the end what nobody named is an error.
"""

import numbers
from collections.abc import Mapping
from typing import Any, TypeVar

from jtransformer.spec import SpecError

MISSING: Any = object()
T = TypeVar("T")

TRAINING, SHOWN, GENERATION = (
    "acts in training alone",
    "is shown, not computed",
    "steers generation",
)
IRRELEVANT: Mapping[str, str] = {
    "model_type": "chose the family",
    "architectures": "chose the family",
    "transformers_version": SHOWN,
    "_name_or_path": SHOWN,
    "name_or_path": SHOWN,
    "_commit_hash": SHOWN,
    "dtype": "the stored tensors say their own type",
    "torch_dtype": "the stored tensors say their own type",
    "use_bfloat16": "the stored tensors say their own type",
    "_attn_implementation": "chooses a kernel",
    "attn_implementation": "chooses a kernel",
    "_attn_implementation_autoset": "chooses a kernel",
    "torchscript": "chooses how it is compiled",
    "chunk_size_feed_forward": "computes the same in pieces",
    "use_cache": "computes the same",
    "return_dict": "chooses a form of the answer",
    "output_hidden_states": "chooses a form of the answer",
    "output_attentions": "chooses a form of the answer",
    "tie_last_hidden_states": "chooses a form of the answer",
    "initializer_range": "initial values are not stored ones",
    "gradient_checkpointing": TRAINING,
    "problem_type": TRAINING,
    "id2label": "names classes",
    "label2id": "names classes",
    "num_labels": "names classes",
    "finetuning_task": SHOWN,
    "task_specific_params": GENERATION,
    "tokenizer_class": "the tokenizer's files say it",
    "prefix": GENERATION,
    "bos_token_id": GENERATION,
    "eos_token_id": GENERATION,
    "pad_token_id": GENERATION,
    "sep_token_id": GENERATION,
    "decoder_start_token_id": GENERATION,
    "forced_bos_token_id": GENERATION,
    "forced_eos_token_id": GENERATION,
    "bad_words_ids": GENERATION,
    "suppress_tokens": GENERATION,
    "begin_suppress_tokens": GENERATION,
    "max_length": GENERATION,
    "min_length": GENERATION,
    "do_sample": GENERATION,
    "early_stopping": GENERATION,
    "num_beams": GENERATION,
    "num_beam_groups": GENERATION,
    "diversity_penalty": GENERATION,
    "temperature": GENERATION,
    "top_k": GENERATION,
    "top_p": GENERATION,
    "typical_p": GENERATION,
    "repetition_penalty": GENERATION,
    "length_penalty": GENERATION,
    "no_repeat_ngram_size": GENERATION,
    "encoder_no_repeat_ngram_size": GENERATION,
    "num_return_sequences": GENERATION,
    "output_scores": GENERATION,
    "return_dict_in_generate": GENERATION,
    "exponential_decay_length_penalty": GENERATION,
    "remove_invalid_values": GENERATION,
}
"""Fields of any family that do not change what is computed, and why."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "pruned_heads": (None, {}),
    "per_layer_config": (None, {}),
    "quantization_config": (None,),
    "auto_map": (None, {}),
    "cross_attention_hidden_size": (None,),
    "tie_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
}
"""Fields of any family that may hold these values alone, unless the family reads them itself."""


class ConfigReader:
    """The fields of a config.json; each that is read is ticked off.

    Attributes:
        where: What the errors call it.
        stored: Names of the tensors that come with it, for what a config leaves open.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        where: str,
        *,
        stored: frozenset[str] = frozenset(),
        aliases: Mapping[str, str] | None = None,
    ):
        """Makes a reader.

        Args:
            fields: The fields; those that are left out have the defaults of whoever reads them.
            where: What the errors call them, such as "config.json".
            stored: Names of the tensors that come with them.
            aliases: Other names of fields, which may stand in the place of their own.

        Raises:
            SpecError: If a field has two names with two values.
        """
        self.where, self.stored = where, stored
        self._fields = dict(fields)
        self._unread = set(fields)
        for other, name in (aliases or {}).items():
            if other not in self._fields:
                continue
            value = self._fields.pop(other)
            self._unread.discard(other)
            if self._fields.setdefault(name, value) != value:
                raise self.refusal(
                    name, f"and {other}={value!r} are one field with two values; keep one of them"
                )
            self._unread.add(name)

    @property
    def architecture(self) -> str | None:
        """The class that the config names; None where it names none."""
        names = self._fields.get("architectures")
        return names[0] if isinstance(names, list) and names else None

    def refusal(self, name: str, problem: str) -> SpecError:
        """Returns the error of a field: its name, value and problem."""
        shown = f"= {self._fields[name]!r} " if name in self._fields else ""
        return SpecError(name, f"{shown}in {self.where} {problem}.")

    def has(self, name: str) -> bool:
        """Says whether a field is there and not null."""
        return self._fields.get(name) is not None

    def raw(self, name: str, default: Any = MISSING) -> Any:
        """Returns a field as it is.

        Args:
            name: The field.
            default: Its value where it is left out.

        Raises:
            SpecError: If it is left out and has no default.
        """
        self._unread.discard(name)
        if name in self._fields:
            return self._fields[name]
        if default is MISSING:
            raise SpecError(name, f"is missing in {self.where}; add it.")
        return default

    def integer(self, name: str, default: Any = MISSING, *, null: Any = MISSING) -> Any:
        """Returns an integer.

        Args:
            name: The field.
            default: Where it is left out; it may be None. Without one it must be there.
            null: What null stands for; without it the default.
        """
        return self._typed(name, default, null, numbers.Integral, "an integer")

    def number(self, name: str, default: Any = MISSING, *, null: Any = MISSING) -> Any:
        """Returns a number; the arguments are those of `integer`."""
        found = self._typed(name, default, null, numbers.Real, "a number")
        return found if found is None else float(found)

    def flag(self, name: str, default: Any = MISSING) -> bool:
        """Returns true or false."""
        return self._typed(name, default, MISSING, bool, "true or false")

    def _typed(self, name: str, default: Any, null: Any, kind: type, words: str) -> Any:
        value = self.raw(name, default)
        if value is None:
            value = default if null is MISSING else null
            if value is None:
                return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.refusal(name, f"must be {words}")
        return value

    def choice(self, name: str, table: Mapping[Any, T], default: Any = MISSING) -> T:
        """Returns what a word of theirs is here.

        Raises:
            SpecError: If the table does not have it.
        """
        value = self.raw(name, default)
        if not isinstance(value, str | None) or value not in table:
            allowed = ", ".join(map(repr, table))
            raise self.refusal(name, f"is not supported; what can be read: {allowed}")
        return table[value]

    def only(self, name: str, *allowed: Any, default: Any = MISSING) -> None:
        """Refuses a field whose value is none of those that are supported.

        Args:
            name: The field.
            allowed: The values; the first is what it is where it is left out, without a default.
            default: Its value where it is left out.
        """
        value = self.raw(name, allowed[0] if default is MISSING else default)
        # True == 1: a flag is not a number.
        if not any(type(value) is type(one) and value == one for one in allowed):
            wanted = " or ".join(map(repr, allowed))
            raise self.refusal(name, f"is not supported; what can be read: {wanted}")

    def ignore(self, *names: str) -> None:
        """Ticks off fields that do not change what is computed; the caller says why."""
        self._unread.difference_update(names)

    def close(self) -> None:
        """Checks that every field was read.

        Raises:
            SpecError: With the fields that nobody knows, or with a value that is not supported.
        """
        for name, allowed in NEUTRAL.items():
            if name in self._unread:
                self.only(name, *allowed)
        self.ignore(*IRRELEVANT)
        if self._unread:
            names = ", ".join(f"{name}={self._fields[name]!r}" for name in sorted(self._unread))
            raise SpecError(
                "",
                f"{self.where} has fields that are not known here and might change what is "
                f"computed: {names}; remove those that do not.",
            )
