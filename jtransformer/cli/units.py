"""Large numbers with a unit, in four digits."""


def as_flop(number: float) -> str:
    """Writes a number of operations."""
    for unit in ("", "k", "M", "G", "T"):
        if number < 1000:
            return f"{number:.4g} {unit}FLOP"
        number /= 1000
    return f"{number:.4g} PFLOP"


def as_bytes(number: float) -> str:
    """Writes a number of bytes."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} TiB"


def as_time(seconds: float) -> str:
    """Writes a time."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e6:.4g} µs"
