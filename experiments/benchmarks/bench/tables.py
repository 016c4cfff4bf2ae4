"""What was measured as sections: sentences, tables and figures."""

from collections.abc import Mapping

from jtransformer.report.section import Section, Table
from jtransformer.report.style import Theme
from jtransformer.report.summary import Column

from . import figures
from .aims import Aim, aims, ratio
from .curves import AXES, size_at
from .curves import BASE as CURVE_BASE
from .journal import Journal
from .memory import BASE as MEMORY_BASE
from .peers import PEERS
from .rounds import ratios, slope, spread
from .sizes import Size
from .specs import update_flops

NOTHING = "—"
MIB = 2**20
BUSY = 0.5
"""Load of a machine, before the suite, from which on other programs disturb it."""


def sections(journal: Journal, sizes: Mapping[str, Size], theme: Theme) -> list[Section]:
    """Returns what there is to show; what was not measured has no section."""
    measured = {label: size for label, size in sizes.items() if journal.of("step", size=label)}
    found = [_aims(aims(journal), busy(journal))]
    if measured:
        found.append(_training(journal, measured, theme))
    if journal.of("curve"):
        found.append(_curves(journal, theme))
    if journal.of("compile"):
        found.append(_compiling(journal, theme))
    if journal.of("memory"):
        found.append(_memory(journal, theme))
    return found


def busy(journal: Journal) -> list[str]:
    """Says that other programs computed when the suite was started; nothing where none did."""
    loads = [line["load"] for line in journal.of("moment", when="before")]
    if max(loads, default=0.0) <= BUSY:
        return []
    return [
        f"The machine was not idle: its load was {max(loads):.1f} before anything was measured. "
        "PyTorch suffers most, whose threads wait for each other; measure again on a quiet machine."
    ]


def _aims(every: list[Aim], caveats: list[str]) -> Section:
    columns = [
        Column("aim", [aim.what for aim in every]),
        Column("bound", [f"{'≥' if aim.at_least else '≤'} {aim.bound}" for aim in every]),
        Column("found", [NOTHING if a.found is None else a.found.text(".2f") for a in every]),
        Column("verdict", [aim.verdict for aim in every]),
    ]
    caption = "Medians over the rounds, with quartiles."
    marks = [[False] * 3 + [aim.verdict == "missed"] for aim in every]
    table = Table("aims", caption, columns, ("aim", "verdict"), marks)
    return Section("aims", "What was to be reached", caveats, [table], [])


def _training(journal: Journal, sizes: Mapping[str, Size], theme: Theme) -> Section:
    paragraphs = [
        "One update: forward and backward pass, clipping, AdamW; float32, without dropout, the "
        "same rows for all. Ratios are taken round by round: above 1, the step here is faster. "
        "The share of the peak is what the matrix products need (hidden scores among them) over "
        "the time and over the speed of one large product, measured in the same round in JAX or in "
        "PyTorch. Losses are those of the first updates, on one batch.",
        *[f"{label}: {_words(size)}." for label, size in sizes.items()],
    ]
    return Section(
        name="training",
        title="The training step beside others",
        paragraphs=paragraphs,
        tables=[_step_table(journal, label, size) for label, size in sizes.items()],
        figures=[figures.ratios(journal, list(sizes), theme)],
    )


def _words(size: Size) -> str:
    return (
        f"{size.L} layers, D={size.D}, {size.N} heads, F={size.F}, T={size.T}, B={size.B}, "
        f"V={size.V}"
    )


def _step_table(journal: Journal, label: str, size: Size) -> Table:
    rows = []
    for name, peer in PEERS.items():
        seconds = journal.seconds("step", size=label, peer=name)
        if not seconds:
            continue
        prepared = journal.of("prepared", size=label, peer=name)[-1]
        found = ratio(journal, label, name)
        rows.append(
            [
                peer.title,
                spread([1e3 * s for s in seconds.values()]).text(".1f"),
                spread([size.tokens / s for s in seconds.values()]).text(",.0f"),
                NOTHING if found is None else found.text(".2f"),
                _share(journal, label, name, update_flops(size)),
                f"{prepared['parameters']:,}",
                f"{prepared['losses'][0]:.2f} → {prepared['losses'][-1]:.2f}",
                f"{prepared['first_seconds']:.1f}",
            ]
        )
    headings = (
        *("peer", "ms", "tokens/s", "its time / time here", "of peak", "parameters"),
        *("loss", "s to first update"),
    )
    columns = [Column(h, list(c)) for h, c in zip(headings, zip(*rows, strict=True), strict=True)]
    return Table(f"step_{label}", f"Size {label}. Medians with quartiles.", columns, ("peer",))


def _share(journal: Journal, label: str, name: str, flops: float) -> str:
    library = "jax" if "jax" in PEERS[name].needs else "torch"
    peaks = {p["round"]: p["flops"] for p in journal.of("peak", size=label, library=library)}
    seconds = journal.seconds("step", size=label, peer=name)
    shares = [flops / s / peaks[r] for r, s in seconds.items() if r in peaks]
    return spread(shares).text(".0%") if shares else NOTHING


def _curves(journal: Journal, theme: Theme) -> Section:
    rows = []
    for axis, (title, _) in AXES.items():
        points = figures.curve(journal, axis)
        if len(points) < 2:
            continue
        values, medians = [p[0] for p in points], [p[1].median for p in points]
        flops = [update_flops(size_at(axis, value)) for value in values]
        rows.append(
            [
                title,
                ", ".join(map(str, values)),
                ", ".join(f"{1e3 * m:.1f}" for m in medians),
                f"{slope(values, medians):.2f}",
                f"{slope(values[-2:], medians[-2:]):.2f}",
                f"{slope(values, flops):.2f}",
            ]
        )
    headings = ("what grows", "values", "ms", "slope", "slope at the end", "slope of operations")
    columns = [Column(h, list(c)) for h, c in zip(headings, zip(*rows, strict=True), strict=True)]
    caption = (
        "Medians. A slope of 1 is a cost in proportion; that of the operations counts what the "
        "matrix products need."
    )
    return Section(
        name="curves",
        title="What a step costs as one size grows",
        paragraphs=[f"The update here; all else stays at {_words(CURVE_BASE)}."],
        tables=[Table("curves", caption, columns, ("what grows", "values", "ms"))],
        figures=[figures.curves(journal, axis, theme) for axis in AXES],
    )


def _compiling(journal: Journal, theme: Theme) -> Section:
    points = figures.compile_points(journal)
    columns = [
        Column("layers", [str(layers) for layers in points]),
        *[
            Column(f"{form}, s", [forms[form].text(".1f") if form in forms else NOTHING
                                  for forms in points.values()])
            for form in ("scan", "loop")
        ],
    ]  # fmt: skip
    caption = "Tracing, lowering and compiling the update, anew each time."
    growth = ratios(*(journal.seconds("compile", form="scan", layers=n) for n in (24, 2)))
    said = (
        f"Scanned, 24 layers take {spread(growth).text('.2f')} times as long as 2."
        if growth
        else ""
    )
    return Section(
        name="compile",
        title="How long it compiles as layers are added",
        paragraphs=[said] if said else [],
        tables=[Table("compile", caption, columns, ())],
        figures=[figures.compiling(journal, theme)],
    )


def _memory(journal: Journal, theme: Theme) -> Section:
    found = figures.memory_rows(journal)
    lengths = sorted({row["length"] for row in found})
    variants = list(dict.fromkeys(row["variant"] for row in found))
    held = {(row["variant"], row["length"]): row for row in found}
    columns = [Column("how", variants)]
    for length in lengths:
        cells = [held.get((variant, length)) for variant in variants]
        texts = [NOTHING if c is None else f"{c['temporaries'] / MIB:,.0f}" for c in cells]
        columns.append(Column(f"T = {length}", texts))
    ends = [[held[v, n]["temporaries"] for n in lengths if (v, n) in held] for v in variants]
    slopes = [f"{slope(lengths, e):.2f}" if len(e) == len(lengths) > 1 else NOTHING for e in ends]
    columns.append(Column("slope", slopes))
    arguments = max(row["arguments"] for row in found) / MIB
    return Section(
        name="memory",
        title="What an update holds as rows grow longer",
        paragraphs=[
            f"Layers are scanned; all else stays at {_words(MEMORY_BASE)}. Beside the temporaries "
            f"there are parameters, moments and the batch, at most {arguments:,.0f} MiB.",
        ],
        tables=[
            Table("memory", "Temporaries in MiB, as the compiler reserves them.", columns, ("how",))
        ],
        figures=[figures.memory(journal, theme)],
    )
