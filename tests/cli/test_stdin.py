"""A log from standard input: - in place of a file."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from tests.support.commands import Run, write_log

CSV = b"query,ads,clicks\nq,a|b,1\nq,b|a,\n"
JSON = b'{"query": "q", "ads": ["a", "b"], "clicks": [1]}\n'
ROOT = Path(__file__).parents[2]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (CSV, 2),
        (CSV.replace(b",", b"\t"), 2),
        (JSON, 1),
        (b"\xef\xbb\xbf" + JSON, 1),
        (b"\n  " + JSON, 1),
        (gzip.compress(CSV, mtime=0), 2),
        (gzip.compress(JSON * 50, mtime=0), 50),
    ],
)
def test_its_type_is_known_by_its_first_bytes(
    run: Run, pipe: Callable[[bytes], None], content: bytes, rows: int
) -> None:
    pipe(content)
    code, out, err = run("check", "-", "--json")
    assert code == 0, err
    assert json.loads(out)["summary"]["kept"] == rows


def test_parquet_and_other_formats_come_through_a_pipe(
    run: Run, pipe: Callable[[bytes], None]
) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"query": ["q"], "ads": [["a"]], "clicks": [[1]]}), sink)
    pipe(sink.getvalue())
    assert run("fit", "-", "--model", "dctr", "--to", "model", "-q")[0] == 0
    assert rc.load("model").provenance_[0].log.name == "stdin.parquet"
    events = b"".join(path.read_bytes() for path in sorted((ROOT / "examples/ubi").iterdir()))
    pipe(events)
    code, out, _ = run("convert", "-", "--format", "ubi", "--to", "ubi.parquet", "--json")
    assert code == 0
    assert json.loads(out)["summary"]["kept"] == 700
    pipe(b"query,ads\nq,a|b\n")
    assert run("predict", "model", "-", "--to", "pages.csv", "-q")[0] == 0


def test_an_empty_or_repeated_standard_input_is_refused(
    run: Run, pipe: Callable[[bytes], None]
) -> None:
    pipe(b"")
    code, _, err = run("check", "-")
    assert code == 2
    assert "it is empty" in err
    pipe(CSV)
    code, _, err = run("check", "-", "-")
    assert code == 2
    assert "Give it once" in err
    pipe(b"\x1f\x8bnot gzip")
    assert run("check", "-")[0] == 2
    pipe(CSV)
    code, _, err = run("check", write_log("log.parquet"), "-")
    assert code == 0, err
