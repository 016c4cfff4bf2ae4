"""Tests for the page: offline, escaped, and drawn without an error in a real browser."""

import html.parser
import json
import re
import shutil
import subprocess

import pytest
from sweep_fixture import DATA, RATES, noisy_losses, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import style
from jtransformer.report.figures import figures
from jtransformer.report.page import page, script_json, script_text
from jtransformer.stats import analyse

EFFECTS = {"pre-gelu": 0.0, "<script>alert(1)</script>": -0.03, "post-gelu": 0.03}
LOSSES = noisy_losses(EFFECTS)
LOSSES["post-gelu", RATES[2], 1] = "diverged"
CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=4000"
).split()


class Elements(html.parser.HTMLParser):
    """Collects every element's name and attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def page_of(workdir, losses, **manifest):
    record = load_sweep(write_sweep(workdir, losses, **manifest))
    analysis = analyse(record)
    return page(record, analysis, figures(record, analysis, style.PAGE))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    question = (
        "Is </script><script>alert(2)</script> & <b>this</b> text?\n\nPrediction: <i>yes</i>."
    )
    return page_of(tmp_path_factory.mktemp("page"), LOSSES, question=question, title="<img src=x>")


def test_the_page_loads_nothing(text):
    for tag, attributes in Elements(text).found:
        assert "src" not in attributes and tag not in ("link", "iframe", "img", "object")
        target = attributes.get("href", "")
        assert not re.match(r"(?:[a-z]+:)?//", target), target
    assert "default-src 'none'" in text
    assert "@import" not in text and "url(" not in text.partition("</style>")[0]


def test_text_from_configs_stays_text(text):
    for name in ("&lt;script&gt;alert(1)&lt;/script&gt;", "&lt;img src=x&gt;", "&lt;i&gt;yes"):
        assert name in text
    elements = Elements(text).found
    assert not [tag for tag, _ in elements if tag in ("b", "i", "img")]
    # One script for each figure's spec, one for Vega and one that draws.
    specs = [a["id"] for tag, a in elements if tag == "script" and "type" in a]
    assert len(specs) == 5
    assert len([tag for tag, _ in elements if tag == "script"]) == len(specs) + 2


def test_scripts_cannot_be_ended_from_inside():
    value = {"arm": "</script><!-- <script>"}
    written = script_json(value)
    assert "<" not in written and json.loads(written) == value
    assert script_text('a = "</SCRIPT>"') == 'a = "<\\/SCRIPT>"'


def test_the_first_screen_has_question_answer_and_table(text):
    head = text.partition("<thead>")[0]
    assert re.search(r'class="question">Is .* text\?</p>', head)
    assert re.search(r'class="answer">&lt;script.* is better than pre-gelu', head)
    assert "unadjusted, 4 degrees of freedom" in head
    for heading in ("verdict", "p (Holm)", "mismatch", "training FLOPs/token", "bits/byte"):
        assert f'">{heading}</th>' in text or f">{heading}</th>" in text


def test_yardsticks_fairness_environment_and_command_are_there(text):
    for phrase in (
        "what xz -9 needs (1.7502)",
        "the first and the last batch of all 27 finished runs are equal",
        "parameters that arms share by path, shape and initialiser have equal initial values",
        "400 steps, 204,800 tokens",
        "ffn_width = 256",
        "<dt>jax</dt><dd>0.10.2</dd>",
        "jtransformer sweep --config experiments/norm_and_ffn/config.py",
        "1 of 27 runs diverged",
    ):
        assert phrase in text, phrase


def test_captions_say_what_is_drawn(tmp_path):
    """Where no arm is below the unigram entropy, every point is inside the frame."""
    for unigram, is_cut in ((DATA["unigram_nll"], True), (1.5, False)):
        data = DATA | {"unigram_nll": unigram, "bigram_nll": 1.4, "xz_nll": 1.3}
        record = load_sweep(write_sweep(tmp_path / str(unigram), LOSSES, data=data))
        drawn = figures(record, analyse(record), style.PAPER)
        assert any("what lies above is cut" in figure.caption for figure in drawn) == is_cut


def test_equal_batches_are_claimed_of_those_that_can_be(tmp_path):
    """Arms of two batch sizes cannot see the same batches."""
    record = load_sweep(write_sweep(tmp_path, LOSSES))
    other = {"sampling": "another", "first_batch": "another", "last_batch": "another"}
    for run in record.runs:
        if run.cell["arm"] == "post-gelu":
            run.status["pairing"] |= other
    text = page(record, analyse(record), [])
    assert "batch size or steps, in 2 ways" in text and "of all 27 finished runs" not in text


@pytest.mark.parametrize("theme", [style.PAGE, style.PAPER])
def test_figures_take_the_themes_ink_and_width(tmp_path, theme):
    record = load_sweep(write_sweep(tmp_path, LOSSES))
    for figure in figures(record, analyse(record), theme):
        assert figure.spec["width"] == theme.width
        assert figure.spec["config"]["axis"]["labelColor"] == theme.ink
        other = style.PAPER if theme is style.PAGE else style.PAGE
        assert other.ink not in json.dumps(figure.spec)


def test_legends_toggle_a_layer_that_knows_the_arm(tmp_path):
    record = load_sweep(write_sweep(tmp_path, LOSSES))
    toggled = 0
    for figure in figures(record, analyse(record), style.PAGE):
        for param in figure.spec.get("params", []):
            views = [v for v in figure.spec["layer"] if v.get("name") in param["views"]]
            assert [v["encoding"]["color"]["field"] for v in views] == ["arm"], figure.name
            toggled += 1
    assert toggled == 4


def test_arms_keep_their_colour_and_the_baseline_is_ink(tmp_path):
    analysis = analyse(load_sweep(write_sweep(tmp_path, LOSSES)))
    color, _ = style.arm_color(analysis, style.PAPER)
    scale = color.to_dict()["scale"]
    assert scale["domain"] == list(EFFECTS)
    assert scale["range"] == [style.PAPER.ink, *style.OKABE_ITO[:2]]


def browse(path, profile):
    """Opens a page in headless Chromium; returns its drawn DOM and its console lines."""
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


@pytest.mark.skipif(
    CHROMIUM is None,
    reason="chromium is not installed, so pages were not drawn (owner: report, 2026-11-29)",
)
@pytest.mark.parametrize(
    "case, count", [("full", 5), ("one seed", 5), ("all diverged", 4), ("begun", 3)]
)
def test_chromium_draws_every_figure_without_a_word(tmp_path, case, count):
    losses = {
        "full": LOSSES,
        "one seed": {key: loss for key, loss in LOSSES.items() if key[2] == 0},
        "all diverged": dict.fromkeys(LOSSES, "diverged"),
        # The baseline's first seed alone, at two rates: no mean and no difference yet.
        "begun": dict.fromkeys(LOSSES, "pending") | dict(list(LOSSES.items())[0:4:3]),
    }[case]
    path = tmp_path / "index.html"
    path.write_text(page_of(tmp_path, losses))
    dom, console = browse(path, tmp_path / "profile")
    assert console == []
    drawn = re.findall(r'<div class="plot[^>]*>\s*(?:<[^>]*>\s*)*?<svg', dom)
    assert len(drawn) == dom.count("<figure data-spec") == count
    assert "alert(1)" in dom and "<script>alert" not in dom
