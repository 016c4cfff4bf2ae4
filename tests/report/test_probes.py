"""Tests for the section about probes: what is drawn, what is said, what is left out."""

import json

import pytest
import vl_convert
from probe_fixture import CAVEAT, write_probes
from sweep_fixture import RATES, noisy_losses, write_sweep

from jtransformer.records import RunFiles, load_sweep, read_probe
from jtransformer.report import style
from jtransformer.report.probes import section
from jtransformer.stats import analyse, profiles

EFFECTS = {"pre-gelu": 0.0, "<b>post</b>": 0.03}


def section_of(workdir, theme=style.PAPER):
    record = load_sweep(workdir)
    analysis = analyse(record)
    return section(profiles(record, analysis, read_probe), analysis, theme)


def sweep(folder, effects=None, **options):
    write_sweep(folder, noisy_losses(effects or EFFECTS))
    write_probes(folder, **options)
    return folder


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return section_of(sweep(tmp_path_factory.mktemp("sweep")))


def figure(found, name):
    return next(one for one in found.figures if one.name == name)


def encodings(spec):
    """Yields what every unit of a spec encodes."""
    if "encoding" in spec:
        yield spec["encoding"]
    for group in ("layer", "hconcat", "vconcat", "concat"):
        for part in spec.get(group, ()):
            yield from encodings(part)


def rows_of(spec, unit):
    """What a unit draws; Altair keeps rows apart from it."""
    return spec["datasets"][unit["data"]["name"]]


def test_a_sweep_without_probes_has_no_section(tmp_path):
    assert section_of(write_sweep(tmp_path, noisy_losses(EFFECTS))) is None


def test_the_figures_of_what_was_measured(found):
    assert [one.name for one in found.figures] == [
        "probe_gradient_norm",
        "probe_update_ratio",
        "probe_stream_rms",
        "probe_outlier_ratio",
        "probe_relative_entropy",
        "probe_spectral_norm_stream",
        "probe_ablation",
        "attention_maps_1",
        "attention_maps_2",
    ]
    assert all(len(one.table) for one in found.figures)


@pytest.mark.parametrize("theme", [style.PAGE, style.PAPER], ids=["page", "paper"])
def test_every_figure_can_be_drawn(tmp_path, theme):
    for one in section_of(sweep(tmp_path), theme).figures:
        spec = one.spec | ({} if theme.background else {"background": "white"})
        svg = vl_convert.vegalite_to_svg(spec)
        assert svg.startswith("<svg") and "NaN" not in svg, one.name


def test_a_profile_has_a_panel_for_the_first_and_the_last_step_of_each_part(found):
    panels = figure(found, "probe_gradient_norm").spec["concat"]
    assert [panel["title"] for panel in panels] == [
        "step 0, at initialisation",
        "step 400",
    ]
    ticks = {tuple(encoding["x"]["axis"]["values"]) for encoding in encodings({"concat": panels})}
    assert ticks == {(0, 1)}
    stretched = figure(found, "probe_spectral_norm_stream").spec
    titles = [panel["title"] for panel in stretched["concat"]]
    assert stretched["columns"] == 2
    assert titles[0] == "attention, step 0, at initialisation" and titles[3] == "ffn, step 400"


def test_the_sentences_say_what_was_measured_and_what_it_is_not(found):
    text = " ".join(found.paragraphs)
    assert "at steps 0 and 400 on the first 16 rows" in text and CAVEAT in text
    assert "ffn 'gelu' is nowhere 0 but at points (pre-gelu and <b>post</b>)" in text
    assert "Nothing here enters the verdicts" in text


def test_an_arm_that_lacks_a_seed_at_the_end_is_named_and_has_no_mean_there(tmp_path):
    sweep(tmp_path)
    for run in load_sweep(tmp_path).runs:
        if run.cell["arm"] == "<b>post</b>" and run.cell["seed"] == 1:
            RunFiles(tmp_path / run.cell["directory"]).probe(400).unlink()
    found = section_of(tmp_path)
    assert "Not every seed of <b>post</b> has numbers at step 400" in " ".join(found.paragraphs)
    spec = figure(found, "probe_gradient_norm").spec
    bold = rows_of(spec, spec["concat"][1]["layer"][1])
    assert {point["arm"] for point in bold} == {"pre-gelu"}


def test_what_the_last_step_lacks_has_an_empty_panel_there(tmp_path):
    """As entropies of a sweep in which every run diverged: not finite, and so not there."""
    sweep(tmp_path)
    for run in load_sweep(tmp_path).runs:
        path = RunFiles(tmp_path / run.cell["directory"]).probe(400)
        content = json.loads(path.read_text())
        content["stacks"]["decoder"]["relative_entropy"]["attention"] = [[None] * 3] * 2
        path.write_text(json.dumps(content))
    spec = figure(section_of(tmp_path), "probe_relative_entropy").spec
    first, last = [rows_of(spec, panel["layer"][0]) for panel in spec["concat"]]
    assert first and not last
    assert vl_convert.vegalite_to_svg(spec).startswith("<svg")


def test_arms_without_probes_are_named(tmp_path):
    sweep(tmp_path)
    for run in load_sweep(tmp_path).runs:
        if run.cell["arm"] == "<b>post</b>":
            for path in run.probes:
                path.unlink()
    text = " ".join(section_of(tmp_path).paragraphs)
    assert "No run of <b>post</b> at a chosen setting was probed." in text


def test_an_axis_is_logarithmic_only_where_all_is_positive(tmp_path, found):
    def kinds(one):
        return {encoding["y"]["scale"].get("type") for encoding in encodings(one.spec)}

    assert kinds(figure(found, "probe_gradient_norm")) == {"log"}
    assert kinds(figure(found, "probe_relative_entropy")) == {None}
    # As the gradient of a branch that starts at 0.
    nothing = section_of(sweep(tmp_path, scale=0.0))
    assert kinds(figure(nothing, "probe_gradient_norm")) == {None}


def test_one_seed_has_no_interval_and_one_step_no_second_panel(tmp_path):
    losses = {key: loss for key, loss in noisy_losses(EFFECTS).items() if key[2] == 0}
    write_sweep(tmp_path, losses)
    write_probes(tmp_path, steps=(0,))
    found = section_of(tmp_path)
    cells = [cell for column in found.tables[0].columns[2:] for cell in column.cells]
    assert cells and not any("±" in cell or "nan" in cell for cell in cells)
    assert len(figure(found, "probe_gradient_norm").spec["concat"]) == 1


def test_the_table_has_a_row_for_each_arm_and_step_with_intervals_over_seeds(found):
    columns = {column.heading: column.cells for column in found.tables[0].columns}
    assert columns["arm"] == ["pre-gelu", "pre-gelu", "<b>post</b>", "<b>post</b>"]
    assert columns["step"] == ["0", "400", "0", "400"]
    # Seeds have 2, 4 and 6: a t interval with two degrees of freedom.
    assert columns["gradient norm, last layer"][0] == "4 ± 5"
    assert columns["entropy / largest possible"][0] == "0.25"


def test_maps_are_thinned_for_drawing_and_the_caption_says_so(tmp_path, found):
    small = figure(found, "attention_maps_1")
    assert "Thinned" not in small.caption and small.spec["concat"][0]["title"] == "layer 0, head 0"
    assert len(small.spec["concat"]) == 4 and len(small.table) == 4 * 6 * 6
    large = figure(section_of(sweep(tmp_path, places=48)), "attention_maps_1")
    assert "Thinned to at most 32 × 32 cells" in large.caption
    values = rows_of(large.spec, large.spec["concat"][0])
    assert len(values) == 24 * 24 and len(large.table) == 4 * 48 * 48
    rows = {}
    for cell in values:
        rows[cell["query"]] = rows.get(cell["query"], 0) + cell["weight"]
    assert list(rows) == list(range(0, 48, 2))
    assert all(total == pytest.approx(1, abs=0.01) for total in rows.values())


def test_many_arms_are_drawn_but_only_some_of_their_maps(tmp_path):
    arms = {f"arm-{number}": 0.0 for number in range(9)}
    found = section_of(sweep(tmp_path, arms, layers=1, heads=1))
    maps = [one for one in found.figures if one.name.startswith("attention_maps")]
    assert len(maps) == 6 and "arm-0" in maps[0].title
    assert len(found.tables[0].columns[0].cells) == 18


def test_seeds_and_rates_of_other_settings_are_not_drawn(found):
    table = figure(found, "probe_gradient_norm").table
    assert len(RATES) == 3 and len(table) == 2 * 3 * 2 * (2 + 2)
