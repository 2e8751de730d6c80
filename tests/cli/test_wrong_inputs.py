"""What the command line says about inputs that a newcomer often gets wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import reclick as rc
from reclick.logs.files import log_file, parquet
from tests.support.commands import Run, write_log

SPACES = "query,ads,clicks\n" + "shoes,a1 a2 a3,1\nboots,a1 a2,\n" * 4
COMMAS = 'query,ads,clicks\nshoes,"a1, a2, a3",1\n'


def write_text(path: str, text: str) -> str:
    Path(path).write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("check", "space.csv"),
        ("convert", "space.csv", "--to", "sessions.parquet"),
        ("fit", "space.csv", "--to", "model"),
        ("fit", "space.csv", "--model", "multiclick", "--to", "model"),
        ("evaluate", "--train", "space.csv", "--test", "other.csv", "--models", "pbm", "--to", "r"),
    ],
)
def test_lists_in_a_notation_of_their_own_cause_one_warning(
    run: Run, words: tuple[str, ...]
) -> None:
    write_text("space.csv", SPACES)
    write_text("other.csv", "query,ads,clicks\nsandals,a1|a2,2\n")
    code, _, err = run(*words)
    assert code == 0
    assert err.count("warning:") == 1
    assert (
        "warning: space.csv: every page has one ad, such as 'a1 a2 a3'. "
        'Lists are written a1|a2|a3 or ["a1", "a2", "a3"].'
    ) in err


@pytest.mark.parametrize(
    ("text", "has_warning"),
    [
        (COMMAS, True),
        (COMMAS.replace(", ", ","), True),
        (COMMAS + "shoes,b|c,1\n", False),
        ("query,ads,clicks\nshoes,a1,1\nshoes, a2 ,1\n", False),
    ],
)
def test_pages_of_one_ad_are_suspicious_only_if_the_ad_looks_like_a_list(
    run: Run, text: str, has_warning: bool
) -> None:
    assert ("every page has one ad" in run("check", write_text("log.csv", text))[2]) == has_warning


def test_pages_of_one_ad_in_parquet_are_lists_already(run: Run) -> None:
    write_text("space.csv", SPACES)
    run("convert", "space.csv", "--to", "sessions.parquet")
    assert run("check", "sessions.parquet")[2] == ""


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_a_file_that_may_not_be_opened_is_not_called_damaged(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    if name == "log.csv":
        write_text(name, SPACES)
        monkeypatch.setattr(log_file.LogFile, "_open_bytes", refuse)
    else:
        write_log(name)
        monkeypatch.setattr(parquet, "read_layout", refuse)
    code, _, err = run("check", name)
    assert (code, err) == (
        2,
        f"error: {name} cannot be opened: permission denied. Check who may read it.\n",
    )


def test_names_are_whole_in_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run("models", "luceclick")
    assert "attractiveness_strength" in out
    assert "…" not in "".join(line.split("│")[1] for line in out.splitlines() if "│" in line)


@pytest.mark.parametrize("name", ["r.pdf", "r.md", "r.txt", "r.html.gz"])
def test_a_report_is_not_written_under_the_name_of_another_type(run: Run, name: str) -> None:
    write_log("log.parquet")
    run("fit", "log.parquet", "--model", "dctr", "--to", "daily")
    code, _, err = run("report", "daily", "--to", name)
    assert code == 2
    assert err == (
        f"error: {name}: the report is written as HTML. Give a name that ends in .html.\n"
    )
    assert not Path(name).exists()
    with pytest.raises(rc.UsageError, match="Give a name that ends in"):
        rc.load("daily").report().to_html(name)
    assert run("report", "daily", "--to", "r.HTM")[0] == 0


def test_an_ads_table_without_text_is_an_error(run: Run) -> None:
    write_log("log.parquet")
    write_text("labels.csv", "query,ad,relevance\nshoes,a,1\n")
    code, _, err = run("fit", "log.parquet", "--ads", "labels.csv", "--to", "model")
    assert code == 2
    assert (
        "labels.csv has no text of ads: no column title, description or display_url. "
        "It has query, ad, relevance. Give a table of ads and their text"
    ) in err
    assert not Path("model").exists()


@pytest.mark.parametrize("model", ["luceclick", "multiclick", "tcm"])
def test_a_model_in_the_place_of_a_log_is_an_error(run: Run, model: str) -> None:
    run("fit", write_log("log.parquet"), "--model", "dctr", "--to", "daily")
    code, _, err = run("fit", "daily", "--model", model, "--to", "mc")
    assert code == 2
    assert err.startswith("error: daily is a model, not a log. Give the log, such as ")


def test_a_long_table_without_all_its_columns_is_recognised(run: Run) -> None:
    write_text("long.csv", "query,ad,position,click\nshoes,a,1,0\n")
    code, _, err = run("check", "long.csv")
    assert code == 2
    assert "It looks like one row per ad: read it with --format long, which needs session_id" in err
    with pytest.raises(rc.LogError, match="read it with format='long', which needs"):
        rc.read_sessions("long.csv")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ("rank", "daily", "texts.csv", "--to", "rk.parquet"),
            (
                "texts.csv has no column query. It has ad, title. "
                "Rename the column: candidates need query and ad (or ads)."
            ),
        ),
        (
            ("rank", "daily", "numbers.csv", "--to", "rk.parquet"),
            (
                "numbers.csv has no column ad. It has query, n. "
                "Rename the column: candidates need query and ad (or ads)."
            ),
        ),
        (
            ("auction", "daily", "log.parquet", "--to", "prices.parquet"),
            (
                "log.parquet has no column ad. It has query, ads, clicks. "
                "Rename the column: bids need query, ad and bid (or satisfaction_bid)."
            ),
        ),
    ],
)
def test_tables_whose_columns_cannot_be_mapped_are_to_be_renamed(
    run: Run, words: tuple[str, ...], error: str
) -> None:
    run("fit", write_log("log.parquet"), "--model", "luceclick", "--to", "daily")
    write_text("texts.csv", "ad,title\na,Shoes\n")
    write_text("numbers.csv", "query,n\nshoes,1\n")
    code, _, err = run(*words)
    assert (code, err) == (2, f"error: {error}\n")


def test_a_flag_for_each_ad_is_not_a_list_of_clicks(run: Run) -> None:
    _, out, err = run("check", write_text("flags.csv", "query,ads,clicks\nshoes,a1|a2,0|1\n"))
    assert (
        "position 0 on a page of 2 ads (clicks are positions from 1, not one flag per ad)"
    ) in out
    assert "no click" not in err  # no row is left


def test_lists_as_pandas_prints_them_are_explained(run: Run) -> None:
    write_text("pandas.csv", "query,ads,clicks\nshoes,\"['a1', 'a2']\",1\n")
    _, out, _ = run("check", "pandas.csv")
    assert "ads: expected a1|a2|a3 or JSON with double quotes, got \"['a1', 'a2']\"" in out


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("p.csv", b"PAR1\x15\x04", "p.csv is a Parquet file: rename it to end in .parquet."),
        (
            "gz.csv",
            gzip.compress(SPACES.encode(), mtime=0),
            "gz.csv is compressed with gzip: rename it to end in .csv.gz.",
        ),
        ("u16.tsv", SPACES.encode("utf-16"), "u16.tsv is UTF-16: save it as UTF-8."),
    ],
)
def test_other_types_of_files_named_csv_are_recognised(
    run: Run, name: str, content: bytes, error: str
) -> None:
    Path(name).write_bytes(content)
    assert run("check", name)[::2] == (2, f"error: {error}\n")


def test_names_of_models_may_be_in_any_case(run: Run) -> None:
    log = write_log("log.parquet")
    assert run("fit", log, "--model", "UBM", "--to", "model")[0] == 0
    assert rc.load("model").name == "ubm"
    assert run("models", "UBM") == run("models", "ubm")
    words = ("evaluate", "--train", log, "--test", log, "--in-sample", "--models", "DCTR,Pbm")
    assert run(*words, "--to", "results")[0] == 0
    assert rc.MODELS["PBM"] is rc.PBM
    assert list(rc.evaluate(["PBM"], log, train=log, in_sample=True).details["models"]) == ["PBM"]
    assert run("fit", log, "--model", "DCTR", "--to", "rates")[0] == 0
    again = ("fit", log, "--update", "--again", "--model", "DCTR", "--to", "rates")
    assert "holds the model" not in run(*again)[2]
