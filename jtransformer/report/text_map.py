"""A matrix of shares as text, for a terminal, a log or a page without pictures."""

from collections.abc import Sequence

SHADES = " ░▒▓█"
"""What stands for a share: each a fifth of the way from 0 to 1."""
LEGEND = "  ".join(f"{shade} from {n / len(SHADES):g}" for n, shade in enumerate(SHADES) if n)


def text_map(
    weights: Sequence[Sequence[float]], *, rows: Sequence[object], columns: Sequence[object]
) -> str:
    """Draws shares, such as attention weights, as blocks of five shades.

    Args:
        weights: From 0 to 1, a sequence for each row; up to rounding, that of bfloat16 included.
        rows: What stands before each row, such as the token that asks.
        columns: What stands above each column, such as the token that is read; all columns are as
            wide as the longest of these.

    Returns:
        Lines: the columns, a line for each row, the legend.

    Raises:
        ValueError: If there are not as many weights as rows and columns, or one is no share.
    """
    names, above = [str(row) for row in rows], [str(column) for column in columns]
    if len(weights) != len(names) or any(len(row) != len(above) for row in weights):
        lengths = sorted({len(row) for row in weights})
        raise ValueError(
            f"weights must have {len(names)} rows of {len(above)}, as rows and columns say, got "
            f"{len(weights)} rows of {lengths}; name each row and each column once."
        )
    before = max(map(len, names), default=0)
    width = max([2, *map(len, above)])
    lines = [" " * before + "".join(f" {name:>{width}}" for name in above)]
    for name, row in zip(names, weights, strict=True):
        lines.append(f"{name:>{before}}" + "".join(f" {_shade(weight) * width}" for weight in row))
    return "\n".join(line.rstrip() for line in [*lines, LEGEND])


def _shade(weight: float) -> str:
    share = float(weight)
    # Rows of bfloat16 add up to 1 within 2^-8.
    if not -0.01 <= share <= 1.01:
        raise ValueError(
            f"weights must be shares from 0 to 1, got {share:g}; divide each row by its sum."
        )
    return SHADES[min(max(int(len(SHADES) * share), 0), len(SHADES) - 1)]
