"""What notebooks show: HTML of objects, plots, and tables for other libraries."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import reclick as rc
from reclick.evaluation.views import ScoreView

LOG: dict[str, list[Any]] = {
    "query": ["pizza <b>"] * 8,
    "ads": [["a", "b", "c"]] * 8,
    "clicks": [[1], [2, 1], [], [3], [1], [2], [1, 3], []],
}


@pytest.fixture(scope="module")
def evaluation() -> rc.Evaluation:
    models = {"ubm": rc.UBM(), "<i>pm</i>": rc.PM()}
    return rc.evaluate(models, train=LOG, test=LOG, in_sample=True)


class Tags(HTMLParser):
    """Checks that tags are balanced, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(shown: Any) -> Tags:
    tags = Tags()
    tags.feed(shown._repr_html_())
    assert tags.open == []
    return tags


def test_a_log_shows_its_size_without_being_read() -> None:
    log = rc.read_sessions(LOG, ads={"a": "<script>"})
    assert "rows8" in parse(log).text
    assert log._summary is None
    list(log.batches())
    assert "8 in 6 of 8 sessions" in parse(log).text
    assert "pages only" in parse(rc.read_sessions(("q", ["a"]))).text


def test_a_model_shows_its_settings_and_what_it_was_fitted_on() -> None:
    model = rc.UBM()
    assert "nothing yet" in parse(model).text
    text = parse(model.fit(LOG)).text
    assert "8 sessions, 1 query, 3 (query, ad) pairs" in text
    assert "max_iterations=" in text


def test_an_evaluation_shows_the_main_metrics_with_text_escaped(evaluation: rc.Evaluation) -> None:
    tags = parse(evaluation)
    assert "<i>pm</i>" in tags.text
    assert "i" not in tags.seen
    assert tags.seen.count("tr") == 3
    value = evaluation.value("ubm", "perplexity")
    assert f"{value:.4f}" in tags.text


def test_results_show_what_they_print(evaluation: rc.Evaluation) -> None:
    comparison = rc.compare_rankings(rc.UBM().fit(LOG), LOG, LOG, draws=2)
    for each in (comparison, evaluation.profile):
        assert parse(each).text == str(each)


def test_no_text_colour_is_set_so_that_dark_pages_work(evaluation: rc.Evaluation) -> None:
    for shown in (evaluation, rc.UBM(), rc.read_sessions(LOG)):
        html = shown._repr_html_()
        assert ";color:" not in html
        assert "background:#" not in html
        assert len(html) < 8_000


def test_the_table_has_a_row_per_model(evaluation: rc.Evaluation) -> None:
    table = evaluation.table()
    assert table.column_names[:3] == ["model", "first_click_accuracy", "perplexity"]
    assert table["model"].to_pylist() == ["ubm", "<i>pm</i>"]
    assert table["perplexity"][0].as_py() == evaluation.value("ubm", "perplexity")
    frame = evaluation.to_pandas(["rank@2"], sessions="reverse")
    assert isinstance(frame, pd.DataFrame)
    value = evaluation.value("ubm", "rank@2", sessions="reverse")
    assert frame.loc["ubm", "rank@2"] == pytest.approx(value)
    assert isinstance(evaluation.to_polars(), pl.DataFrame)
    assert evaluation.to_polars().columns == table.column_names


@pytest.mark.parametrize(
    "options", [{"metrics": ["perplexit"]}, {"sessions": "none"}, {"volume": "0-9"}]
)
def test_an_unknown_metric_lists_the_right_ones(
    evaluation: rc.Evaluation, options: dict[str, Any]
) -> None:
    with pytest.raises(rc.SettingError, match="expected one of"):
        evaluation.table(**options)


def scores(values: dict[str, list[float | None]]) -> ScoreView:
    rows = [
        {"model": model, "metric": metric, "value": value, "low": None, "high": None}
        for metric, column in values.items()
        for model, value in zip("xyz", column, strict=True)
    ]
    schema = pa.schema(
        [("model", pa.string()), ("metric", pa.string())]
        + [(name, pa.float64()) for name in ("value", "low", "high")]
    )
    return ScoreView(pa.Table.from_pylist(rows, schema=schema), tuple(values))


def test_the_best_is_the_highest_or_the_lowest_and_ties_share_it() -> None:
    infinity = float("inf")
    view = scores(
        {
            "first_click_accuracy": [0.5, 0.7, 0.7],
            "perplexity": [1.2, infinity, 1.1],
            "log_likelihood": [-infinity, None, -infinity],
        }
    )
    assert view.best() == {(1, 0), (2, 0), (2, 1)}
    assert view.to_latex(2).splitlines()[4:7] == [
        r"x & 0.50 & 1.20 & −∞ \\",
        r"y & \textbf{0.70} & ∞ & – \\",
        r"z & \textbf{0.70} & \textbf{1.10} & −∞ \\",
    ]


def test_tables_for_other_libraries() -> None:
    table = rc.UBM().fit(LOG).relevance(query="pizza <b>")
    assert rc.to_pandas(table)["ad"].tolist() == table["ad"].to_pylist()
    assert rc.to_polars(table)["relevance"].to_list() == table["relevance"].to_pylist()
    latex = rc.to_latex(table.select(["query", "ad", "relevance", "satisfaction"]), digits=2)
    assert latex.splitlines()[0] == r"\begin{tabular}{llrr}"
    value = table["relevance"][0].as_py()
    assert rf"pizza <b> & {table['ad'][0]} & {value:.2f} & -- \\" in latex


def test_plots_draw_what_the_tables_have(evaluation: rc.Evaluation) -> None:
    figure = evaluation.plot(["perplexity", "first_click_accuracy"])
    first, second = figure.axes
    drawn = first.containers[0].lines[0].get_xdata()
    assert list(drawn) == evaluation.table(["perplexity"])["perplexity"].to_pylist()
    assert [label.get_text() for label in first.get_yticklabels()] == ["ubm", "<i>pm</i>"]
    assert second.get_title()

    (axis,) = evaluation.reliability.plot(["ubm"]).axes
    curves = evaluation.reliability.curves.to_pylist()
    x = sorted(row["x"] for row in curves if row["model"] == "ubm")
    assert np.allclose(axis.lines[0].get_xdata(), x)
    with pytest.raises(rc.SettingError, match="models: got 'dbn'"):
        evaluation.reliability.plot(["dbn"])
    with pytest.raises(rc.SettingError, match="models"):
        evaluation.reliability.plot([])

    transitions = evaluation.transitions
    (axis,) = transitions.plot().axes
    assert np.allclose(axis.images[0].get_array(), transitions.shares)
    assert np.array(transitions.shares).shape == (4, 3)

    assert evaluation.profile is not None
    assert len(evaluation.profile.plot().axes) == 2
    model = rc.MultiClick().fit(LOG)
    both = rc.StopsAndTransitions(model.eta_, model.gamma_)
    assert np.allclose(both.plot().axes[0].images[0].get_array(), model.gamma_)


def test_figures_can_be_saved(evaluation: rc.Evaluation, tmp_path: Any) -> None:
    for number, figure in enumerate(
        (evaluation.plot(), evaluation.reliability.plot(), evaluation.transitions.plot())
    ):
        figure.savefig(tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 1000


def test_without_matplotlib_the_error_says_how_to_install_it(
    evaluation: rc.Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(rc.MissingExtraError, match=r"pip install 'reclick\[plot\]'"):
        evaluation.plot()
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(rc.MissingExtraError, match="polars is not installed"):
        evaluation.to_polars()


def test_nothing_of_it_is_imported_before_it_is_asked_for() -> None:
    log = "{'query': ['q'], 'ads': [['a']], 'clicks': [[1]]}"
    code = (
        f"import sys, reclick as rc; rc.UBM(max_iterations=1).fit({log})._repr_html_(); "
        "rc.Evaluation; print({'matplotlib', 'polars', 'IPython'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout.strip() == b"set()"
