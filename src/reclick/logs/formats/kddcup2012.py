"""KDD Cup 2012, track 2: search ads, with the clicks and impressions of a user, query, ad and position counted, and token files for the text."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from reclick.errors import LogError
from reclick.logs.files.archive import LogFile
from reclick.logs.files.source import short
from reclick.logs.formats.base import Columns, Format, Found
from reclick.logs.formats.helpers.session_lines import looks_like
from reclick.logs.summary import KEPT_EXAMPLES, NOT_READABLE

if TYPE_CHECKING:
    from reclick.logs.formats.kddcup2012_pages import Instances

NAMES = (
    "click",
    "impression",
    "url",
    "ad",
    "advertiser",
    "depth",
    "position",
    "query",
    "keyword",
    "title",
    "description",
    "user",
)
TRAINING, TEST = re.compile(rb"\d+(\t\d+){11}"), re.compile(rb"\d+(\t\d+){9}")
TOKENS = {"titleid_tokensid": "title", "descriptionid_tokensid": "description"}
UNREAD = ("queryid_tokensid", "purchasedkeyword", "userid_profile", "kdd_track2_solution")
NOT_READ = "file that pages do not need, not read"
MOST_CLICKS, NO_IMPRESSIONS, OUTSIDE = (
    "more clicks than impressions",
    "no impressions",
    "position beyond the depth",
)
BIG = 2**63
FILE = 40  # bits of a place to the left of which stands the file
SPREAD = 1_000_003
GROWTH = 3  # times the size of its line, an instance takes while pages are put together
WORDED = set(TOKENS.values())


def _recognises(files: list[LogFile]) -> bool:
    return any(_role(file) == "training" and looks_like([file], TRAINING) for file in files)


def _role(file: LogFile) -> str:
    """What a file holds: title or description words, instances, or nothing that is read."""
    name = file.name.lower()
    named = next((role for start, role in TOKENS.items() if start in name), None)
    if named is not None:
        return named
    return "" if any(start in name for start in UNREAD) or looks_like([file], TEST) else "training"


def _read(files: list[LogFile], found: Found, _: Columns) -> Iterator[pa.RecordBatch]:
    from reclick.logs.assembly.page_join import BUCKET_BYTES, PACKED, PACKS
    from reclick.logs.formats.kddcup2012_pages import Instances

    roles = [_role(file) for file in files]
    if "training" not in roles:
        raise LogError(
            f"No file of training instances among {', '.join(file.where for file in files[:10])}. Give training.txt too."
        )
    found.note(NOT_READ, roles.count(""))
    size = sum(
        Path(path).stat().st_size * (PACKED if path.lower().endswith(PACKS) else 1)
        for path in {file.path for file in files}
    )
    with (
        TemporaryDirectory(prefix="reclick-") as folder,
        Instances(Path(folder), max(1, GROWTH * size // BUCKET_BYTES)) as instances,
    ):
        for place, (file, role) in enumerate(zip(files, roles, strict=True)):
            if role == "training":
                _add(file, place, instances, found, with_text=bool(WORDED & set(roles)))
            elif role:
                for table in _tables(file, ("id", "words"), found):
                    instances.add_words(_words(table, role))
        yield from instances.sessions(found)
        instances.tell_texts(found)


def _add(file: LogFile, place: int, instances: Instances, found: Found, *, with_text: bool) -> None:
    for table in _tables(file, NAMES, found):
        sound = _sound(table, file, found)
        placed = sound.append_column("place", pc.add(sound["number"], place << FILE))
        if with_text:
            instances.name_ads(placed)
        # The rows of a user and query belong together; which others are with them does not matter.
        instances.add(
            placed.append_column(
                "key", pc.bit_wise_xor(pc.multiply(placed["user"], SPREAD), placed["query"])
            )
        )


def _tables(file: LogFile, names: tuple[str, ...], found: Found) -> Iterator[pa.Table]:
    """The lines of a file as columns, with their numbers; whole numbers all, but for the address and the words."""
    schema = pa.schema(
        [(name, pa.string() if name in {"url", "words"} else pa.int64()) for name in names]
    )
    first = 1
    for block in file.blocks(found.advance):
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        table = _quick(block, schema)
        if table is not None and table.num_rows == lines:
            yield table.append_column("number", pa.array(np.arange(first, first + lines)))
        else:
            yield _careful(block, schema, first, file, found)
        first += lines


def _quick(block: bytes, schema: pa.Schema) -> pa.Table | None:
    """All lines at once with Arrow; None when one of them is not as it should be."""
    types = {field.name: field.type for field in schema}
    try:
        table = arrow_csv.read_csv(
            io.BytesIO(block),
            read_options=arrow_csv.ReadOptions(
                column_names=schema.names, block_size=len(block) + 1
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter="\t", quote_char=False, ignore_empty_lines=False
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types, null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        return None
    return table


def _careful(block: bytes, schema: pa.Schema, first: int, file: LogFile, found: Found) -> pa.Table:
    rows: list[list[str]] = []
    numbers: list[int] = []
    whole = [place for place, field in enumerate(schema) if field.type == pa.int64()]
    for number, line in enumerate(block.removesuffix(b"\n").split(b"\n"), start=first):
        fields = line.decode(errors="replace").rstrip("\r").split("\t")
        if len(fields) == len(schema) and all(
            fields[place].isdecimal() and int(fields[place]) < BIG for place in whole
        ):
            rows.append(fields)
            numbers.append(number)
        elif line.strip():
            found.bad(NOT_READABLE, file.where, number, short(line[:200].decode(errors="replace")))
    columns = [
        pa.array([row[place] for row in rows], pa.string()).cast(field.type)
        for place, field in enumerate(schema)
    ]
    return pa.table(columns, schema=schema).append_column("number", pa.array(numbers, pa.int64()))


def _sound(table: pa.Table, file: LogFile, found: Found) -> pa.Table:
    """The instances that can be: clicked no more often than shown, and within the page."""
    checks: dict[str, Callable[[pa.Table], pa.ChunkedArray]] = {
        NO_IMPRESSIONS: lambda rows: pc.less(rows["impression"], 1),
        MOST_CLICKS: lambda rows: pc.greater(rows["click"], rows["impression"]),
        OUTSIDE: lambda rows: pc.or_(
            pc.less(rows["position"], 1), pc.greater(rows["position"], rows["depth"])
        ),
    }
    for reason, is_bad in checks.items():
        bad = is_bad(table)
        wrong = table.filter(bad)
        if wrong.num_rows:
            examples = [
                (file.where, row["number"], _shown(row))
                for row in wrong.slice(0, KEPT_EXAMPLES).to_pylist()
            ]
            found.bad_many(reason, wrong.num_rows, examples)
            table = table.filter(pc.invert(bad))
    return table


def _shown(row: dict[str, int]) -> str:
    return ", ".join(f"{name} {row[name]}" for name in ("click", "impression", "depth", "position"))


def _words(table: pa.Table, field: str) -> pa.Table:
    return pa.table(
        {
            "field": pa.repeat(field, table.num_rows),
            "id": table["id"],
            "words": pc.replace_substring(table["words"], "|", " "),
        }
    )


KDDCUP2012 = Format(
    name="kddcup2012",
    title="KDD Cup 2012, track 2",
    about="training.txt and the token files of titles and descriptions; clicks and impressions are counted, so sessions have weights and no order.",
    recognises=_recognises,
    read=_read,
)
