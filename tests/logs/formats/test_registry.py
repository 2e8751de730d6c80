"""Every format: its page in the docs has a sample that it alone recognises and reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from reclick.logs import read_sessions
from reclick.logs.files.log_file import LogFile
from reclick.logs.formats import FORMATS, list_formats, recognise_format
from tests.support.format_samples import DOCS, NAMES, write_sample

OWN = ('{"query": "shoes", "ads": ["a", "b"], "clicks": [2]}\n', "query,ads,clicks\nshoes,a|b,2\n")


def test_every_format_has_a_page() -> None:
    assert {path.stem for path in DOCS.glob("*.md")} - {"index", "events"} == set(FORMATS)
    assert set(FORMATS) - set(NAMES) == {"ga4", "snowplow"}


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_of_the_docs_is_recognised_by_its_format_alone(
    name: str, tmp_path: Path
) -> None:
    file = LogFile(str(write_sample(name, tmp_path)), NAMES[name])
    assert [each.name for each in list_formats() if each.recognises([file])] == [name]
    recognised = recognise_format([file])
    assert recognised is not None
    assert recognised.name == name


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_of_the_docs_reads_into_sessions(name: str, tmp_path: Path) -> None:
    log = read_sessions(write_sample(name, tmp_path), format=name, on_error="drop")
    assert log.summary.kept > 0
    if name != "kddcup2012":
        assert log.summary.clicks > 0


@pytest.mark.parametrize("text", OWN)
def test_no_format_takes_reclicks_own_columns_for_its_own(text: str, tmp_path: Path) -> None:
    path = tmp_path / ("log.csv" if text.startswith("query") else "log.jsonl")
    path.write_text(text)
    assert not [
        each.name for each in list_formats() if each.recognises([LogFile(str(path), path.name)])
    ]


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff\x00", b"{", b"<", b"PAR1", b"\n\n\n", b"1\t2\t3"]
)
@pytest.mark.parametrize("name", ["x.txt", "x.json", "x.xml", "x.parquet", "x.gz", "x"])
def test_recognising_junk_never_raises(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert recognise_format([LogFile(str(tmp_path / name), name)]) is None
