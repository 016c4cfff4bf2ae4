"""How numbers are written: units are in the headings, signs are explicit, nothing is padded."""

from jtransformer.stats import Estimate

NOTHING = "—"
"""Stands where there is no figure."""


def signed(text: str) -> str:
    """Writes a hyphen-minus as a true minus sign."""
    return text.replace("-", "−")


def nll(value: float | None) -> str:
    """Writes a loss to four decimals."""
    return NOTHING if value is None else f"{value:.4f}"


def difference(value: float | None) -> str:
    """Writes a difference to four decimals with its sign."""
    # "z" turns a minus zero into zero.
    return NOTHING if value is None else signed(f"{value:+z.4f}")


def nll_with_interval(estimate: Estimate | None) -> str:
    """Writes a loss and the half-width of its interval, where it has one."""
    return _with_interval(estimate, nll)


def difference_with_interval(estimate: Estimate | None) -> str:
    """Writes a difference and the half-width of its interval, where it has one."""
    return _with_interval(estimate, difference)


def interval(ends: tuple[float, float] | None) -> str:
    """Writes both ends of an interval of differences."""
    return NOTHING if ends is None else f"{difference(ends[0])} to {difference(ends[1])}"


def p_value(p: float | None) -> str:
    """Writes a p value to three significant digits."""
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


def names(items: list[str]) -> str:
    """Joins names as in a sentence."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def _with_interval(estimate: Estimate | None, write) -> str:
    if estimate is None:
        return NOTHING
    half = estimate.half_width
    return write(estimate.value) + ("" if half is None else f" ± {half:.4f}")
