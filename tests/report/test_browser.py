"""Tests of the page in headless Chromium: it is drawn in silence, and it does what it offers."""

import json
import re
import time

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from report_pages import page_of, page_of_record
from sweep_fixture import RATES, noisy_losses, scaled, write_sweep

from jtransformer.records import load_sweep

if CHROMIUM is None:
    pytest.skip(
        "chromium is not installed, so pages were not drawn (owner: maintainers, 2026-11-30)",
        allow_module_level=True,
    )

SCRIPT = "<script>alert(1)</script>"
ODD = "a \"quoted\"\n'name' & more"
EFFECTS = {"pre-gelu": 0.0, SCRIPT: -0.03, ODD: 0.03}
LOSSES = noisy_losses(EFFECTS)
LOSSES[ODD, RATES[2], 1] = "diverged"
DRAWN = "document.querySelectorAll('figure .plot.drawn svg').length === figures.length"
FIGURE = "document.querySelector('[id^=curves-1-figure-{}]')"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    workdir = write_sweep(folder, LOSSES)
    lengthen(workdir, 240)
    return written(folder)


def lengthen(workdir, rows):
    """Gives every run that has ended so many logged points, noisy as training is."""
    for metrics in workdir.rglob("metrics.jsonl"):
        last = json.loads(metrics.read_text().splitlines()[-1])
        lines = [
            last | {"step": step, "tokens": 512 * step, "validation_nll": None,
                    "train_nll": last["train_nll"] + 1.5 / step + 0.05 * (step * 7919 % 13) / 13}
            for step in range(1, rows + 1)
        ]  # fmt: skip
        kept = metrics.read_text()
        metrics.write_text("".join(json.dumps(line) + "\n" for line in lines) + kept)


def written(folder, losses=None, **manifest):
    """Writes the page of given losses, or of the records that a folder has."""
    text = (
        page_of_record(load_sweep(folder))
        if losses is None
        else page_of(folder, losses, **manifest)
    )
    path = folder / "index.html"
    path.write_text(text)
    return path


CASES = {
    "no run": dict.fromkeys(LOSSES, "pending"),
    "one run": dict.fromkeys(LOSSES, "pending") | dict(list(LOSSES.items())[:1]),
    "half": {key: loss if key[2] == 0 else "running" for key, loss in LOSSES.items()},
    "one seed": {key: loss for key, loss in LOSSES.items() if key[2] == 0},
    "all diverged": dict.fromkeys(LOSSES, "diverged"),
}
SAID = {
    "no run": "No run has finished yet",
    "one run": "Provisional",
    "half": "Provisional",
    "one seed": "one seed gives no interval",
    "all diverged": "diverge",
}


@pytest.mark.parametrize("case", CASES)
def test_every_figure_is_drawn_without_a_word(browser, tmp_path, case):
    browser.open(written(tmp_path, CASES[case]))
    if browser.value("document.querySelectorAll('figure').length"):
        browser.wait(DRAWN)
    assert browser.words() == []
    text = browser.value("document.body.innerText")
    assert not re.search(r"\b(nan|NaN|undefined|None|inf)\b", text)
    assert SCRIPT in text
    assert SAID[case] in text
    assert browser.value("document.querySelectorAll('b, i, img').length") == 0


def test_scales_are_drawn_without_a_word(browser, tmp_path):
    effects = {"small-pre": 0.0, "small-gate": -0.03, "<b>-pre": -0.5, "<b>-gate": -0.46}
    browser.open(written(tmp_path, noisy_losses(effects), **scaled(effects)), until=DRAWN)
    assert browser.words() == []
    menu = "document.querySelector('#curves-1-figure-1 [data-arms]')"
    browser.value(f"{menu}.selectedIndex = 2, {menu}.dispatchEvent(new Event('change'))")
    other = "document.querySelector('#curves-2-figure-1 [data-arms]').value"
    assert browser.value(f"{menu}.value") == "small-gate" and browser.value(other) == ""


def faint(browser, number=1):
    """How many lines of a figure of curves are dimmed, since another arm is singled out."""
    lines = f"[...{FIGURE.format(number)}.querySelectorAll('.mark-line path')]"
    return browser.value(f"{lines}.filter((line) => line.getAttribute('opacity') < 0.1).length")


def test_a_click_on_a_legend_entry_changes_the_picture(browser, path):
    browser.open(path, until=DRAWN)
    browser.value(f"{FIGURE.format(1)}.scrollIntoView()")
    assert faint(browser) == 0
    place = browser.value(
        f"(() => {{const text = [...{FIGURE.format(1)}.querySelectorAll('.role-legend-label text')]"
        ".find((label) => label.textContent.startsWith('<script'));"
        "const box = text.getBoundingClientRect();"
        "return [box.x + box.width / 2, box.y + box.height / 2]})()"
    )
    browser.click(*place)
    browser.wait(f"{FIGURE.format(1)}.querySelectorAll('[opacity=\"0.08\"]').length > 0")
    assert faint(browser) > 0


def test_a_menu_singles_an_arm_out_everywhere(browser, path):
    """An arm whose name has quotes and a line break is found by that name."""
    browser.open(path, until=DRAWN)
    menu = f"{FIGURE.format(1)}.querySelector('[data-arms]')"
    options = browser.value(f"[...{menu}.options].map((option) => option.value)")
    assert options == ["", *EFFECTS]
    browser.value(f"{menu}.value = {json.dumps(ODD)}, {menu}.dispatchEvent(new Event('change'))")
    browser.wait(f"{FIGURE.format(2)}.querySelectorAll('[opacity=\"0.08\"]').length > 0")
    assert faint(browser, 1) > 0 and faint(browser, 2) > 0
    assert browser.value(f"{FIGURE.format(2)}.querySelector('[data-arms]').value") == ODD
    browser.value(f"{menu}.value = '', {menu}.dispatchEvent(new Event('change'))")
    browser.wait(f"{FIGURE.format(2)}.querySelectorAll('[opacity=\"0.08\"]').length === 0")


def choose(browser, number, label, choice):
    """Picks an entry of a menu, and waits until the figure is drawn anew."""
    figure = FIGURE.format(number)
    menu = (
        f"[...{figure}.querySelectorAll('label')]"
        f".find((label) => label.textContent.startsWith('{label}')).querySelector('select')"
    )
    browser.value(f"globalThis.before = drawn.get({figure}), 0")
    browser.value(f"{menu}.selectedIndex = {choice}, {menu}.dispatchEvent(new Event('change'))")
    browser.wait(f"drawn.get({figure}) !== before")


def ticks(browser, number, axis):
    """Lists the numbers along an axis with their places in pixels; {"X": 0, "Y": 1} of a place."""
    labels = browser.value(
        f"[...{FIGURE.format(number)}.querySelectorAll('.role-axis')]"
        f".filter((axis) => axis.getAttribute('aria-label')?.startsWith('{axis}-axis'))"
        ".flatMap((axis) => [...axis.querySelectorAll('.role-axis-label text')])"
        ".map((text) => [text.textContent, text.getAttribute('transform').match(/[-.\\d]+/g)])"
    )
    return [(float(text), float(place["XY".index(axis)])) for text, place in labels if text]


def is_straight(places, of):
    """Whether places go with a function of the numbers, to within two pixels."""
    numbers, pixels = np.array(places).T
    fit = np.polyfit(of(numbers), pixels, 1)
    return np.abs(np.polyval(fit, of(numbers)) - pixels).max() < 2


def test_a_menu_makes_an_axis_logarithmic_and_back(browser, path):
    browser.open(path, until=DRAWN)
    for label, axis in (("step", "X"), ("loss", "Y")):
        before = ticks(browser, 2, axis)
        assert is_straight(before, lambda number: number)
        choose(browser, 2, label, 1)
        after = ticks(browser, 2, axis)
        assert len(after) > 2 and is_straight(after, np.log)
        assert not is_straight(after, lambda number: number)
        choose(browser, 2, label, 0)
        assert ticks(browser, 2, axis) == before
    assert browser.words() == []


def test_smoothing_is_said_on_the_axis_and_changes_the_line(browser, path):
    browser.open(path, until=DRAWN)
    lines = (
        f"[...{FIGURE.format(2)}.querySelectorAll('.mark-line path')]"
        ".map((line) => line.getAttribute('d'))"
    )
    title = f"{FIGURE.format(2)}.querySelector('.plot').textContent"
    before = browser.value(lines)
    assert "mean of" not in browser.value(title)
    choose(browser, 2, "smoothing", 1)
    assert "train NLL, nats/byte, mean of 5 points" in browser.value(title)
    assert "undefined" not in browser.value(title)
    after = browser.value(lines)
    assert len(after) == len(before) and not set(after) & set(before)
    assert browser.words() == []


def test_the_keyboard_reaches_menus_tables_and_details(browser, path):
    browser.open(path, until=DRAWN)
    reached = set()
    for _ in range(60):
        browser.press("Tab", 9)
        what = browser.value(
            "(() => {const at = document.activeElement;"
            "return [at.tagName, at.className, getComputedStyle(at).outlineStyle]})()"
        )
        reached.add((what[0], what[1]))
        assert what[2] != "none" or what[0] == "BODY", what
    names = {name for name, _ in reached}
    assert {"SELECT", "A", "SUMMARY"} <= names and ("DIV", "scroll") in reached


def test_dark_light_and_print_have_their_own_colours(browser, path):
    ground = "getComputedStyle(document.body).backgroundColor"
    label = f"getComputedStyle({FIGURE.format(1)}.querySelector('.role-axis-label text')).fill"
    seen = {}
    for dark in (False, True):
        browser.open(path, dark=dark, until=DRAWN)
        seen[dark] = browser.value(ground), browser.value(label)
    assert seen[False] == ("rgb(255, 255, 255)", "rgb(27, 27, 27)")
    assert seen[True] == ("rgb(20, 23, 26)", "rgb(232, 232, 230)")
    browser.send("Emulation.setEmulatedMedia", media="print")
    assert browser.value(ground) == "rgb(255, 255, 255)"
    assert browser.value("getComputedStyle(document.querySelector('.controls')).display") == "none"
    assert browser.print().startswith(b"%PDF")


@pytest.mark.parametrize("arms", [3, 12])
def test_a_phone_shows_the_page_without_scrolling_sideways(browser, tmp_path, path, arms):
    if arms == 12:
        path = written(tmp_path, noisy_losses({f"arm {i}": 0.01 * i for i in range(12)}, seeds=2))
    browser.open(path, width=390, until=DRAWN)
    assert browser.words() == []
    assert browser.value("document.documentElement.scrollWidth") <= 390
    wide = "[...document.querySelectorAll('figure .plot svg')].map((s) => s.clientWidth)"
    assert max(browser.value(wide)) <= 390 and min(browser.value(wide)) > 200


def test_five_hundred_runs_are_painted_within_a_second(browser, tmp_path):
    """Of three loads the quickest counts: other tests run beside this one."""
    losses = noisy_losses({f"arm {i}": 0.002 * i for i in range(17)}, seeds=10)
    workdir = write_sweep(tmp_path, losses)
    for directory in sorted(workdir.glob("runs/*/*"))[::3]:
        lengthen(directory, 400)
    path = written(workdir)
    assert len(load_sweep(workdir).runs) == 510
    painted = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    times = []
    for _ in range(3):
        browser.open(path, until=f"{painted} > 0")
        times.append(browser.value(painted))
    assert min(times) < 1000, times
    browser.wait(DRAWN)
    assert browser.words() == []
    assert path.stat().st_size < 8e6
    assert browser.value("document.querySelectorAll('details table tbody tr').length") >= 510


def test_a_watched_page_follows_what_is_written(browser, tmp_path):
    path = tmp_path / "index.html"
    watched = '<meta http-equiv="refresh" content="1">'
    page_of(tmp_path, CASES["one run"])
    record = load_sweep(tmp_path)
    path.write_text(page_of_record(record, 1))
    assert watched in path.read_text()
    browser.open(path)
    path.write_text(page_of_record(record).replace("<body>", "<body id=last>"))
    time.sleep(0.1)
    browser.wait("document.body?.id === 'last'")
    assert not browser.value("document.querySelector('[http-equiv=refresh]')")
