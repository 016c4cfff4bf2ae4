"""Writes the page of a made-up sweep, for the tests of what it says and of how it looks."""

import html.parser

from sweep_fixture import write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import style
from jtransformer.report.contents import contents, find_all
from jtransformer.report.page import page


class Elements(html.parser.HTMLParser):
    """Collects every element's name and attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def page_of_record(record, reload_seconds=None):
    """Returns the page of a record as text."""
    return page(record, contents(find_all(record), style.PAGE), reload_seconds)


def page_of(workdir, losses, **manifest):
    """Writes a work directory and returns its page as text."""
    return page_of_record(load_sweep(write_sweep(workdir, losses, **manifest)))


def figures_of(record, theme):
    """Lists the figures of a record, in the order of the page."""
    return [figure for section in contents(find_all(record), theme).all()
            for figure in section.figures]  # fmt: skip


def cells(table):
    """Returns the cells of a table by its headings."""
    return {column.heading: column.cells for column in table.columns}


def all_text(found):
    """Returns every word of a section, its figures' left out."""
    tables = [cell for table in found.tables for column in table.columns for cell in column.cells]
    return " ".join([*found.paragraphs, *tables])
