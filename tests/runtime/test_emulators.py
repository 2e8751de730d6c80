"""Google Cloud Storage and Azure, against emulators on loopback where they are installed.

`pip install gcp-storage-emulator` and `npm install azurite`, with their commands on the PATH.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.errors import LogError, StoreError
from reclick.simulation import simulate

LOOPBACK = "127.0.0.1"
WAIT = 60  # seconds, for an emulator to start
# Of the account that Azurite has on every machine.
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


class Emulator(NamedTuple):
    """A running emulator with one bucket."""

    client: Any  # of the tests' own
    bucket: str  # its name
    address: str  # with {bucket} and {path} to be filled in

    def at(self, path: str, bucket: str = "") -> str:
        return self.address.format(bucket=bucket or self.bucket, path=path)


@contextmanager
def running(command: str, port: int, *options: str) -> Iterator[None]:
    found = shutil.which(command)
    if found is None:
        pytest.skip(f"{command} is not installed")
    process = subprocess.Popen(
        [found, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            with socket.socket() as one:
                if one.connect_ex((LOOPBACK, port)) == 0:
                    break
            time.sleep(0.2)
        else:
            raise TimeoutError(f"{command} does not listen after {WAIT} s")
        yield
    finally:
        process.terminate()
        process.wait(WAIT)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


@contextmanager
def google() -> Iterator[Emulator]:
    port = free_port()
    where = ("start", f"--host={LOOPBACK}", f"--port={port}", "--in-memory")
    with running("gcp-storage-emulator", port, *where, "--default-bucket=bucket"):
        address = f"{LOOPBACK}:{port}"
        client = pyarrow.fs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override=address)
        options = f"scheme=http&endpoint_override={address}&retry_limit_seconds=10"
        yield Emulator(client, "bucket", f"gs://anonymous@{{bucket}}/{{path}}?{options}")


@contextmanager
def azure() -> Iterator[Emulator]:
    port = free_port()
    where = ("--blobHost", LOOPBACK, "--blobPort", str(port), "--inMemoryPersistence", "--silent")
    with running("azurite-blob", port, *where, "--skipApiVersionCheck"):
        hosts = {f"{kind}_storage_authority": f"{LOOPBACK}:{port}" for kind in ("blob", "dfs")}
        client = pyarrow.fs.AzureFileSystem(
            "devstoreaccount1",
            account_key=AZURITE_KEY,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
            **hosts,
        )
        client.create_dir("box")
        options = "&".join(
            [*(f"{name}={host}" for name, host in hosts.items()), "enable_tls=false"]
        )
        host = "devstoreaccount1.dfs.core.windows.net"
        yield Emulator(client, "box", f"abfss://{{bucket}}@{host}/{{path}}?{options}")


@pytest.fixture(params=[google, azure], ids=["google", "azure"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    monkeypatch.setenv("AZURE_STORAGE_KEY", AZURITE_KEY)
    with request.param() as emulator:
        yield emulator


def test_logs_models_and_predictions_are_read_and_written(store: Emulator, tmp_path: Path) -> None:
    first, second = simulate(2_000, weeks=2, queries=30, seed=4).weeks
    pq.write_table(first, tmp_path / "log.parquet", row_group_size=600)
    with store.client.open_output_stream(f"{store.bucket}/week1/log.parquet") as file:
        file.write((tmp_path / "log.parquet").read_bytes())
    for path in ("week1/log.parquet", "week1/", "week*/*.parquet"):
        assert rc.count(store.at(path)) == rc.count(first)

    model = rc.MultiClick().fit(store.at("week1/log.parquet"))
    model.save(store.at("models/m"))
    model.update(second).save(store.at("models/m"))
    assert rc.load(store.at("models/m")).training_counts == model.training_counts

    rc.predict(model, store.at("week1/"), store.at("predictions.parquet"))
    rc.predict(model, tmp_path / "log.parquet", tmp_path / "local.parquet")
    with store.client.open_input_file(f"{store.bucket}/predictions.parquet") as file:
        assert pq.read_table(file).equals(pq.read_table(tmp_path / "local.parquet"))

    with pytest.raises(LogError, match=r"missing\.parquet.* does not exist"):
        rc.count(store.at("missing.parquet"))
    with pytest.raises(
        LogError, match=r"there is no bucket .*elsewhere|no bucket gs://\*\*\*@else"
    ):
        rc.count(store.at("log.parquet", "elsewhere"))
    with pytest.raises(StoreError, match="cannot be written: there is no bucket"):
        model.save(store.at("m", "elsewhere"))


def test_wrong_keys_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", AZURITE_KEY[:-4] + "AA==")
    with azure() as store:  # whose own client has the right key
        with pytest.raises(StoreError, match=r"abfss://box@dev.*credentials are wrong"):
            rc.count(store.at("log.parquet"))
        monkeypatch.setenv("AZURE_STORAGE_KEY", "no key")
        with pytest.raises(StoreError, match="AZURE_STORAGE_KEY is no key"):
            rc.count(store.at("log.parquet"))
