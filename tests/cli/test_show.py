"""`reclick show`: what a model has seen, its parameters, and its values with intervals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from tests.support import dated_logs
from tests.support.commands import Run, write_log


@pytest.fixture
def model(run: Run) -> str:
    pq.write_table(dated_logs.day(1), "day1.parquet")
    pq.write_table(dated_logs.day(2), "day2.parquet")
    ads = {"ad": ["a", "b"], "title": ["Red Boots", "Shoes"]}
    pq.write_table(pa.table(ads), "ads.parquet")
    fit = ("fit", "--to", "model", "--ads", "ads.parquet", "-q")
    assert run(*fit, "day1.parquet", "--model", "multiclick")[0] == 0
    assert run(*fit, "day2.parquet", "--update")[0] == 0
    return "model"


def test_the_logs_and_parameters_of_a_model(run: Run, model: str) -> None:
    code, out, err = run("show", model)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "multiclick"
    assert any(line.split() == ["sessions", "240"] for line in lines)
    fit, update = (line for line in lines if ".parquet" in line)
    assert fit.split()[0] == "fit"
    assert "day1.parquet  120 sessions  2026-03-01T" in fit
    assert update.split()[0] == "update"
    assert any(line.split()[0] == "eta_" for line in lines if line.strip())
    assert "gamma_" in out
    assert "variant='paper'" in out
    assert "note: " in out  # the paper's variant has too low click probabilities


def test_the_ads_of_a_query_best_first_with_intervals_and_the_prior(run: Run, model: str) -> None:
    code, out, _ = run("show", model, "--query", "shoes", "--level", "0.8")
    assert code == 0
    lines = out.splitlines()
    table = rc.load(model).relevance(query="shoes", level=0.8).to_pylist()
    assert [line.split()[0] for line in lines[1:4]] == [row["ad"] for row in table]
    best = table[0]
    interval = (
        f"{best['relevance']:.3f} [{best['relevance_low']:.3f}, {best['relevance_high']:.3f}]"
    )
    assert interval in lines[1]
    assert lines[4].startswith("(an ad not seen)")
    assert "80 % intervals" in lines[5]


def test_an_ad_on_all_its_queries_and_on_one(run: Run, model: str) -> None:
    code, out, _ = run("show", model, "--ad", "a")
    assert code == 0
    assert {line.split()[0] for line in out.splitlines()[1:3]} == {"boots", "shoes"}
    assert "words: red boots" in out
    code, out, _ = run("show", model, "--ad", "a", "--query", "boots", "--json")
    (row,) = json.loads(out)["values"]
    assert (row["query"], row["ad"]) == ("boots", "a")
    code, out, _ = run("show", model, "--query", "boots", "--top", "1")
    assert "2 more: raise --top" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--query", "shose"), "--query: got 'shose', expected one of the 2 .* such as shoes"),
        (("--ad", "zzz"), "--ad: got 'zzz', expected one of the 3 that the model has seen"),
        (("--query", "shoes", "--level", "2"), "level"),
        (("--query", "shoes", "--top", "0"), "top"),
        (("--query", ""), "--query: got ''"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(
    run: Run, model: str, words: tuple[str, ...], expected: str
) -> None:
    code, out, err = run("show", model, *words)
    assert (code, out) == (2, "")
    assert re.search(expected, " ".join(err.split()))


def test_a_folder_that_holds_no_model_is_refused(run: Run) -> None:
    Path("empty").mkdir()
    assert run("show", "empty")[0] == 2
    assert run("count", write_log("log.parquet"), "--to", "counts", "-q")[0] == 0
    code, _, err = run("show", "counts")
    assert code == 2
    assert "holds counts, expected a model" in err


@pytest.mark.parametrize("name", ["gctr", "pm", "ubm", "dbn"])
def test_every_kind_of_model_is_shown(run: Run, name: str) -> None:
    log = write_log("log.parquet")
    assert run("fit", log, "--model", name, "--to", "m", "-q")[0] == 0
    assert run("show", "m")[0] == 0
    assert run("show", "m", "--query", "shoes")[0] in {0, 2}
