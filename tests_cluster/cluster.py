"""A standalone master of Spark with two workers, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyspark

HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
WAIT = 600  # seconds, for whatever should take some, on a machine with much else to do
UBM: dict[str, Any] = {"max_iterations": 12, "tolerance": 0, "attractiveness_prior": "overall"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


def start(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",  # of executors that are killed
        "PYSPARK_PYTHON": sys.executable,
    }
    return subprocess.Popen(
        [str(HOME / "bin" / "spark-class"), *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(port: int) -> None:
    for _ in range(240):
        with socket.socket() as one:
            if one.connect_ex((LOOPBACK, port)) == 0:
                return
        time.sleep(0.5)
    raise TimeoutError(f"nothing listens on port {port}")


class Cluster:
    """A master and two workers with one core each."""

    def __init__(self, folder: Path) -> None:
        self.port, self.folder = free_port(), folder
        self.url = f"spark://{LOOPBACK}:{self.port}"
        self.master = start(
            *("org.apache.spark.deploy.master.Master", "--host", LOOPBACK),
            *("--port", str(self.port), "--webui-port", str(free_port())),
        )
        wait_for(self.port)
        self.workers = [self.start_worker() for _ in range(2)]

    def start_worker(self) -> subprocess.Popen[bytes]:
        return start(
            *("org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--cores", "1"),
            *("--memory", "1g", "--webui-port", str(free_port())),
            *("--work-dir", str(self.folder), self.url),
        )

    def below(self, mark: str) -> list[psutil.Process]:
        """The processes of the workers whose command has a word in it, the youngest first."""
        found = []
        for worker in self.workers:
            if worker.poll() is None:
                for each in psutil.Process(worker.pid).children(recursive=True):
                    with suppress(psutil.Error):  # it ended meanwhile
                        if any(mark in word for word in each.cmdline()):
                            found.append(each)
        return sorted(found, key=lambda each: -each.create_time())

    def stop(self) -> None:
        for each in (*self.workers, self.master):
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()
