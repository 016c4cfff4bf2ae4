"""Generation: one prefill, then one compiled loop for the whole continuation."""

from jtransformer.generation.beams import Beams, beam_search
from jtransformer.generation.calls import generate
from jtransformer.generation.generator import Generated, Generator
from jtransformer.generation.settings import GREEDY, BeamSearch, Sampling
from jtransformer.generation.text import TextStream

__all__ = [
    "GREEDY",
    "BeamSearch",
    "Beams",
    "Generated",
    "Generator",
    "Sampling",
    "TextStream",
    "beam_search",
    "generate",
]
