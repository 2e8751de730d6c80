"""Models are replaced while the service runs; every answer is of one whole model."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import reclick as rc
from reclick.errors import StoreError, UsageError
from reclick.runtime import artifact
from reclick.service.hosting import HostedFolder, ModelHost
from tests.support.service import fit, run_service, save

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


def test_a_folder_that_cannot_be_loaded_at_first_raises_on_request(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        ModelHost({"m": tmp_path / "nothing"}).load_all()


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
        asked, deadline = 0, time.monotonic() + 60
        try:
            while asked < 400 or (len(seen) < 2 and time.monotonic() < deadline):
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


def test_the_service_says_what_is_wrong_with_a_folder_and_goes_on(tmp_path: Path) -> None:
    save(tmp_path / "m", "dctr")
    with run_service(str(tmp_path / "m"), "--watch-seconds", "0.1") as client:
        (tmp_path / "m" / "manifest.json").write_text("{}")
        for _ in range(200):
            ready = client.get("/readyz").json()
            if ready["models"]["m"] != "ready":
                break
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


def test_a_port_in_use_is_explained(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run(str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "cannot be listened on" in done.stderr


def test_the_token_of_the_environment_is_required(tmp_path: Path) -> None:
    save(tmp_path / "m", "dctr")
    with run_service(f"shop={tmp_path / 'm'}", token="a-token-of-16-characters") as client:
        assert client.get("/v1/models").json()["models"][0]["name"] == "shop"
        answer = client.get("/v1/models", headers={"authorization": ""})
        assert answer.status_code == 401
        assert json.loads(answer.text)["error"] == "unauthorized"
