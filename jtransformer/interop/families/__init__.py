"""The families, each in a file of its own; a new one is a file and a line here."""

from jtransformer.interop.families.bart import BART
from jtransformer.interop.families.bert import BERT
from jtransformer.interop.families.bloom import BLOOM
from jtransformer.interop.families.falcon import FALCON
from jtransformer.interop.families.gemma import GEMMA, GEMMA2
from jtransformer.interop.families.gpt2 import GPT2
from jtransformer.interop.families.gpt_neox import GPT_NEOX
from jtransformer.interop.families.gptj import GPTJ
from jtransformer.interop.families.llama import LLAMA
from jtransformer.interop.families.marian import MARIAN
from jtransformer.interop.families.mistral import MISTRAL
from jtransformer.interop.families.modernbert import MODERNBERT
from jtransformer.interop.families.olmo2 import OLMO2
from jtransformer.interop.families.opt import OPT
from jtransformer.interop.families.phi import PHI
from jtransformer.interop.families.qwen import QWEN2, QWEN3
from jtransformer.interop.families.roberta import ROBERTA
from jtransformer.interop.families.t5 import MT5, T5
from jtransformer.interop.family import Family
from jtransformer.spec import SpecError, nearest

FAMILIES: tuple[Family, ...] = (
    GPT2,
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    GEMMA,
    GEMMA2,
    GPT_NEOX,
    GPTJ,
    PHI,
    OPT,
    BLOOM,
    FALCON,
    OLMO2,
    BERT,
    ROBERTA,
    MODERNBERT,
    T5,
    MT5,
    BART,
    MARIAN,
)
"""Where a spec fits several, the first of them is written."""


def family_named(name: str) -> Family:
    """Returns a family by its name.

    Raises:
        SpecError: If there is none.
    """
    named = {family.name: family for family in FAMILIES}
    if name not in named:
        raise SpecError("family", f"= {name!r} is not known; {nearest(name, named)}.")
    return named[name]


__all__ = ["FAMILIES", "family_named"]
