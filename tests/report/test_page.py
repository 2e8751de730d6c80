"""The page as text: it has everything that was measured, and nothing that could harm or load."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from reclick.errors import StoreError
from reclick.metrics import CURVE_SCHEMA, DIFFERENCE_SCHEMA, SCORE_SCHEMA
from reclick.report import render_html, write_html
from reclick.report.formatting import display, format_value
from tests.support.report_data import (
    HOSTILE,
    MODELS,
    InventedEvaluation,
    invented_evaluation,
    with_differences,
    with_hostile_texts,
    with_scores,
)

SIXTEEN = [*MODELS, *(f"ModelNumber{n}" for n in range(10))]
VOID = {"meta", "br", "hr"}
SECTIONS = (
    "In short",
    "Ads to act on",
    "Comparison",
    "Other metrics",
    "The log",
    "Paper (Bing, 2014)",
    "How to reproduce this",
)


class Balance(HTMLParser):
    """Checks that every element is closed, and collects names and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def headings(page: str) -> list[str]:
    return [
        unescape(re.sub("<[^>]+>", "", found)) for found in re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    ]


def tables(page: str, caption: str) -> str:
    """The table with this caption."""
    (found,) = re.findall(
        rf'<table[^>]*><caption class="hidden">{re.escape(caption)}</caption>.*?</table>', page
    )
    return str(found)


def cells(page: str, caption: str, model: str) -> list[str]:
    """The cells of a model in a table, with their markup."""
    (row,) = re.findall(
        rf'<tr><th scope="row"><bdi>{re.escape(model)}</bdi></th>(.*?)</tr>', tables(page, caption)
    )
    return re.findall(r"<td[^>]*>.*?</td>", row)


@pytest.fixture(scope="module")
def page() -> str:
    return render_html(invented_evaluation())


def test_all_sections_stand_in_their_order(page: str) -> None:
    assert tuple(headings(page)) == SECTIONS


def test_every_metric_of_the_scores_appears_with_its_value() -> None:
    evaluation = invented_evaluation()
    page = render_html(evaluation)
    for row in evaluation.select(volume="all").scores.to_pylist():
        assert format_value(row["value"], row["metric"]) in page, row
    for metric in set(evaluation.scores["metric"].to_pylist()):
        assert f">{display(metric).title}" in page or f">{display(metric).header}<" in page, metric


def test_an_unknown_metric_appears_under_its_own_name() -> None:
    evaluation = invented_evaluation()
    row = {
        "model": "DBN",
        "metric": "surprise@7",
        "sessions": "all",
        "volume": "all",
        "value": 0.12345,
        "support": 5.0,
    }
    grown = pa.concat_tables([evaluation.scores, pa.Table.from_pylist([row], SCORE_SCHEMA)])
    page = render_html(replace(evaluation, scores=grown))
    assert "surprise@7" in page
    assert "0.1235" in page or "0.1234" in page


def test_the_best_is_bold_and_ties_are_marked(page: str) -> None:
    assert "<b>77.12</b>" in cells(page, "First-click accuracy", "MultiClick")[0]
    assert 'class="tie"' in cells(page, "First-click accuracy", "UBM")[0]
    other = cells(page, "First-click accuracy", "DBN")[0]
    assert "<b>" not in other
    assert 'class="tie"' not in other


def test_lower_is_better_where_it_is(page: str) -> None:
    assert "<b>1.1871 ± 0.31</b>" in cells(page, "Perplexity of a session", "UBM")[0]
    assert sum("<b>" in cells(page, "Perplexity of a session", model)[0] for model in MODELS) == 1


def test_published_figures_have_their_own_column(page: str) -> None:
    here, published = cells(page, "First-click accuracy", "MultiClick")
    assert "77.12" in here
    assert "[76.69,\u00a077.55]" in here
    assert published == '<td class="published">79.59</td>'
    assert cells(page, "First-click accuracy", "UBM")[1] == '<td class="published"></td>'
    assert "paper (Bing)" in tables(page, "First-click accuracy")
    assert "1.25\u00a0± 0.62" in tables(page, "Rank of the observed sequence")


def test_a_missing_value_is_a_dash_with_the_reason(page: str) -> None:
    (cell, _) = cells(page, "Relevance against labels", "PM")
    assert re.search(r'<abbr title="PM: no value, since [^"]+">–</abbr>', cell)
    assert "– ICM, PM and AM: no value, since it has no relevance of ads." in page


def test_a_known_reason_is_shown() -> None:
    evaluation = invented_evaluation()
    evaluation.details["models"]["PM"]["reasons"] = {"pr_auc": "PM knows <nothing> of ads."}
    page = render_html(evaluation)
    assert "– PM: PM knows &lt;nothing&gt; of ads." in page


def test_an_infinite_likelihood_stands_with_the_share_of_impossible_sessions(page: str) -> None:
    cell = cells(page, "Likelihood of the observed clicks", "UBM")[0]
    assert "−∞" in cell
    assert "<small>≤ 2.74\u00a0% impossible" in cell
    assert (
        "<small>≤ 31.20\u00a0% impossible"
        in cells(page, "Likelihood of the observed clicks", "PM")[1]
    )


def test_the_page_is_well_formed_small_and_without_script(page: str) -> None:
    balance = Balance(page)
    assert balance.open == []
    assert not balance.tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    assert not [
        name
        for name, _ in balance.attributes
        if name.startswith("on") or name in {"src", "srcset", "style"}
    ]
    assert all(value.startswith("#") for name, value in balance.attributes if name == "href")
    assert "http" not in page.replace("http-equiv", "")
    assert "url(" not in page
    assert "@import" not in page
    assert len(page.encode()) < 2_000_000


def test_a_strict_policy_refuses_whatever_is_not_in_the_file(page: str) -> None:
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
        " form-action 'none'"
    )
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in unescape(page)
    assert page.startswith('<!doctype html>\n<html lang="en">')


def test_every_drawing_has_a_title_a_description_and_its_numbers(page: str) -> None:
    figures = re.findall(r"<figure>.*?</figure>", page, flags=re.DOTALL)
    assert len(figures) > 40
    for figure in figures:
        assert re.search(
            r'role="img" aria-labelledby="[^"]+" aria-describedby="[^"]+">'
            r'<title id="[^"]+">[^<]+</title><desc id="[^"]+">[^<]+<',
            figure,
        )
        assert "<details><summary>" in figure
        assert "<table" in figure
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_texts_of_a_log_are_escaped() -> None:
    evaluation = with_hostile_texts(invented_evaluation(["MultiClick", "<b>x</b>"]))
    page = render_html(evaluation)
    balance = Balance(page)
    assert balance.open == []
    assert not balance.tags & {"script", "img"}
    assert all(value.startswith("#") for name, value in balance.attributes if name == "href")
    assert not [name for name, _ in balance.attributes if name.startswith("on")]
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;" in page
    assert "<b>x</b>" not in page
    assert "\x00" not in page
    assert HOSTILE[3] in page
    assert HOSTILE[4] in page


@pytest.mark.parametrize(
    ("left_out", "heading"),
    [
        (("words", "misleading", "gems"), "Ads to act on"),
        (
            ("logs", "models", "version", "level", "resamples", "seed", "command"),
            "How to reproduce this",
        ),
    ],
)
def test_a_section_with_nothing_to_show_is_left_out(
    left_out: tuple[str, ...], heading: str
) -> None:
    titles = headings(render_html(invented_evaluation().drop_details(*left_out)))
    assert titles == [name for name in SECTIONS if name != heading]


def test_details_may_be_missing_altogether() -> None:
    titles = headings(render_html(replace(invented_evaluation(), details={})))
    assert titles == [name for name in SECTIONS[:6] if name != "Ads to act on"]


def test_no_reverse_sessions_no_labels_and_no_profile_leave_their_parts_out() -> None:
    bare = invented_evaluation(reverse=False, labels=False)
    page = render_html(replace(bare.drop_details("transitions", "fatigue"), profile=None))
    assert "backward click" not in page
    assert "The log" not in headings(page)
    assert "PR-AUC" not in page
    assert "recall" not in page


def test_a_metric_without_buckets_has_no_chart_by_volume() -> None:
    evaluation = invented_evaluation().select(volume="all")
    page = render_html(evaluation)
    assert "by query volume</title>" not in page
    assert "First-click accuracy" in page


def test_one_model_alone_is_reported_without_comparing() -> None:
    page = render_html(invented_evaluation(["MultiClick"]))
    assert "<h1>MultiClick evaluated on week3.parquet</h1>" in page
    assert "Comparison" not in headings(page)
    assert "MultiClick expects 0.987 × the clicks observed" in page
    assert "It predicts the first click of 77.12\u00a0% of the sessions." in page


def test_of_sixteen_models_all_stand_in_tables_and_eight_are_drawn() -> None:
    page = render_html(invented_evaluation(SIXTEEN))
    assert len(page.encode()) < 2_000_000
    for model in SIXTEEN:
        assert cells(page, "First-click accuracy", model)
    title = "First-click accuracy by query volume"
    (chart,) = re.findall(rf"<svg[^>]*><title[^>]*>{title}</title>.*?</svg>", page)
    drawn = re.findall(r'<text [^>]*class="name"[^>]*>(.*?)</text>', chart)
    assert len(drawn) == 8
    assert "MultiClick" in drawn


def test_no_scores_at_all_still_make_a_page() -> None:
    empty = InventedEvaluation(
        SCORE_SCHEMA.empty_table(),
        DIFFERENCE_SCHEMA.empty_table(),
        CURVE_SCHEMA.empty_table(),
        None,
        {},
    )
    page = render_html(empty)
    assert "No log was given, so nothing is scored" in page
    assert Balance(page).open == []


def test_what_is_infinite_or_not_a_number_does_not_break_a_drawing() -> None:
    nothing: dict[str, float | None] = {
        "value": float("nan"),
        "low": float("nan"),
        "high": float("nan"),
    }
    endless: dict[str, float | None] = {
        "value": float("inf"),
        "low": float("inf"),
        "high": float("inf"),
    }
    evaluation = with_scores(
        invented_evaluation(), {("DBN", "perplexity"): nothing, ("ICM", "perplexity"): endless}
    )
    page = render_html(evaluation)
    assert cells(page, "Perplexity of a session", "DBN")[0].endswith("–</abbr></td>")
    assert "∞" in cells(page, "Perplexity of a session", "ICM")[0]
    assert not re.search(r'(d|x|y|width|height)="[^"]*(nan|inf)', page)


def test_what_is_not_known_of_moves_and_fatigue_is_left_blank() -> None:
    evaluation = invented_evaluation()
    details = {
        **evaluation.details,
        "transitions": [[0.5, 0.5], [None, float("nan")], [1.0, None]],
        "transition_support": [200.0, 0.0, 150.0],
        "fatigue": [0.5, 1.0, None, float("nan")],
    }
    page = render_html(replace(evaluation, details=details))
    moves = tables(page, "Where the next click goes")
    assert '<tr><th scope="row">1</th><td></td><td></td><td>0</td></tr>' in moves
    assert "one row with n &lt; 100 left out" in page
    assert tables(page, "When users stop").count("<tr>") == 3


def test_without_intervals_nothing_is_called_a_tie() -> None:
    page = render_html(with_differences(invented_evaluation(), []))
    assert 'class="tie"' not in page
    assert "No paired intervals were computed" in page


def test_what_was_dropped_and_every_setting_can_be_read(page: str) -> None:
    assert "click outside the page: 12; empty page: 3" in page
    assert "<td>nothing</td>" in page
    assert all(
        text in page
        for text in (
            "pooling=query",
            "strength=10",
            "<td>1,000</td>",
            "reclick evaluate logs/week3.parquet",
        )
    )


def test_the_file_is_whole_or_not_there(tmp_path: Path) -> None:
    evaluation = invented_evaluation(["PM", "AM"])
    path = write_html(evaluation, tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8") == render_html(evaluation)
    assert [found.name for found in path.parent.glob("[!.]*")] == ["report.html"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        write_html(evaluation, tmp_path / "folder")


def test_the_same_evaluation_gives_the_same_page() -> None:
    assert render_html(invented_evaluation()) == render_html(invented_evaluation())


def test_the_first_screen_says_which_model_to_use_and_why(page: str) -> None:
    (lede,) = re.findall(r'<p class="lede">(.*?)</p>', page)[:1]
    assert lede.startswith("Use MultiClick: of six models it has the best mean rank, and is best")
    assert "MultiClick expects 0.987 × the clicks observed [" in lede
    assert "; the others 0.877 (AM) to 1.052 (ICM)." in lede
    for anchor in ("ads-to-act-on-misleading-ads", "ads-to-act-on-hidden-gems"):
        assert f'href="#{anchor}">All 20</a>' in page
        assert f'id="{anchor}"' in page


def test_ads_to_act_on_have_intervals_and_impressions(page: str) -> None:
    table = tables(page, "Misleading ads")
    assert "<td>0.340<small>[0.272, 0.408]</small></td>" in table
    assert "<td>1,200</td><td>120</td>" in table
    assert table.count('scope="row"') == 20


def test_published_figures_are_only_behind_the_switch(page: str) -> None:
    (switch,) = re.findall(r'<details class="switch">.*</details>(?=</section>)', page)
    outside = page.replace(switch, "")
    assert 'class="published"' in switch
    assert 'class="published"' not in outside.partition("<body>")[2]
    assert "79.59" not in outside


def test_nothing_of_fewer_than_a_hundred_observations_is_drawn_in_silence() -> None:
    rare = invented_evaluation()
    rows = [
        {**row, "support": 9.0} if row["metric"] == "top_accuracy@3" else row
        for row in rare.scores.to_pylist()
    ]
    page = render_html(replace(rare, scores=pa.Table.from_pylist(rows, SCORE_SCHEMA)))
    assert " and which three ads (n\u00a0=\u00a09)." in page
    assert "<bdi>Which three ads</bdi>" not in page
    assert "where n ≥ 100" in page  # of the sessions with four clicks there are 74


def test_an_area_near_one_half_is_no_better_than_chance() -> None:
    chance: dict[str, float | None] = {"value": 0.51, "low": 0.48, "high": 0.54}
    page = render_html(with_scores(invented_evaluation(), {("DBN", "roc_auc"): chance}))
    assert "By the ROC area, DBN (0.5100) is no better than chance." in page


def test_a_model_that_was_passed_fitted_has_no_time_of_fitting() -> None:
    evaluation = invented_evaluation(["DBN"])
    evaluation.details["models"]["DBN"]["seconds"] = {"fit": None, "score": 2.0}
    page = render_html(evaluation)
    assert "score 2.0" in page
    assert "fit 0.0" not in page


def test_bins_of_few_ads_are_counted_and_not_drawn() -> None:
    evaluation = invented_evaluation(["DBN", "UBM"])
    rows = evaluation.curves.to_pylist()
    few = next(row for row in rows if (row["model"], row["curve"]) == ("DBN", "reliability"))
    few["support"] = 7.0
    page = render_html(replace(evaluation, curves=pa.Table.from_pylist(rows, CURVE_SCHEMA)))
    assert page.count("; one bin of fewer than 100 ads not drawn") == 1
