"""Text from tokens that are still coming."""

from collections.abc import Callable, Sequence

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""What a decoder gives for bytes that are no character, or not one yet."""


class TextStream:
    """Turns tokens into text piece by piece; the pieces joined are the text of all tokens.

    A character whose bytes have not all come is held back. Tokens are decoded together with
    those before them, since a piece of a word may begin with a space or not.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], before: Sequence[int] = ()):
        """Begins.

        Args:
            decode: Turns token ids into text.
            before: Tokens whose text is there already, such as the prompt.
        """
        self._decode = decode
        self._tokens = list(before)
        self._told = len(decode(self._tokens))

    def add(self, tokens: Sequence[int]) -> str:
        """Returns the text that is complete with these tokens and was not returned before."""
        self._tokens += [int(token) for token in tokens]
        text = self._decode(self._tokens)
        # One at most: what stands before the last one no longer waits for bytes.
        return self._new(text.removesuffix(INCOMPLETE))

    def end(self) -> str:
        """Returns what was held back."""
        return self._new(self._decode(self._tokens))

    def _new(self, text: str) -> str:
        new = text[self._told :]
        self._told = max(self._told, len(text))
        return new
