"""XML from strangers: read one record at a time, and nothing in it is obeyed."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import IO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.errors import LogError
from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.base import ReadReport
from reclick.logs.formats.helpers.xml_sessions import XmlNode, read_xml_records

GOOD = (
    b'<?xml version="1.0"?>\n<log>\n  <s num="1"><q>red <b>shoes</b></q></s>\n'
    b'  <s num="2">\n    <q>a &amp; b</q>\n  </s>\n</log>\n'
)
FIRST, SECOND = "red shoes", "a & b"


@dataclass(frozen=True)
class Bytes(LogFile):
    """A file that is not on disk."""

    parts: tuple[bytes, ...] = ()
    times: int = 1

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        yield cast(
            IO[bytes],
            _Stream(chain(self.parts[:1], repeat(self.parts[1], self.times), self.parts[2:])),
        )


class _Stream(io.RawIOBase):
    def __init__(self, parts: Iterator[bytes]) -> None:
        self.parts = parts

    def read(self, size: int = -1) -> bytes:
        return next(self.parts, b"")


def read(data: bytes, tag: str = "s") -> tuple[list[XmlNode], ReadReport]:
    return read_file(Bytes("x.xml", "x.xml", parts=(data, b"")), tag)


def read_file(file: LogFile, tag: str = "s") -> tuple[list[XmlNode], ReadReport]:
    report = ReadReport()
    return list(read_xml_records(file, tag, report)), report


def faults(report: ReadReport) -> list[tuple[int, str]]:
    assert set(report.bad_rows.examples) <= {"not readable"}
    return [
        (example.row, example.got) for example in report.bad_rows.examples.get("not readable", [])
    ]


def queries(nodes: list[XmlNode]) -> list[str]:
    return [node.value("q") for node in nodes]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.xml"
    path.write_bytes(GOOD)
    return path


def test_records_come_one_by_one_with_their_lines_attributes_and_text(log: Path) -> None:
    nodes, report = read_file(LogFile(str(log), "log.xml"))
    assert [(node.tag, node.line, node.attributes) for node in nodes] == [
        ("s", 3, {"num": "1"}),
        ("s", 4, {"num": "2"}),
    ]
    assert queries(nodes) == [FIRST, SECOND]
    assert [node.text for node in nodes[1].children("q")] == [SECOND]
    assert not nodes[0].children("r")
    assert nodes[0].value("r", "q") == FIRST
    assert nodes[0].value("r") == ""
    assert not report.bad_rows.dropped


def test_the_bytes_read_are_counted(log: Path) -> None:
    report = ReadReport()
    list(read_xml_records(LogFile(str(log), "log.xml"), "s", report))
    assert report.read_bytes == len(GOOD)


def test_a_record_may_be_the_root_and_ends_before_the_next() -> None:
    assert queries(read(b"<s><q>root</q></s>")[0]) == ["root"]
    nodes, report = read(b"<s><q>open</q><s><q>inner</q></s></s>")
    assert queries(nodes) == ["inner"]
    assert faults(report)[0] == (1, "a <s> inside the <s> of line 1")


LAUGHS = b"""<?xml version="1.0"?>
<!DOCTYPE log [
  <!ENTITY a "ha">
  <!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
  <!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
]>
<log><s><q>&c;</q></s></log>"""


@pytest.mark.parametrize(
    "doctype",
    [
        b'<!DOCTYPE log [<!ENTITY x "text">]>',
        b'<!DOCTYPE log [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        b'<!DOCTYPE log [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x.dtd"> %x;]>',
        b'<!DOCTYPE log SYSTEM "http://127.0.0.1:9/x.dtd">',
        b'<!DOCTYPE log PUBLIC "-//X//Y" "x.dtd">',
        b"<!DOCTYPE log [<!ELEMENT log ANY>]>",
    ],
)
def test_a_doctype_that_declares_or_fetches_anything_is_refused(doctype: bytes) -> None:
    with pytest.raises(
        LogError,
        match=r"x\.xml line 2 has a DOCTYPE that declares entities or names a DTD.*"
        r"Remove <!DOCTYPE log",
    ):
        read(b'<?xml version="1.0"?>\n' + doctype + b"<log><s><q>&x;</q></s></log>")


def test_a_billion_laughs_are_refused_before_the_first() -> None:
    with pytest.raises(LogError, match=r"x\.xml line 2 has a DOCTYPE"):
        read(LAUGHS)


def test_a_doctype_that_only_names_the_root_is_read_over() -> None:
    nodes, report = read(b"<!DOCTYPE log>\n<log><s><q>a</q></s></log>")
    assert queries(nodes) == ["a"]
    assert not report.bad_rows.dropped


def test_an_entity_nobody_declared_is_a_break() -> None:
    nodes, report = read(b"<log>\n<s><q>a</q></s>\n<s><q>&x;</q></s>\n</log>")
    assert queries(nodes) == ["a"]
    assert faults(report) == [
        (
            3,
            ("not XML: undefined entity at column 7 inside the <s> of line 3"),
        )
    ]


@pytest.mark.parametrize("start", [b"<log>", b"<log><s>"])
def test_elements_nested_without_end_are_a_break(start: bytes) -> None:
    nodes, report = read_file(
        Bytes(
            "x",
            "x",
            parts=(b"<log><s><q>a</q></s>" + start.removeprefix(b"<log>"), b"<a>" * 1000),
            times=1000,
        )
    )
    assert queries(nodes) == ["a"]
    assert len(faults(report)) == 1
    assert faults(report)[0][1].startswith("elements more than 100 deep")


def test_elements_nested_too_deep_are_a_break_when_they_are_closed_too() -> None:
    nodes, report = read(
        b"<log><s><q>a</q></s>\n<s>" + b"<a>" * 99 + b"</a>" * 99 + b"</s><s><q>b</q></s></log>"
    )
    assert queries(nodes) == ["a", "b"]
    assert faults(report) == [(2, "elements more than 100 deep inside the <s> of line 2")]


@pytest.mark.parametrize(("before", "after"), [(b"", b""), (b"<![CDATA[", b"]]>")])
def test_a_text_of_a_hundred_megabytes_is_refused_in_little_memory_and_the_next_record_is_read(
    before: bytes, after: bytes
) -> None:
    end = after + b"</q></s>\n<s><q>b</q></s></log>"
    file = Bytes(
        "x", "x", parts=(b"<log><s><q>a</q></s>\n<s><q>" + before, b"y" * 100_000, end), times=1000
    )
    tracemalloc.start()
    nodes, report = read_file(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert queries(nodes) == ["a", "b"]
    assert faults(report) == [(2, "a <s> of more than 4 MB")]
    assert peak < 80 << 20


@pytest.mark.parametrize("start", [b"<s x='", b"<!-- ", b"<?x "])
def test_a_tag_or_comment_of_a_hundred_megabytes_is_a_break_after_a_few(start: bytes) -> None:
    file = Bytes("x", "x", parts=(b"<log><s><q>a</q></s>\n" + start, b"y" * 65_536), times=1600)
    report = ReadReport()
    nodes: list[XmlNode] = []
    with pytest.raises(LogError, match="line 2: a tag or comment of more than 4 MB"):
        nodes.extend(read_xml_records(file, "s", report))
    assert queries(nodes) == ["a"]
    assert report.read_bytes < 8 << 20


def test_a_record_of_many_small_elements_is_refused_and_the_next_is_read() -> None:
    file = Bytes(
        "x",
        "x",
        parts=(b"<log><s><relevance>", b"<a/>" * 16_000, b"</relevance></s><s><q>b</q></s></log>"),
        times=66,
    )
    for leave in ((), ("relevance",)):
        report = ReadReport()
        assert queries(list(read_xml_records(file, "s", report, leave))) == ["b"]
        assert faults(report) == [(1, "a <s> of more than 4 MB")]


def test_what_is_in_an_element_to_leave_is_left_out() -> None:
    data = b"<log><s><r a='1'>x<r>y</r><q>z</q></r><q>a</q></s><r><s><q>b</q></s></r></log>"
    nodes = list(read_xml_records(Bytes("x", "x", parts=(data, b"")), "s", ReadReport(), ("r",)))
    assert queries(nodes) == ["a", "b"]
    assert nodes[0].content[0] == XmlNode("r", {"a": "1"}, 1, [])


@pytest.mark.parametrize("element", ["<t{}/>", "<t x{}=''/>"])
def test_names_without_end_are_an_error(element: str) -> None:
    with pytest.raises(LogError, match=r"line 2: more than 10,000 names of tags and attributes"):
        read(
            b"<log><s><q>a</q></s>\n"
            + "".join(element.format(number) for number in range(20_000)).encode()
            + b"</log>"
        )


def test_text_outside_of_records_takes_no_memory() -> None:
    tracemalloc.start()
    nodes, report = read_file(
        Bytes("x", "x", parts=(b"<log>", b"y" * 65_536, b"<s><q>a</q></s></log>"), times=500)
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert queries(nodes) == ["a"]
    assert not report.bad_rows.dropped
    assert peak < 4 << 20


def test_bytes_that_are_not_of_the_encoding_are_a_break_with_their_line() -> None:
    nodes, report = read(
        b"<log>\n<s><q>a</q></s>\n<s><q>" + "查询".encode("gbk") + b"</q></s>\n</log>"
    )
    assert queries(nodes) == ["a"]
    assert [line for line, _ in faults(report)] == [3]


@pytest.mark.parametrize("encoding", ["gbk", "no-such-encoding", "utf-16"])
def test_an_encoding_that_cannot_be_read_is_an_error_that_says_what_to_do(encoding: str) -> None:
    with pytest.raises(
        LogError,
        match=r"x\.xml cannot be read in the encoding that its first line declares .* "
        r"Write it again as UTF-8",
    ):
        read(f'<?xml version="1.0" encoding="{encoding}"?><log/>'.encode())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
def test_the_usual_encodings_are_read(encoding: str) -> None:
    declared = encoding.removesuffix("-sig")
    nodes, report = read(
        f'<?xml version="1.0" encoding="{declared}"?><log><s><q>café</q></s></log>'.encode(encoding)
    )
    assert queries(nodes) == ["café"]
    assert not report.bad_rows.dropped


def test_two_roots_are_a_break_and_both_are_read() -> None:
    nodes, report = read(GOOD + b"<log><s><q>c</q></s></log>")
    assert queries(nodes) == [FIRST, SECOND, "c"]
    assert faults(report) == [(8, "not XML: junk after document element at column 1")]


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        (b"<s><q>a & b</q></s>", 3),
        (b"<s>\n<q>a</p></s>", 4),
        (b'<s num="a<b"><q>a</q></s>', 3),
        (b"<s><q>a</q>", 4),
        (b"<q>a</q></s>", 3),
        (b"<s><q>\xff</q></s>", 3),
        (b"<s><q>" + b"<a>" * 200 + b"</s>", 3),
    ],
)
@pytest.mark.parametrize("size", [7, 100, 1 << 16])
def test_what_follows_a_broken_record_is_read(broken: bytes, line: int, size: int) -> None:
    """Finding 10: the rest of the file was in no figure."""
    data = b"<log>\n<s><q>1</q></s>\n" + broken + b"\n<s><q>2</q></s>\n"
    data += broken + b"\n" + b"<s>\n<q>3</q></s>\n<s><q>4</q></s></log>"
    parts = tuple(data[at : at + size] for at in range(0, len(data), size))
    nodes, report = read_file(Bytes("x.xml", "x.xml", parts=(*parts, b""), times=1))
    assert queries(nodes) == ["1", "2", "3", "4"]
    assert sum(report.bad_rows.dropped.values()) == 2
    assert faults(report)[0][0] == line
    lines = {node.value("q"): node.line for node in nodes}
    shift = broken.count(b"\n")
    assert lines == {"1": 2, "2": 4 + shift, "3": 6 + 2 * shift, "4": 8 + 2 * shift}


@pytest.mark.parametrize("start", [b"<!-- ", b"<s><![CDATA[", b"<?x ", b"<s><q><!-- "])
def test_records_that_the_end_hides_are_an_error(start: bytes) -> None:
    """Finding 10: nothing is lost without a word."""
    with pytest.raises(LogError, match=r"hides 2 of its <s>s|hides 3 of its <s>s"):
        read(b"<log>\n<s><q>1</q></s>\n" + start + b"\n<s></s>\n<s></s></log>")


def test_broken_utf_16_is_an_error() -> None:
    """Finding 10."""
    text = '<?xml version="1.0" encoding="utf-16"?><log><s><q>a & b</q></s><s/></log>'
    with pytest.raises(LogError, match=r"What follows in UTF-16 cannot be read"):
        read(text.encode("utf-16"))


def test_xml_cut_inside_a_record_names_the_record() -> None:
    nodes, report = read(GOOD[: GOOD.index(b"</q>\n")])
    assert queries(nodes) == [FIRST]
    assert faults(report) == [(5, "the XML ends too early inside the <s> of line 4")]


def test_xml_cut_anywhere_keeps_the_records_before_the_cut() -> None:
    for cut in range(len(GOOD) - 1):
        nodes, report = read(GOOD[:cut])
        assert queries(nodes) == [FIRST, SECOND][: GOOD[:cut].count(b"</s>")]
        assert len(faults(report)) == (0 if GOOD[:cut].endswith(b"</log>") else 1)


@given(st.binary(max_size=200), st.integers(0, len(GOOD)))
def test_no_bytes_do_worse_than_a_bad_record_or_a_log_error(data: bytes, at: int) -> None:
    try:
        nodes, report = read(GOOD[:at] + data + GOOD[at:])
    except LogError:
        return
    assert len(nodes) >= GOOD[:at].count(b"</s>")
    assert len(nodes) + sum(report.bad_rows.dropped.values()) >= 2  # nothing without a word


def test_a_packed_file_cut_short_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.xml.gz"
    path.write_bytes(gzip.compress(GOOD)[:-20])
    with pytest.raises(LogError, match=r"log\.xml\.gz cannot be read to the end"):
        read_file(LogFile(str(path), "log.xml.gz"))
