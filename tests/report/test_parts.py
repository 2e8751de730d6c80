"""The small parts: differences either way round, colours that can be read, ticks, texts that fit, Markdown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.report import markdown
from reclick.report import text as text_page
from reclick.report.charts.colours import (
    DARK,
    HEAT_DARK,
    HEAT_LIGHT,
    LIGHT,
    SERIES_DARK,
    SERIES_LIGHT,
    contrast,
    heat,
)
from reclick.report.charts.lines import tick_texts
from reclick.report.charts.svg import breadth, fitted, folded, ticks
from reclick.report.formatting import margin, signed, written
from reclick.report.markup import Html, element, join, safe
from reclick.report.published import BY_VOLUME, FIGURES, FIRST_CLICKS
from reclick.report.results import At, Difference, read_results
from tests.support.report_data import MODELS, STRANGE, made_up, with_strangers

THEMES = [(LIGHT, SERIES_LIGHT, HEAT_LIGHT), (DARK, SERIES_DARK, HEAT_DARK)]


def test_a_difference_is_found_either_way_round() -> None:
    evaluation = made_up()
    results = read_results(evaluation.scores, evaluation.differences, {})
    at = At("first_click_accuracy")
    there, back = (
        results.difference("MultiClick", "AM", at),
        results.difference("AM", "MultiClick", at),
    )
    assert there is not None
    assert back == Difference(-there.difference, -(there.high or 0), -(there.low or 0))
    assert results.difference("MultiClick", "nobody", at) is None


def test_a_ranking_leaves_out_who_does_not_answer_and_has_no_best_among_infinities() -> None:
    evaluation = made_up()
    results = read_results(evaluation.scores, evaluation.differences, {})
    assert set(results.ranking(At("pr_auc")).order) == {"MultiClick", "DBN", "UBM"}
    assert results.ranking(At("rank@2", "reverse")).best == ("MultiClick",)
    assert results.ranking(At("nothing")).best == ()
    assert results.ranking(At("log_likelihood")).order[0] == "MultiClick"
    assert results.volumes("perplexity")[0] == "0-10"
    assert results.volumes("perplexity")[-1] == ">1000"


@pytest.mark.parametrize(("theme", "series", "ends"), THEMES, ids=["light", "dark"])
def test_colours_keep_their_contrast(
    theme: dict[str, str], series: tuple[str, ...], ends: tuple[str, str]
) -> None:
    for ground in ("paper", "panel", "best", "theirs"):
        assert min(contrast(theme[ink], theme[ground]) for ink in ("ink", "muted", "accent")) >= 4.5
    for ground in ("paper", "panel"):
        assert (
            min(
                contrast(colour, theme[ground])
                for colour in (*series, theme["axis"], theme["warm"], theme["green"])
            )
            >= 3
        )
    assert min(contrast(fill, ink) for fill, ink in heat(ends, ("#ffffff", "#111111"))) >= 4.5
    assert len(set(series)) == len(series)


def test_the_papers_shares_are_shares() -> None:
    assert sum(FIRST_CLICKS) == pytest.approx(1, abs=0.001)
    assert all(sum(shares) == pytest.approx(1, abs=0.001) for _, shares in BY_VOLUME.values())
    accuracies = [
        figure.value
        for (metric, _), printed in FIGURES.items()
        if "accuracy" in metric
        for figure in printed.values()
    ]
    assert all(0 <= value <= 1 for value in accuracies)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 5))
def test_ticks_are_few_inside_and_told_apart(low: float, span: float, most: int) -> None:
    found = ticks(low, low + span, most)
    assert 1 <= len(found) <= most
    slack = 1e-6 * max(span, abs(low) * 1e-6, 1e-6)
    assert all(low - slack <= tick <= low + span + slack for tick in found)
    if span > 1e-3 and abs(low) < 100:
        assert len(set(tick_texts(found))) == len(found)


@given(st.text(max_size=60), st.floats(20, 300))
def test_a_fitted_text_is_no_wider_than_its_room(text: str, width: float) -> None:
    found = fitted(text, width)
    assert breadth(found) <= width or found == "…"


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
    assert safe("&amp;") == "&amp;amp;"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(-0.001, 2, "0.00"), (-1.25, 1, "−1.2"), (1234.5, 1, "1,234.5"), (float("inf"), 2, "∞")],
)
def test_numbers_have_a_true_minus_and_no_minus_zero(value: float, digits: int, text: str) -> None:
    assert signed(value, digits) == text


def test_a_margin_of_shares_is_in_points() -> None:
    assert margin(-0.01, "first_click_accuracy") == "1.00\u00a0point"
    assert margin(0.0325, "first_click_accuracy") == "3.25\u00a0points"
    assert margin(-0.5, "perplexity") == "0.5000"
    assert written(0.5, "impossible") == "50.00"


def test_markdown_has_the_headline_and_the_main_tables() -> None:
    evaluation = made_up()
    text = markdown(
        evaluation.scores, evaluation.differences, evaluation.portrait, evaluation.details
    )
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


def test_plain_text_has_a_row_a_model_and_says_who_is_best_at_what() -> None:
    evaluation = made_up()
    page = text_page(
        evaluation.scores, evaluation.differences, evaluation.portrait, evaluation.details
    )
    compared, table, verdict, *_, answers = page.split("\n\n")
    assert compared.startswith("Six click models compared on week3.parquet: ")
    head, *rows = table.splitlines()
    assert [row.split()[0] for row in rows] == list(MODELS)
    assert {len(row) for row in rows} == {len(head)}
    assert "MultiClick" in verdict
    assert answers.startswith("The first click. ")
    assert "\\" not in page
    assert "77.1%" in next(row for row in rows if row.startswith("MultiClick"))


def test_markdown_takes_no_text_of_a_log_for_its_own() -> None:
    evaluation = with_strangers(made_up(["MultiClick", "a|b*c*<script>"]))
    text = markdown(evaluation.scores, evaluation.differences, None, evaluation.details)
    assert "a\\|b\\*c\\*\\<script\\>" in text
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert STRANGE[0] not in text


def test_the_lines_of_models_differ_in_more_than_colour() -> None:
    from reclick.report.charts.svg import MARKERS
    from reclick.report.style import DASHES

    assert len(set(MARKERS)) == len(set(DASHES)) == len(SERIES_LIGHT) == len(SERIES_DARK)


def test_a_name_too_long_for_a_line_takes_two_and_keeps_both_its_ends() -> None:
    assert folded("MultiClick, normalised", 86) == ("MultiClick,", "normalised")
    dated = [folded(f"model-2026-11-{day}-strength10-leftover", 112) for day in (14, 15)]
    assert dated[0] != dated[1]
    assert folded("A" * 70, 86) == ("AAAA…AAAA",)


@given(st.text(max_size=60), st.floats(20, 300))
def test_a_folded_text_is_one_or_two_lines_no_wider_than_their_room(
    text: str, width: float
) -> None:
    found = folded(text, width)
    assert len(found) in (1, 2)
    assert all(breadth(line) <= width or line == "…" for line in found)


def test_a_title_counts_a_model_with_two_settings_once() -> None:
    evaluation = made_up(["MultiClick", "MultiClick, normalised", "DBN"])
    for name, kind in zip(
        evaluation.details["models"], ("multiclick", "multiclick", "dbn"), strict=True
    ):
        evaluation.details["models"][name]["model"] = kind
    text = markdown(
        evaluation.scores, evaluation.differences, evaluation.portrait, evaluation.details
    )
    assert text.startswith("# Three fits of two click models compared on week3.parquet\n")
