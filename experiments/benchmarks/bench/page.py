"""The page and the summary of the suite, written from its journal alone."""

import pathlib
from collections.abc import Mapping
from typing import Any

from jtransformer.records import write_text
from jtransformer.report import style
from jtransformer.report.markup import markdown_section, markdown_table
from jtransformer.report.page import bundle, environment, ready
from jtransformer.report.section import Table
from jtransformer.report.summary import Column
from jtransformer.report.write import write_files

from .bench import lacking
from .journal import ABOUT, Journal
from .peers import PEERS
from .sizes import Size
from .tables import sections

TITLE = "How fast is a training step, and how does its cost grow?"
TEMPLATE = """\
{% extends "page.html.j2" %}
{% block title %}{{ title }}{% endblock %}
{% block main %}
<header>
<p class="eyebrow">Benchmark · {{ peers }} peers · {{ rounds }} rounds</p>
<h1>{{ title }}</h1>
{% if missing %}<p class="unequal">{{ missing }}</p>{% endif %}
</header>
{% for section in sections %}
<section id="{{ section.id }}">
<h2>{{ section.title }}</h2>
{% for paragraph in section.paragraphs %}
<p>{{ paragraph }}</p>
{% endfor %}
{% for content in section.tables %}
{{ table(content) }}
{% endfor %}
{% if section.figures %}
<div class="figures">
{% for figure in section.figures %}
{{ picture(figure, section.id ~ "-figure-" ~ loop.index, "h3") }}
{% endfor %}
</div>
{% endif %}
</section>
{% endfor %}
<section>
<h2>Environment</h2>
<dl>
{% for name, value in environment.items() %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
<p>Made by:</p>
<pre>{{ command }}</pre>
<p class="soft">Every measurement: <a href="{{ journal }}">{{ journal }}</a>; this page as text:
<a href="results.md">results.md</a>.</p>
</section>
{% endblock %}
"""


def write(
    folder: pathlib.Path, journal: Journal, sizes: Mapping[str, Size], command: str, name: str
) -> pathlib.Path:
    """Writes `index.html`, `results.md`, and the files behind tables and figures.

    Args:
        folder: Where; that of the journal.
        journal: All that was measured.
        sizes: What the labels of the training step mean.
        command: What made it.
        name: Of the journal's file.

    Returns:
        The page.
    """
    facts, missing = _facts(journal), _missing(journal)
    write_files(folder, sections(journal, sizes, style.PAPER))
    shown = sections(journal, sizes, style.PAGE)
    text = environment().from_string(TEMPLATE).render(
        title=TITLE,
        reload_seconds=None,
        peers=len({line["peer"] for line in journal.of("peer")} - set(missing)),
        rounds=_rounds(journal),
        missing=_sentence(lacking(missing)),
        sections=[ready(section, "all") for section in shown],
        bundle=bundle(),
        environment=facts,
        command=command,
        journal=name,
    )  # fmt: skip
    write_text(folder / "index.html", text)
    write_text(folder / "results.md", _markdown(shown, facts, lacking(missing), command))
    return folder / "index.html"


def _markdown(shown: list[Any], facts: dict[str, str], missing: str, command: str) -> str:
    columns = [Column("what", list(facts)), Column("value", list(facts.values()))]
    table = markdown_table(Table("environment", "", columns, ("what", "value")))
    parts = [f"# {TITLE}", f"    {command}", *filter(None, [_sentence(missing)])]
    return "\n\n".join([*parts, *map(markdown_section, shown), "## Environment", table]) + "\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _missing(journal: Journal) -> dict[str, list[str]]:
    """Returns what each peer lacked when it was last asked for."""
    last = {line["peer"]: line["missing"] for line in journal.of("peer")}
    return {peer: lacks for peer, lacks in last.items() if lacks}


def _rounds(journal: Journal) -> int:
    return 1 + max((line.get("round", 0) for kind in ("step", "curve", "compile")
                    for line in journal.of(kind)), default=0)  # fmt: skip


def _facts(journal: Journal) -> dict[str, str]:
    (about,) = journal.of(ABOUT)
    facts = {name: str(value) for name, value in about.items() if name != "kind"}
    threads = {PEERS[line["peer"]].title: line["threads"] for line in journal.of("peer")}
    facts["threads"] = ", ".join(f"{n} of {peer}" for peer, n in threads.items() if n)
    versions: dict[str, str] = {}
    for line in journal.of("peer"):
        versions |= {f"{name}, in {PEERS[line['peer']].title}": found
                     for name, found in line["versions"].items()
                     if not line["missing"]}  # fmt: skip
    facts |= _shared(versions)
    for line in journal.of("moment"):
        facts["commit"] = line["commit"]
        facts[f"load {line['when']}"] = f"{line['load']} at {line['time']}"
    return facts


def _shared(versions: dict[str, str]) -> dict[str, str]:
    """Names a package once where all peers that have it have one release."""
    releases: dict[str, dict[str, str]] = {}
    for key, found in versions.items():
        releases.setdefault(key.partition(",")[0], {})[key] = found
    facts: dict[str, str] = {}
    for package, by_peer in releases.items():
        one = set(by_peer.values())
        facts |= {package: one.pop()} if len(one) == 1 else by_peer
    return facts
