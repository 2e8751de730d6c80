"""Local paths and URIs answer alike; files appear whole or not at all."""

from __future__ import annotations

import errno
import gzip
import json
import os
import pickle
import sys
import uuid
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.errors import LogError, MissingExtraError, StoreError
from reclick.runtime import artifact
from reclick.runtime.filesystem import RemotePath, as_path, is_uri, match_glob
from reclick.runtime.outputs import LIST_FILE, atomic_file, write_files
from tests.support.enumeration import as_table, random_sessions
from tests.support.raw_files import put_unchecked

LOG = as_table(random_sessions(np.random.default_rng(4), 200))


@pytest.fixture(params=["local", "file", "memory"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new folder: as a path, as a file:// URI, or in fsspec's memory."""
    if request.param == "memory":
        name = f"memory://{uuid.uuid4().hex}/base"
        yield name
        for path in as_path(name).rglob("*"):
            if path.is_file():
                path.unlink()
    else:
        yield str(tmp_path) if request.param == "local" else tmp_path.as_uri()


def put(location: str, content: bytes) -> None:
    with atomic_file(location, overwrite=True) as path:
        path.write_bytes(content)


# ---- paths


def test_a_uri_keeps_its_options_and_its_key_as_it_is() -> None:
    path = as_path("s3://bucket/a b/100%25?endpoint_override=localhost:5000&scheme=http")
    assert isinstance(path, RemotePath)
    assert (path.name, path.path.parts[1]) == ("100%25", "a b")
    assert str(path / "x.csv") == (
        "s3://bucket/a b/100%25/x.csv?endpoint_override=localhost:5000&scheme=http"
    )
    assert str(path.with_name("y")) == str(path.parent / "y")
    assert str(as_path("gs://bucket/what?.csv")) == "gs://bucket/what?.csv"  # a pattern


@pytest.mark.parametrize("text", ["C:/logs/a.csv", "a://", "logs:/a", "./s3:/x", "log.csv"])
def test_what_names_no_file_system_is_a_local_path(text: str) -> None:
    assert not is_uri(text)
    assert isinstance(as_path(text), Path)


def test_hadoop_without_its_client_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("JAVA_HOME", "HADOOP_HOME", "CLASSPATH", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    for _ in range(2):  # Arrow gives another error when it is asked again
        with pytest.raises(StoreError, match=r"hdfs://name cannot be opened .* set JAVA_HOME"):
            as_path("hdfs://name/logs").is_dir()


def test_the_web_without_fsspec_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtraError, match=r"Reading https needs .*'reclick\[remote\]'"):
        as_path("https://no-fsspec.example/log.csv").exists()


def test_an_unknown_file_system_is_refused_with_what_to_do() -> None:
    with pytest.raises(StoreError, match=r"nosuch://bucket cannot be opened .* install fsspec"):
        as_path("nosuch://bucket/log.csv").exists()


@pytest.mark.parametrize(
    ("uri", "path", "query"),
    [
        ("gs://b/day=?/x=1.csv", "/day=?/x=1.csv", ""),
        ("gs://b/day?=1.csv", "/day?=1.csv", ""),
        ("gs://b/a?/x.csv?region=eu", "/a?/x.csv", "region=eu"),
        ("https://h/x.csv?path=a/b&token=c", "/x.csv", "path=a/b&token=c"),
    ],
)
def test_a_question_mark_is_of_a_query_only_at_the_end(uri: str, path: str, query: str) -> None:
    remote = as_path(uri)
    assert isinstance(remote, RemotePath)
    assert (str(remote.path), remote.query) == (path, query)


def test_a_joined_name_is_not_taken_for_a_query() -> None:
    path = as_path("memory://bucket/logs") / "a?b=1.csv"
    assert (path.name, path.parent / path.name, path.with_name("c?d=2").name) == (
        "a?b=1.csv",
        path,
        "c?d=2",
    )


@pytest.mark.parametrize("uri", ["file://relative/x.csv", "file://x.csv"])
def test_a_file_uri_with_a_host_is_refused(uri: str) -> None:
    with pytest.raises(StoreError, match=r"names a host before the path.*file:///folder"):
        as_path(uri)
    assert as_path("file://localhost/a/x?.csv") == as_path("file:///a/x?.csv") == Path("/a/x?.csv")


def test_secrets_are_used_and_never_shown() -> None:
    bucket = uuid.uuid4().hex
    secret = f"memory://KEY:SECRET@{bucket}/logs"
    for name in ("a/x.jsonl", "b/x.jsonl"):
        put(f"{secret}/{name}", b'{"query": "q", "ads": ["a"], "clicks": [1]}\n')
    path = as_path(secret)
    shown = f"memory://***@{bucket}/logs"
    assert (str(path), repr(path)) == (shown, f"RemotePath('{shown}')")
    assert str(pickle.loads(pickle.dumps(path)) / "a") == f"{shown}/a"  # noqa: S301
    log = rc.read_sessions(f"{secret}/*/x.jsonl")  # the same name twice: messages have whole paths
    assert rc.count(log).total == 2
    assert all(shown in source.where for source in log._sources)
    rc.convert(f"{secret}/a/x.jsonl", f"{secret}/s.parquet")
    for location in (f"{secret}/none.csv", f"{secret}/*.txt", "nosuch://KEY:SECRET@b/x.csv"):
        with pytest.raises((LogError, StoreError)) as caught:
            rc.count(location)
        assert "***@" in str(caught.value)
        assert "SECRET" not in str(caught.value) + repr(caught.value)
        assert caught.value.__cause__ is None


def test_the_query_of_a_url_goes_with_the_file_and_other_queries_with_the_file_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem
    from fsspec.registry import _registry

    options: list[dict[str, str]] = []

    class SignedFileSystem(MemoryFileSystem):  # type: ignore[misc]
        protocol = ("https", "signed")
        store: dict[str, Any] = {}  # noqa: RUF012
        pseudo_dirs = [""]  # noqa: RUF012
        cachable = False

        def __init__(self, **given: str) -> None:
            options.append(given)
            super().__init__()

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return "/" + path.partition("://")[2].strip("/") if "://" in path else path

    for scheme in ("https", "signed"):
        monkeypatch.setitem(_registry, scheme, SignedFileSystem)
    SignedFileSystem().pipe_file("/host.example/x.csv.gz?sig=abc", gzip.compress(b"one,two"))
    path = as_path("https://host.example/x.csv.gz?sig=abc")
    assert gzip.decompress(path.read_bytes()) == b"one,two"
    assert not as_path("https://host.example/x.csv.gz").exists()
    assert not as_path("signed://host.example/x.csv?endpoint=eu").exists()
    assert options[-1] == {"endpoint": "eu"}


# ---- questions


def test_files_and_folders_are_found(base: str) -> None:
    for name in ("a.csv", "deep/b.csv", "deep/er/c.txt"):
        put(f"{base}/{name}", name.encode())
    folder = as_path(base)
    assert folder.is_dir()
    assert (folder / "deep").is_dir()
    shown = (path.name for path in folder.iterdir() if path.name != LIST_FILE)
    assert sorted(shown) == ["a.csv", "deep"]
    assert sorted(path.name for path in folder.rglob("*.csv")) == ["a.csv", "b.csv"]
    file = folder / "deep" / "b.csv"
    assert (file.is_file(), file.is_dir(), file.exists()) == (True, False, True)
    assert (file.stat().st_size, file.read_bytes()) == (10, b"deep/b.csv")
    assert file.read_text() == "deep/b.csv"
    missing = folder / "none.csv"
    assert (missing.is_file(), missing.exists()) == (False, False)
    with pytest.raises(FileNotFoundError):
        missing.stat()
    with pytest.raises(FileNotFoundError):
        missing.unlink()
    missing.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.csv", ["a.csv"]),
        ("*/*.csv", ["b.csv"]),
        ("**/*.csv", ["a.csv", "b.csv", "c.csv"]),
        ("deep/**/c.*", ["c.csv"]),
        ("day=[12]/x", []),
        ("deep/?.csv", ["b.csv"]),
    ],
)
def test_patterns_match_as_a_shell_does(base: str, pattern: str, names: list[str]) -> None:
    for name in ("a.csv", "deep/b.csv", "deep/er/c.csv"):
        put(f"{base}/{name}", b"x")
    local = str(as_path(base)) if not base.startswith("memory") else base
    assert sorted(path.name for path in match_glob(f"{local}/{pattern}")) == names


@pytest.mark.parametrize(
    "pattern",
    [
        *("**", "a/**", "*/**", "**/*", "**/x", "**/", "**/**/x", "none/**", "y.csv/*"),
        *("*", "?", "a?x", "d?=1/*", "x*=?.csv", "[.*]x", "[!a]", "[]x", "a/[!b]*"),
        *(".h*", "*/.h/*", "**/.h/**"),
    ],
)
def test_remote_patterns_match_what_local_ones_do(pattern: str, tmp_path: Path) -> None:
    names = ["a/x", "a/b/x", "a/.h/x", "y.csv", ".h/x", ".hx", "*x", "[]x", "day/x", "dx=1/x"]
    names += ["x-day=1.csv"]
    remote = f"memory://{uuid.uuid4().hex}/base"
    for name in names:
        put(str(tmp_path / name), b"x")
        with atomic_file(as_path(remote) / name) as path:
            path.write_bytes(b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [str(path).removeprefix(remote) for path in match_glob(f"{remote}/{pattern}")]
    local = {str(path).removeprefix(str(tmp_path)) for path in match_glob(f"{tmp_path}/{pattern}")}
    assert sorted(found) == sorted(local)


# ---- writing


@pytest.mark.parametrize("several", [False, True])
def test_an_error_of_something_else_is_not_one_of_writing(base: str, several: bool) -> None:
    def write(error: OSError) -> None:
        def fail(path: Path) -> None:
            if error.filename:
                error.filename = str(path)
            raise error

        if several:
            write_files(f"{base}/new", {"a.txt": fail})
        else:
            with atomic_file(f"{base}/new/a.txt") as path:
                fail(path)

    with pytest.raises(ConnectionError, match="feature store down"):
        write(ConnectionError("feature store down"))
    for number in (errno.ENOSPC, errno.EDQUOT):
        with pytest.raises(StoreError, match="The disk is full"):
            write(OSError(number, "full"))
    with pytest.raises(StoreError, match="Give a folder that can be written"):
        write(OSError(errno.EIO, "Input/output error", "the file itself"))
    assert not (as_path(base) / "new").exists()


def test_an_error_of_the_last_move_is_one_of_writing(tmp_path: Path) -> None:
    (tmp_path / "a.txt" / "full").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"a\.txt cannot be written"):
        put(str(tmp_path / "a.txt"), b"x")


def test_a_file_that_fails_leaves_the_old_one(base: str) -> None:
    put(f"{base}/new/a.txt", b"old")

    def fail() -> None:
        with atomic_file(f"{base}/new/a.txt") as path:
            path.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    folder = as_path(base) / "new"
    shown = [path for path in folder.iterdir() if path.name != LIST_FILE]
    assert [(path.name, path.read_bytes()) for path in shown] == [("a.txt", b"old")]


def test_of_several_files_none_appears_when_one_fails(base: str) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    writers: dict[str, Any] = {"a.txt": lambda path: path.write_bytes(b"a"), "b.txt": fail}
    with pytest.raises(StoreError, match="The disk is full"):
        write_files(f"{base}/new", writers)
    assert not (as_path(base) / "new").exists()
    writers["b.txt"] = lambda path: path.write_bytes(b"b")
    written = write_files(f"{base}/new", writers)
    assert [path.read_bytes() for path in written] == [b"a", b"b"]


def test_a_file_system_that_can_rename_is_written_through_a_sibling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reclick.runtime.filesystem.OBJECT_STORES", frozenset())
    location = f"memory://{uuid.uuid4().hex}/deep/a.txt"
    put(location, b"one")
    put(location, b"two")
    path = as_path(location)
    assert path.read_bytes() == b"two"
    assert [each.name for each in path.parent.iterdir()] == ["a.txt"]


# ---- what is routed through it


def test_logs_are_read_from_anywhere(base: str, tmp_path: Path) -> None:
    with atomic_file(f"{base}/logs/day=1/part.parquet") as path:
        pq.write_table(LOG, path)
    rows = [
        {"query": row["query"], "ads": row["ads"], "clicks": row["clicks"]}
        for row in LOG.to_pylist()
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    put(f"{base}/log.jsonl", lines)
    put(f"{base}/log.jsonl.gz", gzip.compress(lines))
    cells = "".join(
        f"{row['query']},{'|'.join(row['ads'])},{'|'.join(map(str, row['clicks']))}\n"
        for row in rows
    )
    put(f"{base}/log.csv", ("query,ads,clicks\n" + cells).encode())
    expected = rc.count(LOG)
    sources = ["logs", "logs/day=1/part.parquet", "logs/*/*.parquet"]
    sources += ["log.jsonl", "log.jsonl.gz", "log.csv"]
    for source in sources:
        assert rc.count(f"{base}/{source}").total == expected.total, source
    assert rc.count([f"{base}/log.csv", f"{base}/logs"]).total == 2 * expected.total
    with pytest.raises(LogError, match=r"none\.csv does not exist"):
        rc.count(f"{base}/none.csv")
    put(f"{base}/empty.csv", b"")
    with pytest.raises(LogError, match=r"empty\.csv is empty"):
        rc.count(f"{base}/empty.csv")


def test_an_archive_of_another_format_is_read_in_place(base: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "local.zip", "w") as archive:
        archive.writestr("log.jsonl", '{"query": "q", "ads": ["a"], "clicks": [1]}\n')
    put(f"{base}/log.zip", (tmp_path / "local.zip").read_bytes())
    with pytest.raises(LogError):  # it is opened, and is of no known format
        rc.read_sessions(f"{base}/log.zip", format="clax")


def test_counts_and_models_are_saved_and_loaded_anywhere(base: str) -> None:
    counts = rc.count(LOG)
    counts.save(f"{base}/counts")
    model = rc.MODELS["ubm"](max_iterations=3).fit(LOG)
    model.save(f"{base}/model")
    model.save(f"{base}/model")
    assert rc.Counts.load(f"{base}/counts").total == counts.total
    loaded = rc.load(f"{base}/model")
    assert loaded.relevance().equals(model.relevance())
    assert artifact.get_kind(f"{base}/model") == "model"
    assert rc.describe(f"{base}/counts").sessions == counts.total
    names = [path.name for path in (as_path(base) / "model").iterdir()]
    assert all(name == "manifest.json" or name.endswith(".parquet") for name in names)
    with pytest.raises(StoreError, match="counts would overwrite it"):
        counts.save(f"{base}/model")
    with pytest.raises(StoreError, match="does not exist"):
        rc.load(f"{base}/nothing")


def test_a_write_that_fails_before_the_manifest_leaves_the_old_artifact(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = rc.count(LOG)
    counts.save(f"{base}/counts")
    before = sorted(path.name for path in (as_path(base) / "counts").iterdir())

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(artifact, "_write_manifest", fail)
        with pytest.raises(StoreError, match="The disk is full"):
            (counts + counts).save(f"{base}/counts")
    assert rc.Counts.load(f"{base}/counts").total == counts.total
    if isinstance(as_path(base), Path):  # elsewhere what is unnamed stays for an hour
        assert sorted(path.name for path in (as_path(base) / "counts").iterdir()) == before


def test_an_altered_or_missing_data_file_is_refused(base: str) -> None:
    rc.count(LOG).save(f"{base}/counts")
    data = next(
        path for path in (as_path(base) / "counts").iterdir() if path.name.startswith("pairs")
    )
    content = data.read_bytes()
    put_unchecked(data, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreError, match="was altered after it was saved"):
        rc.Counts.load(f"{base}/counts")
    data.unlink()
    with pytest.raises(StoreError, match="is incomplete"):
        rc.Counts.load(f"{base}/counts")


def test_predictions_exports_reports_and_caches_are_written_anywhere(base: str) -> None:
    with atomic_file(f"{base}/log.parquet") as path:
        pq.write_table(LOG, path)
    log = f"{base}/log.parquet"
    model = rc.MODELS["ubm"](max_iterations=3).fit(log)
    assert rc.predict(model, log, f"{base}/out/p.parquet").pages == LOG.num_rows
    rc.export(model, f"{base}/out/j.qrels", cuts=(0.1, 0.3), min_support=1)
    rc.convert(log, f"{base}/out/s.parquet")
    found = [
        rc.evaluate(["gctr"], log, train=log, in_sample=True, resamples=100, folder=f"{base}/work")
        for _ in "12"
    ]
    assert found[0].scores.equals(found[1].scores)
    found[0].save(f"{base}/results")
    for name in ("out/p.parquet", "out/j.qrels", "out/j.qrels.queries.tsv", "out/s.parquet"):
        assert (as_path(base) / name).is_file(), name
    assert (as_path(base) / "results" / "report.html").stat().st_size > 10_000
    assert rc.count(f"{base}/out/s.parquet").total == rc.count(LOG).total
    assert not [name for name in os.listdir() if ":" in name]  # noqa: PTH208


def test_the_command_line_takes_uris(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from reclick.cli import app

    base = tmp_path.as_uri()
    pq.write_table(LOG, tmp_path / "log.parquet")
    log, model = f"{base}/log.parquet", f"{base}/model"
    for command in (
        f"count {log} --to {base}/counts",
        f"fit {base}/counts --model dctr --to {model}",
        f"predict {model} {log} --to {base}/p.parquet",
        f"evaluate --models gctr,{model} --train {log} --test {log} --to {base}/r --in-sample",
    ):
        result = CliRunner().invoke(app, command.split())
        assert result.exit_code == 0, result.output
    assert (tmp_path / "r" / "report.html").is_file()
