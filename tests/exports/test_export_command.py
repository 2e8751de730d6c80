"""`reclick export` as a user types it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reclick.__main__ import main
from reclick.models import DCTR, PBM
from tests.support.export_data import LOG, RED

Run = Callable[..., tuple[int, str, str]]
BY_HAND = ("--cuts", "0.2,0.5,0.7", "--bound", "value", "--min-support", "2")

OVERLAP_LINE = (
    "overlap        100% of 1 comparisons of two ads of a query with different grades: their 90% "
    "intervals overlap"
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run the command in a folder with two models and a log: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(
        "reclick.runtime.jit.cache_is_empty", lambda: False
    )  # whatever was compiled before
    DCTR(attractiveness_strength=0).fit(LOG).save("rates")
    PBM().fit(LOG).save("pbm")
    pq.write_table(pa.table(LOG), "log.parquet")

    def command(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["reclick", "export", *words])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return command


def test_it_reports_what_it_wrote_and_left_out(run: Run) -> None:
    code, out, _ = run("rates", "--to", "x.qrels", *BY_HAND)
    assert code == 0
    assert out.splitlines() == [
        "TREC qrels, inferred from .qrels: 3 pairs, 2 queries",
        "grades         0: 0   1: 1   2: 1   3: 1",
        "cut points     0.2, 0.5, 0.7 on relevance",
        "no grade       0 of 2 (0%) queries",
        "single grade   1 of 2 (50%) graded queries, which cannot distinguish rankings",
        OVERLAP_LINE,
        "left out       1 pair shown fewer than 2 times",
        "x.qrels",
        "x.qrels.queries.tsv",
    ]
    assert Path("x.qrels").read_text(encoding="utf-8").endswith("red%20shoes 0 b 1\n")


@pytest.mark.parametrize("suffix", ["csv", "json", "letor", "parquet"])
def test_every_format_by_its_suffix(run: Run, suffix: str) -> None:
    assert run("rates", "--to", f"out/x.{suffix}", "--min-support", "1")[0] == 0
    assert Path(f"out/x.{suffix}").stat().st_size > 0


def test_options_of_single_formats(run: Run) -> None:
    pq.write_table(pa.table({"query": [RED], "ad": ["a"], "f": [2.5]}), "features.parquet")
    assert run("rates", "--to", "x.letor", "--features", "features.parquet", *BY_HAND)[0] == 0
    assert (
        Path("x.letor").read_text(encoding="utf-8").splitlines()[-1]
        == "3 qid:1 1:2.5 # a red shoes"
    )
    assert (
        run("rates", "--to", "x.json", "--name", "May", "--pairs", "features.parquet", *BY_HAND)[0]
        == 0
    )
    assert Path("x.json").read_text(encoding="utf-8").startswith('{"name": "May"')


def test_propensities(run: Run) -> None:
    assert run("pbm", "--to", "p.csv", "--output-format", "propensities") == (
        0,
        "click propensities: 2 positions\np.csv\n",
        "",
    )
    assert (
        run("rates", "--to", "p.csv", "--output-format", "propensities", "--log", "log.parquet")[0]
        == 0
    )
    head, *rows = (
        line.split(",") for line in Path("p.csv").read_text(encoding="utf-8").splitlines()
    )
    assert head == ["position", "propensity", "impressions"]
    assert [float(cell) for row in rows for cell in row] == pytest.approx([1, 1, 9, 2, 1, 4])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rates", "--to", "x.txt"), "the format cannot be inferred from the suffix"),
        (("rates", "--to", "x.txt"), "parquet, propensities with --output-format."),
        (("rates", "--to", "x.txt", "--format", "qrels"), "give --output-format qrels."),
        (
            ("rates", "--to", "x.csv", "--cuts", "0.5,0.1"),
            "--cuts: got (0.5, 0.1), expected increasing numbers",
        ),
        (("rates", "--to", "x.csv", "--cuts", "some"), "--cuts: got 'some'"),
        (("rates", "--to", "x.csv", "--min-support", "99"), "No pair is left to grade"),
        (("nowhere", "--to", "x.csv"), "nowhere does not exist"),
        (("rates", "--to", "p.csv", "--output-format", "propensities"), "give a log with --log."),
        (("rates", "--to", "x.csv", "--on-error", "maybe"), "--on-error: got 'maybe'"),
    ],
)
def test_errors_are_one_clear_line(run: Run, words: tuple[str, ...], message: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert not Path("x.csv").exists()


def test_the_help_shows_an_example(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "Example: reclick export model --to judgments.qrels" in " ".join(out.split())


def test_an_input_is_not_replaced(run: Run) -> None:
    pq.write_table(pa.table({"query": ["red"], "ad": ["a"]}), "pairs.parquet")
    before = Path("pairs.parquet").read_bytes(), Path("log.parquet").read_bytes()
    code, _, errors = run("rates", "--pairs", "pairs.parquet", "--to", "pairs.parquet")
    assert code == 2
    assert "is one of the inputs, which would be lost" in errors
    words = ("pbm", "--output-format", "propensities", "--log", "log.parquet")
    code, _, errors = run(*words, "--to", "log.parquet")
    assert code == 2
    assert "is the log itself, which would be lost" in errors
    assert (Path("pairs.parquet").read_bytes(), Path("log.parquet").read_bytes()) == before
