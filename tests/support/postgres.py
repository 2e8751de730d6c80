"""A PostgreSQL server of the tests' own, in a temporary folder, where it is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FAST = "-c fsync=off -c full_page_writes=off -c shared_buffers=16MB -c max_connections=10"


def find_programs() -> Path:
    """The folder of initdb and pg_ctl."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    on_path = shutil.which("pg_ctl")
    if not found and on_path is None:
        pytest.skip("no PostgreSQL server is installed (Debian's package postgresql)")
    return found[-1].parent if found else Path(str(on_path)).parent


def as_server_user() -> list[str]:
    """The start of a command that does not run as root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return []
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    identity = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    return ["setpriv", *identity, "--"]


@contextmanager
def run_postgres() -> Iterator[str]:
    """The address of a database on loopback."""
    programs, user = find_programs(), as_server_user()
    with tempfile.TemporaryDirectory(prefix="reclick-pg-", ignore_cleanup_errors=True) as folder:
        if user:
            shutil.chown(folder, "postgres")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]

        def run(program: str, *arguments: str) -> None:
            subprocess.run(
                [*user, str(programs / program), "-D", f"{folder}/data", *arguments],
                check=True,
                cwd=folder,
                stdout=subprocess.DEVNULL,
                timeout=60,
            )

        run("initdb", "-A", "trust", "-U", "tests", "--no-sync", "-E", "UTF8", "--locale=C")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 {FAST}"
        run("pg_ctl", "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            yield f"postgresql://tests@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
