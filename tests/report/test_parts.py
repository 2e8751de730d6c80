"""The small parts: differences, contrast of colours, ticks, texts that fit, Markdown."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.report import render_markdown, render_text
from reclick.report.charts.bars import HEAT_LEVELS
from reclick.report.charts.lines import format_ticks
from reclick.report.charts.svg import MARKERS, round_ticks, text_width, truncate, wrap_name
from reclick.report.data import MAX_SERIES, Difference, ScoreKey, build_score_table
from reclick.report.formatting import format_margin, format_number, format_value
from reclick.report.markup import Html, element, escape_text, join
from reclick.report.tables import (
    PUBLISHED_BY_VOLUME,
    PUBLISHED_FIGURES,
    PUBLISHED_FIRST_CLICKS,
)
from tests.support.report_data import HOSTILE, MODELS, invented_evaluation, with_hostile_texts

STYLE = files("reclick.report").joinpath("style.css").read_text(encoding="utf-8")


def theme(block: int) -> dict[str, str]:
    """The colours of style.css by name: block 0 is light, 1 is dark."""
    root = re.findall(r":root\{\n(.*?)\}", STYLE, flags=re.DOTALL)[block]
    return dict(re.findall(r"--(\w+):(#[0-9a-f]{6});", root))


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG defines it: (lighter + 0.05) / (darker + 0.05)."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_a_difference_can_be_looked_up_either_way_round() -> None:
    evaluation = invented_evaluation()
    table = build_score_table(evaluation.scores, evaluation.differences, {})
    key = ScoreKey("first_click_accuracy")
    there, back = (
        table.difference("MultiClick", "AM", key),
        table.difference("AM", "MultiClick", key),
    )
    assert there is not None
    assert back == Difference(-there.difference, -(there.high or 0), -(there.low or 0))
    assert table.difference("MultiClick", "nobody", key) is None


def test_a_ranking_leaves_out_missing_values_and_has_no_best_among_infinities() -> None:
    evaluation = invented_evaluation()
    table = build_score_table(evaluation.scores, evaluation.differences, {})
    assert set(table.ranking(ScoreKey("pr_auc")).order) == {"MultiClick", "DBN", "UBM"}
    assert table.ranking(ScoreKey("rank@2", "reverse")).best == ("MultiClick",)
    assert table.ranking(ScoreKey("nothing")).best == ()
    assert table.ranking(ScoreKey("log_likelihood")).order[0] == "MultiClick"
    assert table.volumes("perplexity")[0] == "0-10"
    assert table.volumes("perplexity")[-1] == ">1000"


@pytest.mark.parametrize("block", [0, 1], ids=["light", "dark"])
def test_colours_keep_their_contrast(block: int) -> None:
    colours = theme(block)
    for ground in ("paper", "panel", "best", "published"):
        inks = (colours[ink] for ink in ("ink", "muted", "accent"))
        assert min(contrast(ink, colours[ground]) for ink in inks) >= 4.5
    series = [colours[f"s{n}"] for n in range(1, MAX_SERIES + 1)]
    for ground in ("paper", "panel"):
        marks = (*series, colours["axis"], colours["warm"], colours["green"])
        assert min(contrast(mark, colours[ground]) for mark in marks) >= 3
    levels = [(colours[f"h{n}"], colours[f"t{n}"]) for n in range(HEAT_LEVELS)]
    assert min(contrast(fill, ink) for fill, ink in levels) >= 4.5
    assert len(set(series)) == len(series)


def test_published_shares_are_shares() -> None:
    assert sum(PUBLISHED_FIRST_CLICKS) == pytest.approx(1, abs=0.001)
    assert all(
        sum(shares) == pytest.approx(1, abs=0.001) for _, shares in PUBLISHED_BY_VOLUME.values()
    )
    accuracies = [
        figure.value
        for (metric, _), figures in PUBLISHED_FIGURES.items()
        if "accuracy" in metric
        for figure in figures.values()
    ]
    assert all(0 <= value <= 1 for value in accuracies)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 5))
def test_ticks_are_few_and_different(low: float, span: float, most: int) -> None:
    found = round_ticks(low, low + span, most)
    assert 1 <= len(found) <= most
    slack = 1e-6 * max(span, abs(low) * 1e-6, 1e-6)
    assert all(low - slack <= tick <= low + span + slack for tick in found)
    if span > 1e-3 and abs(low) < 100:
        assert len(set(format_ticks(found))) == len(found)


@given(st.text(max_size=60), st.floats(20, 300))
def test_a_truncated_text_fits_its_width(text: str, width: float) -> None:
    found = truncate(text, width)
    assert text_width(found) <= width or found == "…"


@given(st.text(max_size=40))
def test_no_text_becomes_markup(text: str) -> None:
    page = element("td", text, title=text)
    assert page.startswith('<td title="')
    assert page.count("<") == 2
    assert page.count('"') == 2
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]", page)
    page.encode()


def test_what_is_markup_already_is_not_escaped_twice() -> None:
    assert join(["a<b", Html("<i>c</i>")], " & ") == "a&lt;b & <i>c</i>"
    assert escape_text("&amp;") == "&amp;amp;"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(-0.001, 2, "0.00"), (-1.25, 1, "−1.2"), (1234.5, 1, "1,234.5"), (float("inf"), 2, "∞")],
)
def test_numbers_have_a_true_minus_and_no_minus_zero(value: float, digits: int, text: str) -> None:
    assert format_number(value, digits) == text


def test_a_margin_of_shares_is_in_points() -> None:
    assert format_margin(-0.01, "first_click_accuracy") == "1.00\u00a0point"
    assert format_margin(0.0325, "first_click_accuracy") == "3.25\u00a0points"
    assert format_margin(-0.5, "perplexity") == "0.5000"
    assert format_value(0.5, "impossible") == "50.00"


def test_markdown_has_the_headline_and_the_main_tables() -> None:
    evaluation = invented_evaluation()
    text = render_markdown(evaluation)
    assert text.startswith("# Six click models compared on week3.parquet\n")
    assert "| MultiClick | **77.12** \\[76.69, 77.55\\] | *79.59* |" in text
    assert "| UBM | 77.01 ≈ \\[76.58, 77.44\\] |  |" in text
    assert "| PM | – | " in text
    widths = {
        block: {
            line.replace("\\|", "").count("|")
            for line in block.splitlines()
            if line.startswith("|")
        }
        for block in text.split("\n\n")
    }
    assert all(len(counts) <= 1 for counts in widths.values())
    assert [model for model in MODELS if model not in text] == []


def test_text_has_a_row_per_model_and_a_sentence_per_metric() -> None:
    evaluation = invented_evaluation()
    page = render_text(evaluation)
    title, table, summary, *_, headlines = page.split("\n\n")
    assert title.startswith("Six click models compared on week3.parquet: ")
    head, *rows = table.splitlines()
    assert [row.split()[0] for row in rows] == list(MODELS)
    assert {len(row) for row in rows} == {len(head)}
    assert "MultiClick" in summary
    assert headlines.startswith("The first click. ")
    assert "\\" not in page
    assert "77.1%" in next(row for row in rows if row.startswith("MultiClick"))


def test_markdown_escapes_texts_of_a_log() -> None:
    evaluation = with_hostile_texts(invented_evaluation(["MultiClick", "a|b*c*<script>"]))
    text = render_markdown(evaluation)
    assert "a\\|b\\*c\\*\\<script\\>" in text
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert HOSTILE[0] not in text


def test_the_lines_of_models_differ_in_more_than_colour() -> None:
    dashes = re.findall(r"\.s\d \.line\{stroke-dasharray:(.*?)\}", STYLE)
    assert len(set(MARKERS)) == len(set(dashes)) == MAX_SERIES


def test_a_name_too_long_for_a_line_takes_two_and_keeps_both_its_ends() -> None:
    assert wrap_name("MultiClick, normalised", 86) == ("MultiClick,", "normalised")
    dated = [wrap_name(f"model-2026-11-{day}-strength10-paper", 112) for day in (14, 15)]
    assert dated[0] != dated[1]
    assert wrap_name("A" * 70, 86) == ("AAAA…AAAA",)


@given(st.text(max_size=60), st.floats(20, 300))
def test_a_wrapped_name_is_one_or_two_lines_that_fit(text: str, width: float) -> None:
    found = wrap_name(text, width)
    assert len(found) in (1, 2)
    assert all(text_width(line) <= width or line == "…" for line in found)


def test_a_title_counts_a_model_with_two_settings_once() -> None:
    evaluation = invented_evaluation(["MultiClick", "MultiClick, normalised", "DBN"])
    for name, kind in zip(
        evaluation.details["models"], ("multiclick", "multiclick", "dbn"), strict=True
    ):
        evaluation.details["models"][name]["model"] = kind
    text = render_markdown(evaluation)
    assert text.startswith("# Three fits of two click models compared on week3.parquet\n")
