"""Logs and models in an object store, against a real S3 server on loopback."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import reclick as rc
from reclick.cli import app
from reclick.errors import LogError, StoreError, UsageError
from reclick.logs.files.lake import DELTA_OPTIONS, _describe_store
from reclick.runtime import artifact
from reclick.runtime.filesystem import RemotePath, as_path, match_glob
from reclick.runtime.outputs import atomic_file
from tests.runtime.test_hostile_folders import forge_file, repeat_text
from tests.support.inline_engine import InlineEngine
from tests.support.plain_metrics import as_table, random_log
from tests.support.raw_files import put_unchecked
from tests.support.s3_server import KEY, SECRET, S3Server, run_s3_server

EXAMPLES = Path(__file__).parents[2] / "examples" / "ubi"
LOG = as_table(random_log(5, 300))


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with run_s3_server() as running:
        yield running


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a new bucket."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    found = f"b{uuid.uuid4().hex[:12]}"
    server.client.create_dir(found)
    server.requests.clear()
    server.sizes.clear()
    yield f"s3://{found}"
    server.on_request = None


def put(location: str, content: bytes) -> None:
    with atomic_file(location) as path:
        path.write_bytes(content)


def put_log(location: str, log: pa.Table = LOG, **options: Any) -> str:
    with atomic_file(location) as path:
        pq.write_table(log, path, **options)
    return location


def run(command: str) -> str:
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    return result.output


# ---- reading


def test_logs_are_read_by_path_folder_pattern_and_partition(bucket: str) -> None:
    for day in (1, 2):
        put_log(f"{bucket}/logs/day={day}/part-0.parquet", LOG.slice((day - 1) * 150, 150))
    put(f"{bucket}/logs/_SUCCESS", b"x")
    expected = rc.count(LOG)
    for source in ("logs", "logs/", "logs/*/*.parquet", "logs/day=[12]", "log*/**/*.parquet"):
        assert rc.count(f"{bucket}/{source}") == expected, source
    parts = [f"{bucket}/logs/day=1", f"{bucket}/logs/day=2/part-0.parquet"]
    assert rc.count(parts) == expected
    assert rc.count(f"{bucket}/logs".replace("s3://", "s3a://")) == expected
    days = [
        day
        for batch in rc.read_sessions(f"{bucket}/logs").batches(with_rows=True)
        for day in batch.rows.column("day").to_pylist()  # type: ignore[union-attr]
    ]
    assert days == [1] * 150 + [2] * 150


def test_text_formats_and_archives_are_read_in_place(bucket: str, tmp_path: Path) -> None:
    rows = [
        {"query": row["query"], "ads": row["ads"], "clicks": row["clicks"]}
        for row in LOG.to_pylist()
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    cells = "".join(
        f"{row['query']},{'|'.join(row['ads'])},{'|'.join(map(str, row['clicks']))}\n"
        for row in rows
    )
    expected = rc.count(LOG.drop_columns("weight"))
    put(f"{bucket}/log.jsonl", lines)
    put(f"{bucket}/log.jsonl.gz", gzip.compress(lines))
    put(f"{bucket}/log.csv", ("query,ads,clicks\n" + cells).encode())
    for name in ("log.jsonl", "log.jsonl.gz", "log.csv"):
        assert rc.count(f"{bucket}/{name}") == expected, name
    with zipfile.ZipFile(tmp_path / "local.zip", "w") as archive:
        for name in ("events.ndjson", "queries.ndjson"):
            archive.write(EXAMPLES / name, name)
    put(f"{bucket}/ubi.zip", (tmp_path / "local.zip").read_bytes())
    assert rc.count(f"{bucket}/ubi.zip") == rc.count(EXAMPLES)


def test_a_compressed_file_is_fetched_in_few_requests(bucket: str, server: S3Server) -> None:
    lines = "".join(
        json.dumps({"query": uuid.uuid4().hex, "ads": ["a"], "clicks": []}) + "\n"
        for _ in range(20_000)
    )
    content = gzip.compress(lines.encode(), 1)
    put(f"{bucket}/log.jsonl.gz", content)
    server.sizes.clear()
    rc.count(f"{bucket}/log.jsonl.gz")
    fetched = [size for size in server.sizes if size > 1000]
    assert len(content) > 400_000
    assert len(fetched) <= 4


def test_ads_and_labels_come_from_a_bucket_too(bucket: str) -> None:
    ads = sorted({ad for page in LOG["ads"].to_pylist() for ad in page})
    text = pa.table({"ad": ads, "title": [f"ad {ad}" for ad in ads]})
    put_log(f"{bucket}/ads.parquet", text)
    log = rc.read_sessions(LOG, ads=f"{bucket}/ads.parquet")
    assert log.ads is not None
    assert log.ads["ad"].to_pylist() == ads
    labels = pa.table({"query": ["q"] * len(ads), "ad": ads, "relevance": [1.0] * len(ads)})
    put_log(f"{bucket}/labels.parquet", labels)
    assert rc.read_labels(f"{bucket}/labels.parquet").num_rows == len(ads)


def test_listing_a_folder_takes_few_requests(bucket: str, server: S3Server) -> None:
    for number in range(20):
        put(f"{bucket}/logs/{number:02}.csv", b"query,ads,clicks\nq,a,1\n")
    server.requests.clear()
    assert len(match_glob(f"{bucket}/logs/*.csv")) == 20
    from reclick.logs.files.source import find_files

    assert len(find_files(f"{bucket}/logs")) == 20
    assert len(server.requests) < 12  # and not one for each file


def test_a_delta_table_in_a_bucket_is_read(bucket: str) -> None:
    import deltalake

    options = {"AWS_ALLOW_HTTP": "true"}
    for part in (LOG.slice(0, 100), LOG.slice(100)):
        deltalake.write_deltalake(f"{bucket}/t", part, mode="append", storage_options=options)
    deltalake.DeltaTable(f"{bucket}/t", storage_options=options).delete("query = 'r'")
    kept = LOG.filter(pa.compute.not_equal(LOG["query"], "r"))
    assert rc.count(f"{bucket}/t") == rc.count(kept)


@pytest.fixture
def tables(bucket: str, server: S3Server, tmp_path: Path) -> list[str]:
    """The addresses of a Delta and an Iceberg table in a bucket, without the scheme."""
    import deltalake
    from pyiceberg.catalog.sql import SqlCatalog

    deltalake.write_deltalake(f"{bucket}/d", LOG, storage_options={"AWS_ALLOW_HTTP": "true"})
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{bucket}/i"}
    catalog = SqlCatalog("tests", **properties, **{"s3.endpoint": server.url})
    catalog.create_namespace("search")
    table = catalog.create_table("search.sessions", schema=LOG.schema)
    table.append(LOG)
    places = [f"{bucket}/d", table.metadata_location]
    catalog.close()
    return [place.removeprefix("s3://") for place in places]


def test_tables_of_lakes_are_reached_as_files_are(
    tables: list[str], server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = rc.count(LOG)
    for place in tables:
        assert rc.count(f"s3://{place}") == expected
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
    for place in tables:
        assert rc.count(f"s3://{place}") == expected
    for name in server.environment:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    options = f"endpoint_override=127.0.0.1:{server.port}&scheme=http&region=us-east-1"
    for place in tables:
        assert rc.count(f"s3://{KEY}:{SECRET}@{place}?{options}") == expected
    monkeypatch.setattr("deltalake.DeltaTable", fail_with("error 403 Forbidden"))
    with pytest.raises(StoreError, match=r"s3://.*/d\?.* cannot be read: access is denied"):
        rc.count(f"s3://{KEY}:{SECRET}@{tables[0]}?{options}")


def fail_with(message: str) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise OSError(message)

    return fail


def test_options_of_other_stores_are_refused_for_tables_of_lakes() -> None:
    path = RemotePath.from_uri("gs://bucket/table?retry_limit_seconds=3")
    with pytest.raises(LogError, match=r"table\?retry.* take options of an address for S3 only"):
        _describe_store(path, DELTA_OPTIONS)
    public = RemotePath.from_uri("s3://bucket/table?anonymous=true&region=eu-west-1")
    expected = {"AWS_REGION": "eu-west-1", "AWS_SKIP_SIGNATURE": "true"}
    assert _describe_store(public, DELTA_OPTIONS) == ("s3://bucket/table", expected)


def test_tasks_exchange_their_files_through_a_bucket(bucket: str, tmp_path: Path) -> None:
    log = put_log(f"{bucket}/log.parquet", row_group_size=100)
    engine = InlineEngine(tasks=2, buckets=3, folder=f"{bucket}/shared")
    model = rc.MultiClick().fit(log, engine=engine)
    model.save(f"{bucket}/model", buckets=3)
    lazy = rc.load(f"{bucket}/model", cache_bytes=1000)  # one bucket at a time
    rc.predict(model, LOG, tmp_path / "one.parquet", top=1)
    expected = pq.read_table(tmp_path / "one.parquet")
    for each in (model, lazy):
        rc.predict(each, log, f"{bucket}/two.parquet", top=1, engine=engine)
        assert pq.read_table(as_path(f"{bucket}/two.parquet").open()).equals(expected)
    engine.close()
    assert list(as_path(f"{bucket}/shared").rglob("*")) == []


# ---- writing


def test_a_forged_folder_in_a_bucket_is_refused_before_it_is_unpacked(
    bucket: str, tmp_path: Path
) -> None:
    """Finding 6: a file of a few KB, with the right hash, of a text of 500 KB in 2,000 rows."""
    rc.count(LOG).save(tmp_path / "c")
    forge_file(tmp_path / "c", "queries", repeat_text(500_000, 2_000), rows=2_000)
    for path in (tmp_path / "c").glob("[!.]*"):
        put_unchecked(as_path(f"{bucket}/c/{path.name}"), path.read_bytes())
    for folder in (tmp_path / "c", f"{bucket}/c"):
        with pytest.raises(StoreError, match="far more than a file of its size holds"):
            rc.Counts.load(folder)


def test_the_commands_work_in_a_bucket(bucket: str) -> None:
    day1, day2 = put_log(f"{bucket}/1.parquet"), put_log(f"{bucket}/2.parquet", LOG.slice(0, 99))
    run(f"count {day1} --to {bucket}/counts")
    assert rc.Counts.load(f"{bucket}/counts") == rc.count(LOG)
    run(f"fit {day1} --model multiclick --to {bucket}/models/m")
    run(f"fit {day2} --update --to {bucket}/models/m")
    expected = rc.MultiClick().fit(LOG).update(LOG.slice(0, 99), again=True)
    assert rc.load(f"{bucket}/models/m").relevance().equals(expected.relevance())
    run(f"predict {bucket}/models/m {day1} --to {bucket}/out/p.parquet")
    run(f"predict {bucket}/models/m {day1} --to {bucket}/out/p.csv.gz")
    predicted = pq.read_table(as_path(f"{bucket}/out/p.parquet").open_arrow())  # type: ignore[union-attr]
    assert predicted.num_rows == LOG.num_rows
    run(f"export {bucket}/models/m --to {bucket}/out/j.qrels --min-support 1")
    run(f"convert {day1} --to {bucket}/out/s.parquet")
    run(f"convert {day1} --to {bucket}/out/s.parquet")
    assert rc.count(f"{bucket}/out/s.parquet") == rc.count(LOG)
    run(f"show {bucket}/models/m --query q")
    run(f"evaluate --train {day1} --test {day2} --models gctr --in-sample --to {bucket}/results")
    assert as_path(f"{bucket}/results/report.html").is_file()


def test_models_are_saved_and_loaded_and_old_ones_replaced(bucket: str) -> None:
    first, second = rc.MODELS["dctr"]().fit(LOG), rc.MODELS["dctr"]().fit(LOG.slice(0, 50))
    first.save(f"{bucket}/m")
    second.save(f"{bucket}/m", overwrite=True)
    assert rc.load(f"{bucket}/m").relevance().equals(second.relevance())
    loaded = rc.load(f"{bucket}/m")
    first.save(f"{bucket}/m", overwrite=True)
    with pytest.raises(StoreError, match=r"was changed since it was loaded"):
        loaded.save(f"{bucket}/m")


def test_a_file_of_several_parts_is_whole(bucket: str) -> None:
    content = os.urandom(12 << 20)
    put(f"{bucket}/large.bin", content)
    assert as_path(f"{bucket}/large.bin").read_bytes() == content


# ---- errors


def test_a_missing_bucket_is_named(bucket: str) -> None:
    missing = "s3://no-such-bucket-here"
    with pytest.raises(LogError, match=r"there is no bucket s3://no-such-bucket-here"):
        rc.count(f"{missing}/log.parquet")
    with pytest.raises(StoreError, match=r"there is no bucket s3://no-such-bucket-here"):
        rc.load(f"{missing}/model")
    with pytest.raises(StoreError, match=r"cannot be written: there is no bucket"):
        rc.count(LOG).save(f"{missing}/counts")
    with pytest.raises(StoreError, match=r"cannot be written: there is no bucket"):
        put(f"{missing}/x.csv", b"x")
    with pytest.raises(LogError, match=rf"{bucket}/none\.parquet does not exist\.$"):
        rc.count(f"{bucket}/none.parquet")
    with pytest.raises(StoreError, match="force is not an option of S3"):
        rc.count(f"{bucket}/x.csv?force=true")


def test_wrong_credentials_are_named(
    bucket: str, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = put_log(f"{bucket}/log.parquet")
    rc.count(LOG).save(f"{bucket}/counts")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAWRONG")
    server.require_credentials(True)
    try:
        for call in (
            lambda: rc.count(log),
            lambda: rc.count(f"{bucket}/*.parquet"),
            lambda: rc.Counts.load(f"{bucket}/counts"),
            lambda: rc.count(LOG).save(f"{bucket}/counts"),
        ):
            with pytest.raises(StoreError) as caught:
                call()
            message = str(caught.value)
            assert bucket in message
            assert "AWS_ACCESS_KEY_ID" in message
            assert "access is denied" in message or "credentials are wrong" in message
            assert "AKIAWRONG" not in message
    finally:
        server.require_credentials(False)


def test_a_store_that_cannot_be_reached_is_named(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreError, match=r"cannot be reached.*http://127\.0\.0\.1:9") as caught:
        rc.count(f"{bucket}/log.parquet")
    assert bucket in str(caught.value)


def test_a_request_that_fails_for_a_moment_is_sent_again(bucket: str, server: S3Server) -> None:
    log = put_log(f"{bucket}/log.parquet")
    failed: list[str] = []

    def fail_twice(method: str, path: str) -> str | None:
        if method == "GET" and path.endswith("log.parquet") and len(failed) < 2:
            failed.append(path)
            return "503 Slow Down"
        return None

    server.on_request = fail_twice
    assert rc.count(log) == rc.count(LOG)
    assert len(failed) == 2


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
@pytest.mark.parametrize("fate", ["deleted", "changed"])
def test_an_object_that_goes_or_changes_while_it_is_read_is_refused(
    bucket: str, server: S3Server, name: str, fate: str
) -> None:
    location = f"{bucket}/{name}"
    if name == "log.csv":
        put(location, b"query,ads,clicks\n" + b"q,a|b,1\n" * 1_000)
    else:
        put_log(location, row_group_size=50)
    log = rc.read_sessions(location)
    key = location.removeprefix("s3://")
    done: list[str] = []

    def interfere(method: str, path: str) -> str | None:
        if (method, path) == ("GET", f"/{key}") and not done:
            done.append(path)
            if fate == "deleted":
                server.client.delete_file(key)
            else:
                with server.client.open_output_stream(key) as file:
                    file.write(b"other content")
        return None

    server.on_request = interfere
    with pytest.raises(StoreError, match=rf"{name} was {fate} while it was read"):
        rc.count(log)


def test_a_damaged_file_is_not_an_error_of_the_store(bucket: str) -> None:
    put(f"{bucket}/log.parquet", b"PAR1" + b"x" * 100 + b"PAR1")
    with pytest.raises(LogError, match="cannot be read as Parquet"):
        rc.count(f"{bucket}/log.parquet")


# ---- kills


KILLED_WRITER = """
    import os, signal, sys
    import reclick as rc
    from reclick.runtime.filesystem import RemotePath

    upload, last = RemotePath.upload, int(sys.argv[2])
    def count_down(self, source):
        global last
        if last == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        last -= 1
        upload(self, source)
    RemotePath.upload = count_down
    rc.count({"query": ["new"], "ads": [["a", "b"]], "clicks": [[2, 1]]}).save(sys.argv[1])
"""


@pytest.mark.parametrize("uploads", [1, 4])
def test_a_writer_that_is_killed_leaves_the_old_counts(
    bucket: str, server: S3Server, uploads: int
) -> None:
    counts = rc.count(LOG)
    counts.save(f"{bucket}/counts")
    killed = subprocess.run(
        [
            *(sys.executable, "-c", textwrap.dedent(KILLED_WRITER)),
            *(f"{bucket}/counts", str(uploads)),
        ],
        env={**os.environ, **server.environment},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert rc.Counts.load(f"{bucket}/counts") == counts
    (counts + counts).save(f"{bucket}/counts")
    assert rc.Counts.load(f"{bucket}/counts") == counts + counts


def test_a_writer_killed_in_the_middle_of_an_object_leaves_no_object(
    bucket: str, server: S3Server
) -> None:
    put(f"{bucket}/out.bin", b"old")
    parts: list[str] = []
    code = """
        import sys
        from reclick.runtime.outputs import atomic_file
        with atomic_file(sys.argv[1]) as path:
            path.write_bytes(bytes(40 << 20))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), f"{bucket}/out.bin"],
        env={**os.environ, **server.environment},
    )

    def kill_at_the_second_part(method: str, path: str) -> str | None:
        if method == "PUT" and path.endswith("out.bin"):
            parts.append(path)
            if len(parts) == 2:
                process.kill()
        return None

    server.on_request = kill_at_the_second_part
    assert process.wait(60) == -signal.SIGKILL
    server.on_request = None
    assert as_path(f"{bucket}/out.bin").read_bytes() == b"old"


def test_two_writers_at_once_leave_one_of_both(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data of a writer that is not done is not removed by another, as it is too young."""
    mine, theirs = rc.count(LOG), rc.count(LOG.slice(0, 40))
    write_manifest = artifact._write_manifest

    def let_others_write(*arguments: Any) -> None:
        monkeypatch.setattr(artifact, "_write_manifest", write_manifest)
        theirs.save(f"{bucket}/counts")
        write_manifest(*arguments)

    monkeypatch.setattr(artifact, "_write_manifest", let_others_write)
    mine.save(f"{bucket}/counts")
    assert rc.Counts.load(f"{bucket}/counts") == mine


def test_what_no_manifest_names_is_removed_an_hour_later(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = rc.count(LOG)
    for each in (counts, counts + counts):
        each.save(f"{bucket}/counts")
    names = {path.name for path in as_path(f"{bucket}/counts").iterdir()}
    assert len(names) > 7
    monkeypatch.setattr(artifact, "ABANDONED_SECONDS", -1.0)
    (counts + counts).save(f"{bucket}/counts", overwrite=True)
    left = {path.name for path in as_path(f"{bucket}/counts").iterdir()}
    assert left < names
    assert rc.Counts.load(f"{bucket}/counts") == counts + counts


# ---- http


def test_what_http_serves_is_read_and_never_written(bucket: str, server: S3Server) -> None:
    put_log(f"{bucket}/log.parquet")
    url = f"{server.url}/{bucket.removeprefix('s3://')}"
    assert rc.count(f"{url}/log.parquet") == rc.count(LOG)
    put(f"{bucket}/log.csv", b"query,ads,clicks\nq,a|b,1\n")
    assert rc.count(f"{url}/log.csv").total == 1
    with pytest.raises(LogError, match="does not exist"):
        rc.count(f"{url}/none.csv")
    with pytest.raises(StoreError, match="http has no way to put a whole file"):
        put(f"{url}/new.csv", b"x")
    with pytest.raises(StoreError, match="http has no way to put a whole file"):
        rc.count(LOG).save(f"{url}/counts")
    with pytest.raises(LogError, match=r"does not exist, or its server cannot be reached"):
        rc.count("http://127.0.0.1:9/log.csv")


@pytest.mark.parametrize("attempts", ["many", "-1", "0", "1e3", "99999999999999999999"])
def test_a_wrong_number_of_attempts_is_an_error(
    attempts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", attempts)
    with pytest.raises(UsageError, match=f"AWS_MAX_ATTEMPTS is '{attempts}'"):
        rc.count(f"s3://bucket-of-{uuid.uuid4()}/log.parquet")


def test_a_file_in_no_bucket_is_named_as_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    result = CliRunner().invoke(app, ["check", "s3://nobucket/x.parquet"])
    assert result.exit_code == 2
    assert "s3://nobucket/x.parquet cannot be read" in result.stderr
    assert "manifest" not in result.stderr
