"""Files and inputs at the edge: names that are no text, places that are no files, long pages."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import reclick as rc
from tests.support.format_samples import write_sample

ROW = {"query": "q", "ads": ["a", "b"], "clicks": [1]}


def write_log(path: Path, rows: int = 3, **more: Any) -> Path:
    path.write_text("".join(json.dumps(ROW | more) + "\n" for _ in range(rows)))
    return path


def long_pages(length: int) -> rc.SessionLog:
    ads = [f"a{number}" for number in range(length)]
    log = {"query": ["q"] * 3, "ads": [ads] * 3, "clicks": [[1, length - 1], [length], []]}
    return rc.read_sessions(log, max_ads=length)


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_file_whose_name_is_no_text_is_fitted_to(tmp_path: Path, suffix: str) -> None:
    """Finding 21: the name is in the manifest, which is text, and Arrow opens no such path."""
    path = write_log(tmp_path / "log.jsonl")
    if suffix == "parquet":
        rc.convert(path, tmp_path / "log.parquet")
    elif suffix == "csv":
        (tmp_path / "log.csv").write_text("query,ads,clicks\n" + "q,a|b,1\n" * 3)
    path = (tmp_path / f"log.{suffix}").rename(tmp_path / f"caf\udce9.{suffix}")
    rc.DCTR().fit(path).save(tmp_path / "model")
    assert "udce9" in (tmp_path / "model" / "manifest.json").read_text()
    assert rc.load(tmp_path / "model").training_totals.sessions == 3


def test_a_folder_whose_name_is_no_text_holds_a_model_and_no_other_output(tmp_path: Path) -> None:
    """Finding 21: a UnicodeEncodeError."""
    folder = tmp_path / "caf\udce9"
    model = rc.DCTR().fit(write_log(tmp_path / "log.jsonl"))
    model.save(folder)
    assert rc.load(folder).training_counts == model.training_counts
    for write in (rc.convert, lambda log, to: rc.predict(model, log, to)):
        with pytest.raises(rc.StoreError, match=r"caf\\udce9/out\.parquet cannot be written"):
            write(tmp_path / "log.jsonl", folder / "out.parquet")


@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["describe"],
        ["fit", "--model", "dctr", "--to", "m"],
        [
            "evaluate",
            "--train",
            "log.jsonl",
            "--in-sample",
            "--models",
            "gctr",
            "--to",
            "e",
            "--test",
        ],
    ],
    ids=lambda words: words[0],
)
def test_a_command_reads_a_file_whose_name_is_no_text(tmp_path: Path, words: list[str]) -> None:
    """Finding 21: a traceback."""
    rc.convert(write_log(tmp_path / "log.jsonl"), tmp_path / "log.parquet")
    (tmp_path / "log.parquet").rename(tmp_path / "caf\udce9.parquet")
    command = [sys.executable, "-m", "reclick", *words, "caf\udce9.parquet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


def test_a_model_is_not_shown_by_a_name_that_is_no_text() -> None:
    log = {"query": ["q"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[1], []]}
    with pytest.raises(rc.SettingError, match="models by the names to show"):
        rc.evaluate({"caf\udce9": rc.DCTR()}, train=log, test=log, in_sample=True)


def test_an_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """Finding 21: a traceback."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:  # noqa: PTH123
        words = [sys.executable, "-m", "reclick", "models"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("The output cannot be written (No space left on device).")


@pytest.mark.parametrize("name", ["ga4", "snowplow"])
def test_an_event_with_text_that_is_not_utf8_is_a_bad_row(tmp_path: Path, name: str) -> None:
    """Finding 21: a UnicodeDecodeError."""
    from torture.inputs import seed_files

    seed = next(each for each in seed_files() if each.format == name)
    table, plain = pq.read_table(io.BytesIO(seed.content)), io.BytesIO()
    pq.write_table(table, plain, compression="none", use_dictionary=False)
    (tmp_path / seed.name).write_bytes(plain.getvalue().replace(b"shoe", b"sh\xffe", 3))
    summary = rc.read_sessions(tmp_path / seed.name, format=name, on_error="drop").summary
    assert summary.dropped["not readable"] >= 1
    for example in summary.examples["not readable"]:
        row = str(table.slice(example.row - 1, 1).to_pylist())
        assert "shoe" in row
        assert example.got.endswith(": not UTF-8")


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"socks", b"\\ud800socks"), (b'"15993914', b'"1599\xff914'), (b'"15993914', b'"\\ud800')],
)
def test_half_a_surrogate_pair_in_metarank_is_a_bad_record(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    """Finding 21: a UnicodeEncodeError."""
    path = write_sample("metarank", tmp_path)
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new))
    read = rc.read_sessions(path, format="metarank", on_error="drop").summary
    assert sum(read.dropped_records.values()) + sum(read.dropped.values()) > 0


def test_thcm_on_pages_of_500_ads() -> None:
    """Finding 21: a click hundreds of positions further up underflows."""
    ads = [f"a{number}" for number in range(500)]
    pages = {"query": ["q"] * 3, "ads": [ads] * 3, "clicks": [[500, 1], [250], []]}
    log = rc.read_sessions(pages, max_ads=500)
    probability = rc.THCM(max_iterations=2).fit(log).click_prob(log)
    assert ((probability >= 0) & (probability <= 1)).all()


def test_pages_that_would_take_gigabytes_are_refused() -> None:
    """Finding 13: six sessions of 10,000 ads took 6.6 GB."""
    with pytest.raises(rc.UsageError, match=r"pages of 10,000 ads.*UBM fits pages of up to 2,000"):
        rc.UBM().fit(long_pages(10_000))
    assert rc.DCTR().fit(long_pages(10_000)).training_totals.max_ads == 10_000


def test_thousands_of_fields_take_linear_time(tmp_path: Path) -> None:
    """Names were searched one by one: 200,000 of them took minutes."""
    fields = {f"field {number}": 1 for number in range(150_000)}
    path = write_log(tmp_path / "wide.jsonl", 1, **fields)
    assert rc.read_sessions(path).summary.kept == 1
    with pytest.raises(rc.LogError, match="150,000 different fields"):
        rc.convert(path, tmp_path / "wide.parquet")


def test_a_link_that_loops_and_a_name_that_is_too_long_are_errors(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    model = rc.DCTR().fit(ROW | {"query": ["q"], "ads": [["a"]], "clicks": [[1]]})
    for call in (
        lambda: rc.read_sessions(loop),
        lambda: rc.load(loop),
        lambda: model.save(loop),
        lambda: rc.count(tmp_path / ("x" * 300)),
    ):
        with pytest.raises(rc.ReclickError):
            call()


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl", "log"])
def test_a_pipe_is_no_log_and_nobody_waits_for_it(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(rc.LogError, match="pipe"):
        rc.read_sessions(tmp_path / name)


def test_an_endless_device_is_no_archive(tmp_path: Path) -> None:
    place = tmp_path / "log.zip"
    place.symlink_to("/dev/zero")
    with pytest.raises(rc.LogError):
        rc.read_sessions(place)
