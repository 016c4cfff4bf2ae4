"""Generation in one call, for those who need no `Generator` of their own."""

from typing import Any

from jaxtyping import PRNGKeyArray
from numpy.typing import ArrayLike

from jtransformer.generation.generator import Generated, Generator
from jtransformer.generation.settings import GREEDY, Sampling
from jtransformer.spec import ModelSpec


def generate(
    model: ModelSpec,
    variables: Any,
    prompt: ArrayLike,
    *,
    limit: int,
    sampling: Sampling = GREEDY,
    eos: int | tuple[int, ...] | None = None,
    never: tuple[int, ...] = (),
    pad: int = 0,
    logits: bool = False,
    valid: ArrayLike | None = None,
    source: ArrayLike | None = None,
    source_valid: ArrayLike | None = None,
    key: PRNGKeyArray | None = None,
    rows: ArrayLike | None = None,
) -> Generated:
    """Continues a batch of prompts.

    What it compiles is kept for further calls with the same settings and shapes.

    Args:
        model: The model.
        variables: Its parameters.
        prompt: Token ids [B, T], at least one per row; see `Generator.__call__` for it and for
            `valid`, `source`, `source_valid`, `key` and `rows`.
        limit: Most tokens that are added to a row.
        sampling: How each is chosen.
        eos: The token that ends a row, or several of which each does; None is none.
        never: Tokens that are not chosen.
        pad: What a row is filled with behind its end.
        logits: Whether the logits of every step are returned.
        valid: False at the padding of the prompt; None is no padding.
        source: Token ids [B, S] for the encoder.
        source_valid: False at the padding of the source; None is no padding.
        key: Random key; not needed at temperature 0.
        rows: A number for every row, which its draws depend on; None is 0, 1, 2 …

    Raises:
        ValueError: If the model cannot continue the prompt, the key is missing, or the model's
            logits are no numbers.
    """
    generator = Generator(
        model=model,
        limit=limit,
        sampling=sampling,
        eos=eos,
        never=never,
        pad=pad,
        logits=logits,
    )
    return generator(
        variables,
        prompt,
        valid=valid,
        source=source,
        source_valid=source_valid,
        key=key,
        rows=rows,
    )
