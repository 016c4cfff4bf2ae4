"""Drawing fewer points than there are, so that long runs do not make a slow page.

Each line is cut into stretches of equally many points, and of each the lowest and the highest stay:
a spike of one point is still seen, which every k-th point would lose. First and last points stay.
The data behind a figure are never thinned.
"""

from typing import Any

import pandas

MOST_POINTS = 6000
"""How many points of a figure are drawn, about; more cannot be told apart on a screen."""
FEWEST_POINTS = 24
"""How many points every line keeps, however many lines there are."""


def thin(table: pandas.DataFrame, *, by: list[str], y: str) -> pandas.DataFrame:
    """Keeps the first, the last, the lowest and the highest points of every line.

    Args:
        table: One row per point, each line in the order in which it is drawn; no index twice.
        by: Columns that tell the lines apart.
        y: The column that is drawn; without missing values.

    Returns:
        Rows of `table`, in its order; all of them where they are few.
    """
    if len(table) <= MOST_POINTS:
        return table
    lines: Any = table.groupby(by, sort=False)
    most = max(FEWEST_POINTS, MOST_POINTS // lines.ngroups)
    size = lines[y].transform("size")
    stretch = (lines.cumcount() * (most // 2)) // size
    parts: Any = table.groupby([*(table[name] for name in by), stretch], sort=False)[y]
    short = table.index[size <= most]
    kept = {*parts.idxmin(), *parts.idxmax(), *lines.head(1).index, *lines.tail(1).index, *short}
    return table.loc[table.index.isin(kept)]


def said(drawn: pandas.DataFrame, table: pandas.DataFrame) -> str:
    """Declares in a caption what was left out; nothing where all is drawn."""
    if len(drawn) == len(table):
        return ""
    return (
        f"Drawn are {len(drawn):,} of {len(table):,} points: of each stretch of a line the lowest "
        "and the highest; the data hold all. "
    )
