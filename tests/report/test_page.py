"""Tests for the page's text: offline, escaped, in order, and the same for every theme."""

import json
import re

import pytest
from report_pages import Elements, figures_of, page_of, page_of_record
from sweep_fixture import DATA, RATES, noisy_losses, scaled, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import style
from jtransformer.report.page import script_json, script_text
from jtransformer.stats import analyse

EFFECTS = {"pre-gelu": 0.0, "<script>alert(1)</script>": -0.03, "post-gelu": 0.03}
LOSSES = noisy_losses(EFFECTS)
LOSSES["post-gelu", RATES[2], 1] = "diverged"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    question = (
        "Is </script><script>alert(2)</script> & <b>this</b> text?\n\nPrediction: <i>yes</i>."
    )
    return page_of(tmp_path_factory.mktemp("page"), LOSSES, question=question, title="<img src=x>")


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return load_sweep(write_sweep(tmp_path_factory.mktemp("record"), LOSSES))


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
    # One script for each figure, one for Vega and one that draws.
    figures = [tag for tag, _ in elements if tag == "figure"]
    kinds = [a.get("type") for tag, a in elements if tag == "script"]
    assert len(figures) > 4
    assert kinds == ["application/json"] * len(figures) + ["text/plain", None]


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
        assert f">{heading}</th>" in text


def test_sections_are_in_order_and_each_names_its_command(text):
    ids = [a["id"] for tag, a in Elements(text).found if tag == "section" and "id" in a]
    order = "curves tuning differences yardsticks power divergence sensitivity speed audit".split()
    assert ids == [f"{name}-1" for name in order]
    for name in ["verdict", *(one.rsplit("-", 1)[0] for one in ids)]:
        assert f"jtransformer report --workdir out --section {name} --json</code>" in text
    linked = [a["href"] for tag, a in Elements(text).found if a.get("href", "").startswith("#")]
    assert {link[1:] for link in linked} <= set(ids) and "#curves-1" in linked


@pytest.mark.parametrize("scales", [False, True])
def test_headings_are_in_order_and_ids_are_unique(tmp_path, scales):
    effects = {"small-pre": 0.0, "small-gate": -0.03, "large-pre": -0.5, "large-gate": -0.46}
    manifest = scaled(effects) if scales else {}
    elements = Elements(page_of(tmp_path, noisy_losses(effects), **manifest)).found
    levels = [int(tag[1]) for tag, _ in elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below <= above + 1 for above, below in zip(levels, levels[1:], strict=False))
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert ("html", {"lang": "en"}) in elements


def test_what_can_be_reached_by_keys_has_a_name(text):
    """Every menu stands in a label, every region that scrolls and every plot says what it is."""
    body = text.partition("</style>")[2]
    assert len(re.findall(r"<label>[\w ]+<select", body)) == body.count("<select") > 4
    for tag, attributes in Elements(body).found:
        if attributes.get("role") in ("region", "img"):
            assert attributes["aria-label"].strip()
        if "tabindex" in attributes:
            assert attributes == attributes | {"role": "region", "tabindex": "0"}, tag


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
        drawn = figures_of(record, style.PAPER)
        assert any("what lies above is cut" in figure.caption for figure in drawn) == is_cut


def test_equal_batches_are_claimed_of_those_that_can_be(tmp_path):
    """Arms of two batch sizes cannot see the same batches."""
    record = load_sweep(write_sweep(tmp_path, LOSSES))
    other = {"sampling": "another", "first_batch": "another", "last_batch": "another"}
    for run in record.runs:
        if run.cell["arm"] == "post-gelu":
            run.status["pairing"] |= other
    text = page_of_record(record)
    assert "batch size or steps, in 2 ways" in text and "of all 27 finished runs" not in text


def test_a_watched_page_loads_itself_anew_and_another_does_not(record, text):
    watched = page_of_record(record, 30)
    assert '<meta http-equiv="refresh" content="30">' in watched
    assert "loads itself anew every 30 s" in watched
    assert "refresh" not in text.partition("</head>")[0] and "anew every" not in text


@pytest.mark.parametrize("theme", [style.PAGE, style.PAPER])
def test_figures_take_the_themes_ink_and_width(record, theme):
    other = style.PAPER if theme is style.PAGE else style.PAGE
    for figure in figures_of(record, theme):
        assert figure.spec["width"] == theme.width
        assert figure.spec["config"]["axis"]["labelColor"] == theme.ink
        assert other.ink not in json.dumps(figure.spec)
        assert re.fullmatch(r"\w+", figure.name)
        assert not re.search("(?i)click|hover", figure.caption)


def test_legends_toggle_a_layer_that_knows_the_arm(record):
    toggled = 0
    for figure in figures_of(record, style.PAGE):
        for param in figure.spec.get("params", []):
            views = [v for v in figure.spec["layer"] if v.get("name") in param["views"]]
            assert [v["encoding"]["color"]["field"] for v in views] == ["arm"], figure.name
            toggled += param["name"] == "arms"
    assert toggled >= 4


def test_arms_keep_their_colour_and_the_baseline_is_ink(record):
    color, _ = style.arm_color(analyse(record), style.PAPER)
    scale = color.to_dict()["scale"]
    assert scale["domain"] == list(EFFECTS)
    assert scale["range"] == [style.PAPER.ink, *style.OKABE_ITO[:2]]


def test_a_watched_page_says_whole_seconds(record):
    """A browser reads the digits before the point alone, and would come too early."""
    watched = page_of_record(record, 1.5)
    assert '<meta http-equiv="refresh" content="2">' in watched
    assert "loads itself anew every 2 s" in watched and "30.0" not in page_of_record(record, 30.0)
