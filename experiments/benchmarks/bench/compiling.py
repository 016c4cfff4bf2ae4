"""Measures how long the update takes to compile as layers are added, looped and scanned."""

from .bench import Bench
from .peers import OURS
from .sizes import Size

BASE = Size(L=2, D=128, N=4, F=512, T=128, B=8, V=512)
DEPTHS = (2, 6, 12, 24)
FORMS = ("scan", "loop")


def measure(bench: Bench, depths: tuple[int, ...] = DEPTHS, base: Size = BASE) -> None:
    """Compiles both forms anew at every depth; lines are "compile".

    The loop is compiled in the first round alone: at 24 layers it takes as long as all of the rest.
    """
    # What is traced and loaded once in a process is not a cost of the first depth.
    bench.ask(OURS, "compile", size=list(base._replace(L=1)), scan_layers=True)
    for form in FORMS:
        rounds = bench.plan.rounds if form == "scan" else 1
        each = [{"form": form, "layers": layers} for layers in depths]
        for round_ in bench.journal.rounds_left(rounds, "compile", each):
            for layers in depths:
                size = base._replace(L=layers)
                took = bench.ask(OURS, "compile", size=list(size), scan_layers=form == "scan")
                seconds = took["trace"] + took["compile"]
                bench.write(
                    "compile", form=form, layers=layers, round=round_, seconds=seconds, **took
                )  # fmt: skip
