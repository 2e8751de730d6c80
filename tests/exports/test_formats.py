"""Every format: files by hand, odd texts that come back, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reclick.errors import LogError, SettingError, StoreError
from reclick.exports import EXPORT_FORMATS, ExportResult, export
from reclick.exports.judgment_table import PairBatches
from reclick.models import DBN, DCTR
from tests.support.export_data import (
    BY_HAND,
    LEFT_OUT,
    LOG,
    ODD,
    RED,
    TEXTS,
    WORDS,
    rates,
    shown_once,
)

PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8, unique=True)
PAIRS_OF_WORDS = st.lists(st.tuples(TEXTS, WORDS), min_size=1, max_size=8, unique=True)
ANY: dict[str, Any] = {"cuts": (0.5,), "min_support": 0}
quick = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


def test_qrels_by_hand(tmp_path: Path) -> None:
    found = export(rates(), tmp_path / "judgments.qrels", **BY_HAND)
    text = (tmp_path / "judgments.qrels").read_bytes().decode()
    assert text == "50%25%20off%09pizza 0 a 2\nred%20shoes 0 a 3\nred%20shoes 0 b 1\n"
    assert (
        tmp_path / "judgments.qrels.queries.tsv"
    ).read_bytes().decode() == "50%25%20off%09pizza\t50%25 off%09pizza\nred%20shoes\tred shoes\n"
    assert found == ExportResult(
        files=(tmp_path / "judgments.qrels", tmp_path / "judgments.qrels.queries.tsv"),
        rows=3,
        format="TREC qrels, inferred from .qrels",
        queries=2,
        grades={0: 0, 1: 1, 2: 1, 3: 1},
        cuts=(0.2, 0.5, 0.7),
        column="relevance",
        rule="0.2, 0.5, 0.7 on relevance",
        left_out=LEFT_OUT,
        single_grade_queries=1,
        comparisons=1,
        overlap=1.0,
    )


def test_quepid_by_hand(tmp_path: Path) -> None:
    export(rates(), tmp_path / "judgments.csv", **BY_HAND)
    assert (
        tmp_path / "judgments.csv"
    ).read_bytes() == b"query,docid,rating\n50% off\tpizza,a,2\nred shoes,a,3\nred shoes,b,1\n"


def test_opensearch_by_hand(tmp_path: Path) -> None:
    export(rates(), tmp_path / "judgments.json", **BY_HAND, name="clicks of May")
    body = json.loads((tmp_path / "judgments.json").read_bytes())
    assert body == {
        "name": "clicks of May",
        "description": "Reclick, dctr: grades by cut points 0.2, 0.5, 0.7 on relevance, level 0.9,"
        " of pairs shown 2 times or more",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [
            {"query": ODD, "ratings": [{"docId": "a", "rating": "2"}]},
            {
                "query": RED,
                "ratings": [{"docId": "a", "rating": "3"}, {"docId": "b", "rating": "1"}],
            },
        ],
    }


def test_letor_with_features_by_hand(tmp_path: Path) -> None:
    features = {
        "query": [RED, ODD, RED],
        "ad": ["b", "a", "a"],
        "price": [2, 3, None],
        "title": ["x", "y", "z"],
        "bm25": [0.1, float("nan"), 1e-7],
    }
    export(rates(), tmp_path / "judgments.letor", features=features, **BY_HAND)
    assert (tmp_path / "judgments.letor").read_bytes().decode() == (
        "# features: 1 price, 2 bm25\n"
        "# grades: cut points 0.2, 0.5, 0.7 on relevance, pairs shown 2 times or more\n"
        "2 qid:1 1:3 # a 50%25 off%09pizza\n"
        "3 qid:2 2:1e-7 # a red shoes\n"
        "1 qid:2 1:2 2:0.1 # b red shoes\n"
    )
    assert (
        tmp_path / "judgments.letor.queries.tsv"
    ).read_bytes().decode() == "1\t50%25 off%09pizza\n2\tred shoes\n"


def test_parquet_has_every_pair_and_what_the_grades_were_made_with(tmp_path: Path) -> None:
    model = DBN().fit(LOG)
    found = export(model, tmp_path / "relevance.parquet", cuts=(0.2, 0.3), min_support=2)
    table = pq.read_table(tmp_path / "relevance.parquet")
    assert table.drop_columns(["grade"]).equals(model.relevance())
    rows = table.to_pylist()
    assert [row["grade"] for row in rows if row["impressions"] >= 2] == [
        sum(row["relevance_low"] >= cut for cut in (0.2, 0.3)) for row in rows[:-1]
    ]
    assert rows[-1]["grade"] is None
    assert json.loads(table.schema.metadata[b"reclick"])["cuts"] == [0.2, 0.3]
    assert (found.rows, found.left_out) == (4, {})
    assert found.notes == ("1 of the pairs have no grade: they were shown fewer than 2 times.",)


def test_the_models_own_features_give_its_numbers_back(tmp_path: Path) -> None:
    model = DBN().fit(LOG)
    export(model, tmp_path / "judgments.letor", cuts=(0.1,), min_support=1)
    lines = (tmp_path / "judgments.letor").read_text(encoding="utf-8").splitlines()
    head, lines = lines[0], lines[2:]
    assert head == (
        "# features: 1 attractiveness, 2 satisfaction, 3 relevance, 4 relevance_low,"
        " 5 relevance_high, 6 log_impressions"
    )
    written = [
        [float(cell.split(":")[1]) for cell in line.partition(" # ")[0].split()[2:]]
        for line in lines
    ]
    columns = ("attractiveness", "satisfaction", "relevance", "relevance_low", "relevance_high")
    expected = model.relevance()
    assert [values[:5] for values in written] == [
        [row[name] for name in columns] for row in expected.to_pylist()
    ]


def test_a_model_without_satisfaction_leaves_that_feature_out(tmp_path: Path) -> None:
    export(rates(), tmp_path / "judgments.letor", **BY_HAND)
    lines = (tmp_path / "judgments.letor").read_text(encoding="utf-8").splitlines()[2:]
    assert all(
        [cell.split(":")[0] for cell in line.split()[2:7]] == ["1", "3", "4", "5", "6"]
        for line in lines
    )


@quick
@given(PAIRS_OF_WORDS)
def test_odd_texts_come_back_from_qrels(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    export(shown_once(pairs), tmp_path / "x.qrels", **ANY)
    with (tmp_path / "x.qrels").open(encoding="utf-8", newline="\n") as file:
        rows = [line.split() for line in file]
    assert sorted((unquote(query), ad) for query, zero, ad, grade in rows) == sorted(pairs)
    with (tmp_path / "x.qrels.queries.tsv").open(encoding="utf-8", newline="\n") as file:
        listed = dict(line.removesuffix("\n").split("\t") for line in file)
    assert {query: unquote(text) for query, text in listed.items()} == {
        query: unquote(query) for query, *_ in rows
    }


@quick
@given(PAIRS)
def test_odd_texts_come_back_from_quepid(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    export(shown_once(pairs), tmp_path / "x.csv", **ANY)
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted((row["query"], row["docid"]) for row in rows) == sorted(pairs)
    assert {row["rating"] for row in rows} <= {"0", "1"}


@quick
@given(PAIRS)
def test_odd_texts_come_back_from_opensearch(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    export(shown_once(pairs), tmp_path / "x.json", **ANY)
    body = json.loads((tmp_path / "x.json").read_bytes())
    assert sorted(
        (entry["query"], rating["docId"])
        for entry in body["judgmentRatings"]
        for rating in entry["ratings"]
    ) == sorted(pairs)


@quick
@given(PAIRS_OF_WORDS)
def test_odd_texts_come_back_from_letor(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    export(shown_once(pairs), tmp_path / "x.letor", **ANY)
    with (tmp_path / "x.letor").open(encoding="utf-8", newline="\n") as file:
        lines = [line.removesuffix("\n") for line in file][2:]
    comments = [line.partition(" # ")[2].partition(" ") for line in lines]
    assert sorted((unquote(query), ad) for ad, _, query in comments) == sorted(pairs)


@quick
@given(PAIRS)
def test_odd_texts_come_back_from_parquet(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    export(shown_once(pairs), tmp_path / "x.parquet", **ANY)
    table = pq.read_table(tmp_path / "x.parquet")
    assert sorted(zip(table["query"].to_pylist(), table["ad"].to_pylist(), strict=True)) == sorted(
        pairs
    )


@pytest.mark.parametrize("suffix", [".qrels", ".csv", ".json", ".letor", ".parquet"])
def test_batches_make_the_same_file_as_the_whole(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = DBN().fit(
        {
            "query": [f"q{i % 7}" for i in range(60)],
            "ads": [["a", "b"], ["c"]] * 30,
            "clicks": [[1], []] * 30,
        }
    )
    whole = export(
        model,
        tmp_path / f"whole{suffix}",
        min_support=3,
        pairs=model.relevance().select(["query", "ad"]),
    )
    monkeypatch.setattr(
        "reclick.exports.judgment_table.PairBatches",
        lambda model, pairs: PairBatches(model, pairs, size=2),
    )
    batched = export(model, tmp_path / f"batched{suffix}", min_support=3)
    for one, other in zip(whole.files, batched.files, strict=True):
        if suffix == ".parquet":
            assert pq.read_table(one).equals(pq.read_table(other))
        else:
            assert one.read_text(encoding="utf-8").replace("whole", "batched") == other.read_text(
                encoding="utf-8"
            )
    assert (batched.rows, batched.grades, batched.cuts, batched.queries) == (
        whole.rows,
        whole.grades,
        whole.cuts,
        whole.queries,
    )


@pytest.mark.parametrize("suffix", ["qrels", "letor"])
def test_an_ad_whose_id_has_white_space_is_refused_or_left_out(tmp_path: Path, suffix: str) -> None:
    model = shown_once([("q", "a b"), ("q", "c"), ("r", "d\u3000e")])
    path = tmp_path / f"x.{suffix}"
    with pytest.raises(LogError, match=r"ad 'a b': .* white space.*on_error='drop'"):
        export(model, path, **ANY)
    assert list(tmp_path.iterdir()) == []
    found = export(model, path, **ANY, on_error="drop")
    assert found.left_out == {"whose ad's id has white space": 2}
    assert (found.rows, found.queries, sum(found.grades.values())) == (1, 1, 1)
    with pytest.raises(
        SettingError, match="No pair is left to grade: 1 whose ad's id has white space"
    ):
        export(shown_once([("q", "a b")]), path, **ANY, on_error="drop")


def test_pairs_without_features_are_left_out_and_counted(tmp_path: Path) -> None:
    found = export(
        rates(),
        tmp_path / "x.letor",
        features=pa.table({"query": [RED], "ad": ["a"], "f": [1.0]}),
        **BY_HAND,
    )
    assert found.left_out == {**LEFT_OUT, "that have no features": 2}
    assert (tmp_path / "x.letor").read_text(encoding="utf-8").splitlines()[2:] == [
        "3 qid:1 1:1 # a red shoes"
    ]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"query": ["q"], "ad": ["a"], "text": ["x"]}, "no column of numbers"),
        (
            {"query": ["q", "q"], "ad": ["a", "a"], "f": [1, 2]},
            "the pair 'q' and 'a' is in the table twice",
        ),
        ({"query": ["q", None], "ad": ["a", "b"], "f": [1, 2]}, "1 rows have no query"),
        ({"query": ["q"], "f": [1]}, "no column ad"),
    ],
)
def test_features_that_cannot_be_used_are_refused(
    tmp_path: Path, features: object, message: str
) -> None:
    with pytest.raises(LogError, match=message):
        export(rates(), tmp_path / "x.letor", features=features, **BY_HAND)


def test_features_may_be_a_file(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"ad": ["a", "a"], "f": [5, 6], "query": [RED, ODD]}),
        tmp_path / "features.parquet",
    )
    export(rates(), tmp_path / "x.letor", features=tmp_path / "features.parquet", **BY_HAND)
    assert (tmp_path / "x.letor").read_text(encoding="utf-8").splitlines()[2:] == [
        "2 qid:1 1:6 # a 50%25 off%09pizza",
        "3 qid:2 1:5 # a red shoes",
    ]


def test_text_that_quepid_or_a_spreadsheet_misreads_is_noted(tmp_path: Path) -> None:
    found = export(
        shown_once([("=1+1", "a"), ('say "hi"', "a"), ("line\nbreak", "-b"), ("plain, text", "a")]),
        tmp_path / "x.csv",
        **ANY,
    )
    assert [note.partition(" pairs")[0] for note in found.notes] == ["2", "2"]
    assert ["double quote or a line break" in found.notes[0], "formula" in found.notes[1]] == [
        True,
        True,
    ]
    assert export(rates(), tmp_path / "y.csv", **BY_HAND).notes == ()


def test_the_format_is_inferred_from_the_suffix_or_given(tmp_path: Path) -> None:
    assert export(rates(), tmp_path / "x.csv", **BY_HAND).format == "Quepid CSV, inferred from .csv"
    found = export(rates(), tmp_path / "judgments.txt", format="qrels", **BY_HAND)
    assert (found.format, found.files[1].name) == ("TREC qrels", "judgments.txt.queries.tsv")
    assert (tmp_path / "judgments.txt").read_text(encoding="utf-8").startswith("50%25")


def test_what_cannot_be_written_is_refused_before_anything_is(tmp_path: Path) -> None:
    with pytest.raises(
        SettingError,
        match=r"x\.txt: the format cannot be inferred .* are \.qrels \(qrels\), .* format=",
    ):
        export(rates(), tmp_path / "x.txt")
    with pytest.raises(
        SettingError,
        match=f"format: got 'trec', expected one of {', '.join(map(repr, EXPORT_FORMATS))}",
    ):
        export(rates(), tmp_path / "x.txt", format="trec")
    with pytest.raises(
        SettingError, match="features is for the format 'letor' and has no effect on 'qrels'"
    ):
        export(rates(), tmp_path / "x.qrels", features={})
    with pytest.raises(SettingError, match="log is for the format 'propensities'"):
        export(rates(), tmp_path / "x.csv", log=LOG)
    with pytest.raises(SettingError, match="on_error: got 'ignore'"):
        export(rates(), tmp_path / "x.csv", on_error="ignore")  # type: ignore[arg-type]
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(SettingError, match="is a folder"):
        export(rates(), tmp_path / "folder.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"]


@pytest.mark.parametrize("suffix", ["qrels", "csv", "json", "letor", "parquet"])
def test_an_export_that_fails_leaves_the_file_that_was_there(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"x.{suffix}"
    found = export(rates(), path, **BY_HAND)
    before = {file.name: file.read_bytes() for file in found.files}

    def full(self: object, table: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("line_formats.write_rows", "opensearch.write_rows"):
        monkeypatch.setattr(f"reclick.exports.{name}", full)
    monkeypatch.setattr("reclick.exports.parquet.pq.ParquetWriter.write_table", full)
    with pytest.raises(StoreError, match="The disk is full"):
        export(DCTR().fit(LOG), path, min_support=1)
    assert {file.name: file.read_bytes() for file in tmp_path.glob("[!.]*")} == before


def test_a_file_too_large_for_opensearch_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reclick.exports.opensearch.MAX_REQUEST_BYTES", 10)
    assert "over 100 MB" in export(rates(), tmp_path / "x.json", **BY_HAND).notes[0]


def test_the_result_as_text(tmp_path: Path) -> None:
    text = str(export(rates(), tmp_path / "x.qrels", **BY_HAND)).splitlines()
    assert text[:4] + text[6:] == [
        "TREC qrels, inferred from .qrels: 3 pairs, 2 queries",
        "grades         0: 0   1: 1   2: 1   3: 1",
        "cut points     0.2, 0.5, 0.7 on relevance",
        "no grade       0 of 2 (0%) queries",
        "left out       1 pair shown fewer than 2 times",
        str(tmp_path / "x.qrels"),
        str(tmp_path / "x.qrels.queries.tsv"),
    ]
