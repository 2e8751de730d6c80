"""Models are replaced while the service runs; every answer is of one whole model."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import reclick as rc
from reclick.errors import UsageError
from reclick.runtime import artifact
from reclick.runtime.time_limit import TimeLimitError, time_limit
from reclick.service import create_app
from reclick.service.hosting import HostedFolder, HostedModel, ModelHost, QueryIndex
from tests.service.conftest import ready_client
from tests.support.service import QUERIES, fit, run_service, save

PAGE = {"query": "tea", "ads": ["ad0", "ad1", "ad2"]}


def test_a_changed_folder_is_loaded_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    save(tmp_path / "m", "dctr", seed=1)
    folder = HostedFolder("m", tmp_path / "m")
    assert folder.refresh() is True
    assert folder.refresh() is False
    first = folder.current
    save(tmp_path / "m", "dctr", seed=2)
    assert folder.refresh() is True
    assert folder.current is not first
    assert folder.current is not None
    assert folder.current.version == artifact.fingerprint(tmp_path / "m")[:12]
    assert (folder.reloads, folder.failures) == (1, 0)


def test_a_bad_folder_keeps_the_old_model_and_says_why(tmp_path: Path) -> None:
    save(tmp_path / "m", "dctr", seed=1)
    folder = HostedFolder("m", tmp_path / "m")
    folder.refresh()
    kept = folder.current
    manifest = tmp_path / "m" / "manifest.json"
    good = manifest.read_text()
    manifest.write_text(good.replace("dctr", "xxxx"))
    for _ in range(3):
        assert folder.refresh() is False
    assert folder.current is kept
    assert "altered" in folder.error
    assert folder.failures == 1
    manifest.write_text(good)
    assert folder.refresh() is False
    assert folder.error == ""
    manifest.unlink()
    assert folder.refresh() is False
    assert folder.current is kept
    assert folder.error


def test_a_folder_that_is_copied_file_by_file_is_served_when_it_is_whole(tmp_path: Path) -> None:
    save(tmp_path / "m", "dctr", seed=1)
    save(tmp_path / "new", "dctr", seed=2)
    folder = HostedFolder("m", tmp_path / "m")
    folder.refresh()
    for path in (tmp_path / "m").iterdir():
        path.unlink()
    files = sorted((tmp_path / "new").iterdir(), key=lambda file: file.name != "manifest.json")
    assert len(files) > 2
    for file in files[:-1]:
        shutil.copy(file, tmp_path / "m")
        assert folder.refresh() is False
        assert "missing" in folder.error
    shutil.copy(files[-1], tmp_path / "m")
    assert folder.refresh() is True
    assert folder.error == ""


@pytest.mark.parametrize("error", [OSError("the disk is away"), RuntimeError("the store is away")])
def test_an_error_of_the_file_system_does_not_end_the_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    save(tmp_path / "m", "dctr", seed=1)
    folder = HostedFolder("m", tmp_path / "m")
    folder.refresh()
    kept = folder.current
    save(tmp_path / "m", "dctr", seed=2)

    def fail(_: object) -> str:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("reclick.service.hosting.artifact.fingerprint", fail)
        assert folder.refresh() is False
        assert "is away" in folder.error
        assert folder.current is kept
    assert folder.refresh() is True


def test_a_folder_that_is_rewritten_while_it_is_read_has_the_version_of_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the old content is back at the end: A, then B while loading, then A."""
    folder = HostedFolder("m", tmp_path / "m")
    load, versions = rc.load, list[str]()

    def save_seed(seed: int) -> None:
        save(tmp_path / "m", "dctr", seed=seed)
        versions.append(artifact.fingerprint(tmp_path / "m")[:12])  # it has the time of the fit

    def load_between(path: Path) -> object:
        save_seed(1)
        model = load(path)
        save_seed(2)
        return model

    save(tmp_path / "m", "dctr", seed=2)

    with monkeypatch.context() as patched:
        patched.setattr("reclick.service.hosting.load", load_between)
        assert folder.refresh() is True
    assert folder.current is not None
    assert folder.current.version == versions[0]
    assert folder.refresh() is True
    assert folder.current.version == versions[1]


def test_queries_are_found_by_a_prefix_in_any_script() -> None:
    queries = ["İstanbul", "STRASSE", "ΟΔΟΣ", "tea"]
    index = QueryIndex(pa.array(sorted(queries)), [1, 1, 1, 1])
    for query in queries:
        assert query in [each["query"] for each in index.find(query, 10)]


def test_the_queries_of_a_model_in_buckets_are_read_when_somebody_asks(tmp_path: Path) -> None:
    fit("dctr").save(tmp_path / "buckets", buckets=3)
    save(tmp_path / "whole", "dctr")
    for name, expected in (("buckets", False), ("whole", True)):
        folder = HostedFolder(name, tmp_path / name)
        folder.refresh()
        folder.index_queries()
        assert ("_query_index" in vars(folder.current)) is expected
        assert folder.current is not None
        found = {each["query"] for each in folder.current.queries.find("", 10)}
        assert found == set(QUERIES)


def test_requests_at_once_sort_the_queries_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = HostedModel("m", "1", save(tmp_path / "m", "dctr"))
    sorted_once, may_end, times = hosted.model.query_volumes(), threading.Event(), list[int]()

    def query_volumes() -> pa.Table:
        times.append(1)
        assert may_end.wait(60)
        return sorted_once

    monkeypatch.setattr(hosted.model, "query_volumes", query_volumes)
    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(lambda: hosted.queries) for _ in range(4)]
        while not times:
            time.sleep(0.01)
        with pytest.raises(TimeLimitError), time_limit(0.05):
            _ = hosted.queries
        may_end.set()
        assert len({id(each.result()) for each in asking}) == 1
    assert times == [1]


def test_an_error_while_queries_are_sorted_does_not_end_the_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path / "m", "dctr", seed=1)

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(QueryIndex, "__init__", fail)
    app = create_app({"m": tmp_path / "m"}, reload_seconds=0.02)
    with ready_client(app) as client:
        seen = {client.get("/v1/models").json()["models"][0]["version"]}
        for seed in (2, 3):
            save(tmp_path / "m", "dctr", seed=seed)
            deadline = time.monotonic() + 60
            while len(seen) < seed and time.monotonic() < deadline:
                seen.add(client.get("/v1/models").json()["models"][0]["version"])
                time.sleep(0.02)
            assert len(seen) == seed
    assert "MemoryError: no room" in caplog.text


def test_the_watching_begins_before_the_queries_are_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "m", "dctr")
    may_end, watched = threading.Event(), threading.Event()
    monkeypatch.setattr(HostedFolder, "index_queries", lambda _: may_end.wait(60))
    monkeypatch.setattr(ModelHost, "watch", lambda *_: watched.set())
    try:
        with ready_client(create_app({"m": tmp_path / "m"})):
            assert watched.wait(10)
            may_end.set()
    finally:
        may_end.set()


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "ä", "x" * 101, "a\n"])
def test_a_name_that_cannot_stand_in_an_address_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        ModelHost({name: tmp_path})


def test_swaps_under_load_never_mix_two_models(tmp_path: Path) -> None:
    """Answers of a version always equal that version's own, while the folder changes."""
    models = [fit("dctr", seed) for seed in (1, 2)]
    folder = tmp_path / "m"
    expected = {}
    for model in models:
        model.save(folder)
        version = artifact.fingerprint(folder)[:12]
        expected[version] = (
            rc.load(folder).click_prob({"query": [PAGE["query"]], "ads": [PAGE["ads"]]})[0].tolist()
        )
    assert len(expected) == 2
    with run_service(str(folder), "--watch-seconds", "0.1", "--quiet") as client:
        stop = threading.Event()

        def swap() -> None:
            turn = 0
            while not stop.wait(0.15):
                models[turn % 2].save(folder, overwrite=True)
                turn += 1

        swapper = threading.Thread(target=swap)
        swapper.start()
        seen: set[str] = set()
        deadline, asked = time.monotonic() + 60, 0
        try:
            while asked < 600 or (seen != set(expected) and time.monotonic() < deadline):
                asked += 1
                answer = client.post("/v1/predict", json={"pages": [PAGE] * 5})
                assert answer.status_code == 200
                content = answer.json()
                seen.add(content["version"])
                for page in content["pages"]:
                    assert page["click_prob"] == expected[content["version"]]
        finally:
            stop.set()
            swapper.join()
    assert seen == set(expected)


@pytest.mark.parametrize("buckets", [None, 2])
def test_the_age_of_a_model_is_counted_from_its_fit(tmp_path: Path, buckets: int | None) -> None:
    model = fit("dctr")
    counted = model.provenance_[0]
    model.provenance_ = (counted._replace(date="2026-01-01T00:00:00"),)
    model.save(tmp_path / "old", buckets=buckets)
    model.provenance_ += (counted._replace(date="2026-01-02T00:00:00", use="update"),)
    model.save(tmp_path / "updated", buckets=buckets)
    model.provenance_ = ()
    model.save(tmp_path / "unknown", buckets=buckets)
    names = ("old", "updated", "unknown")
    with ready_client(create_app({name: tmp_path / name for name in names})) as client:
        lines = dict(each.rsplit(" ", 1) for each in client.get("/metrics").text.splitlines())
        described = {each["name"]: each for each in client.get("/v1/models").json()["models"]}
    day = 86_400.0
    fitted = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert described["old"]["fitted_at"] == fitted
    assert described["updated"]["fitted_at"] == fitted + day
    assert described["unknown"]["fitted_at"] is None
    age = float(lines['reclick_model_age_seconds{model="old"}'])
    assert abs(age - (time.time() - fitted)) < 60
    difference = age - float(lines['reclick_model_age_seconds{model="updated"}'])
    assert difference == pytest.approx(day)
    assert 'reclick_model_age_seconds{model="unknown"}' not in lines
    for name in names:
        assert float(lines[f'reclick_model_loaded_seconds{{model="{name}"}}']) < 60


def test_a_folder_with_a_wrong_time_of_its_fit_is_not_loaded(tmp_path: Path) -> None:
    model = fit("dctr")
    model.provenance_ = (model.provenance_[0]._replace(date="yesterday"),)
    model.save(tmp_path / "m")
    folder = HostedFolder("m", tmp_path / "m")
    assert folder.refresh() is False
    assert "yesterday" in folder.error


def test_the_service_says_what_is_wrong_with_a_folder_and_goes_on(tmp_path: Path) -> None:
    save(tmp_path / "m", "dctr")
    with run_service(str(tmp_path / "m"), "--watch-seconds", "0.1") as client:
        (tmp_path / "m" / "manifest.json").write_text("{}")
        deadline = time.monotonic() + 60
        ready = client.get("/readyz").json()
        while ready["models"]["m"] == "ready" and time.monotonic() < deadline:
            time.sleep(0.02)
            ready = client.get("/readyz").json()
        assert ready["status"] == "ready"
        assert "altered" in ready["models"]["m"]
        assert client.post("/v1/predict", json={"pages": [PAGE]}).status_code == 200
        assert "reclick_model_reload_failures" in client.get("/metrics").text


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "reclick", "serve", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_another_address_needs_a_token(tmp_path: Path, host: str) -> None:
    done = run(str(tmp_path), "--host", host)
    assert done.returncode == 2
    assert "token" in done.stderr


def test_a_weak_token_and_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    assert "too weak" in run(str(tmp_path), RECLICK_TOKEN="short").stderr
    token = tmp_path / "token"
    assert "cannot be read" in run(str(tmp_path), "--token-file", str(token)).stderr
    assert "NAME=FOLDER" in run(str(tmp_path / "a" / "m"), str(tmp_path / "b" / "m")).stderr


def test_a_folder_that_is_not_there_ends_the_command(tmp_path: Path) -> None:
    save(tmp_path / "model", "dctr")
    for name, problem in (("modle", "does not exist"), ("model/manifest.json", "is not a folder")):
        done = run(str(tmp_path / "model"), f"daily={tmp_path / name}")
        assert done.returncode == 2
        assert f"{tmp_path / name} {problem}" in done.stderr
        assert "Serving" not in done.stdout


def test_a_folder_of_other_files_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "week1.csv").write_text("query,ads,clicks\n")
    done = run(str(tmp_path / "logs"))
    assert done.returncode == 2
    assert f"{tmp_path / 'logs'} holds no model, but other files. Give the folder" in done.stderr


def test_an_empty_folder_is_served_when_its_model_is_written(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    folder = HostedFolder("empty", tmp_path / "empty")
    assert folder.refresh() is False
    save(tmp_path / "empty", "dctr")
    assert folder.refresh() is True


def test_a_port_in_use_is_explained(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run(str(tmp_path), "--port", str(port))
    assert done.returncode == 2
    assert done.stderr == f"error: Port {port} is in use: give another --port.\n"


def test_an_address_of_another_machine_is_explained(tmp_path: Path) -> None:
    done = run(
        str(tmp_path), "--host", "192.0.2.1", RECLICK_TOKEN="a long enough token".replace(" ", "-")
    )
    assert done.returncode == 2
    assert "Cannot listen on 192.0.2.1:" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_every_loopback_address_is_answered_under_its_own_name(tmp_path: Path) -> None:
    save(tmp_path / "m", "dctr")
    with run_service(str(tmp_path / "m"), "--host", "127.0.0.2", "--quiet") as client:
        assert client.base_url.host == "127.0.0.2"
        assert client.get("/v1/models").status_code == 200


def test_the_token_of_the_environment_is_required(tmp_path: Path) -> None:
    save(tmp_path / "m", "dctr")
    with run_service(f"shop={tmp_path / 'm'}", token="a-token-of-16-characters") as client:
        assert client.get("/v1/models").json()["models"][0]["name"] == "shop"
        answer = client.get("/v1/models", headers={"authorization": ""})
        assert answer.status_code == 401
        assert json.loads(answer.text)["error"] == "unauthorized"
