"""How numbers are written: units are in the headings, signs are explicit, nothing is padded.

Four decimals, but for what they would hide or drown: runs that differ by rounding alone, losses
that have run away.
"""

import math

from jtransformer.stats import Estimate, written

NOTHING = "—"
"""Stands where there is no figure."""
_DECIMALS = 4
_MOST_DECIMALS = 15


def signed(text: str) -> str:
    """Writes a hyphen-minus as a true minus sign."""
    return text.replace("-", "−")


def nll(value: float | None) -> str:
    """Writes a loss, or another figure without a sign."""
    return NOTHING if value is None else written(value)


def difference(value: float | None, decimals: int = _DECIMALS) -> str:
    """Writes a difference with its sign, by default to four decimals."""
    if value is None:
        return NOTHING
    # "z" turns a minus zero into zero.
    form = f"+z.{decimals}f" if abs(value) < 1e7 else "+.4g"
    return signed(f"{value:{form}}")


def nll_with_interval(estimate: Estimate | None) -> str:
    """Writes a loss and the half-width of its interval, where it has one."""
    if estimate is None or estimate.half_width is None:
        return nll(None if estimate is None else estimate.value)
    decimals = _decimals(estimate.half_width)
    value, half = (
        f"{x:.{decimals}f}" if abs(x) < 1e7 else written(x)
        for x in (estimate.value, estimate.half_width)
    )
    return f"{value} ± {half}"


def difference_with_interval(estimate: Estimate | None) -> str:
    """Writes a difference and the half-width of its interval, where it has one."""
    if estimate is None or estimate.half_width is None:
        return difference(None if estimate is None else estimate.value)
    decimals, half = _decimals(estimate.half_width), estimate.half_width
    text = f"{half:.{decimals}f}" if half < 1e7 else written(half)
    return f"{difference(estimate.value, decimals)} ± {text}"


def interval(ends: tuple[float, float] | None) -> str:
    """Writes both ends of an interval of differences."""
    if ends is None:
        return NOTHING
    decimals = _decimals((ends[1] - ends[0]) / 2)
    return f"{difference(ends[0], decimals)} to {difference(ends[1], decimals)}"


def _decimals(half: float) -> int:
    """Returns four, or how many show two digits of half an interval that four would hide."""
    if not 0 < half < 5e-5:
        return _DECIMALS
    return min(1 - math.floor(math.log10(half)), _MOST_DECIMALS)


def p_value(p: float | None) -> str:
    """Writes a p value to three significant digits."""
    if p == 0:
        return "under 1e-300"
    return NOTHING if p is None else f"{p:#.3g}"


def count(value: int) -> str:
    """Writes a count with its thousands parted."""
    return f"{value:,}"


def percent(fraction: float) -> str:
    """Writes a signed fraction in percent."""
    return signed(f"{100 * fraction:+z.2f} %")


def setting(value: object) -> str:
    """Writes a value of a factor as briefly as it can be read back."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def words(path: str) -> str:
    """Names a setting by the last part of its path, as in a sentence."""
    return path.rsplit(".", 1)[-1].replace("_", " ")


def names(items: list[str]) -> str:
    """Joins names as in a sentence."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
