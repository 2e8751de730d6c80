"""Connections that send slowly, half, or nothing: the service stays ready for the others."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.service import run_service

PAGE = {"query": "tea", "ads": ["ad0", "ad1"]}
IDLE = 1000  # connections
HEAD = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def read_until_closed(connection: socket.socket) -> bytes:
    connection.settimeout(20)
    received = b""
    while part := connection.recv(4096):
        received += part
    return received


def read_answer(connection: socket.socket) -> bytes:
    """An answer of /livez, whose body has an object in an object."""
    connection.settimeout(20)
    received = b""
    while not received.endswith(b"}}"):
        part = connection.recv(4096)
        assert part, received
        received += part
    return received


def is_closed(connection: socket.socket) -> bool:
    try:
        return read_until_closed(connection) == b""
    except ConnectionError:
        return True


@contextmanager
def few_open_files() -> Iterator[None]:
    """The usual limit of 1,024 files, which a process that is started then has too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def allow_open_files(stack: ExitStack) -> None:
    """More files for the test itself, as long as the stack is open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))


def test_idle_slow_and_half_sent_requests_do_not_hold_up_others(folders: dict[str, Path]) -> None:
    options = ("--quiet", "--timeout", "1.5", "--max-requests", "300")
    with (
        few_open_files(),
        run_service(str(folders["ubm"]), *options) as client,
        ExitStack() as stack,
    ):
        address = (client.base_url.host, client.base_url.port)
        allow_open_files(stack)

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(address))

        idle = [connect() for _ in range(IDLE)]  # which say nothing
        half_heads = [connect() for _ in range(50)]
        for each in half_heads:
            each.sendall(HEAD[:40])
        half_sent = [connect() for _ in range(50)]
        for each in half_sent:
            each.sendall(HEAD + b'content-length: 500\r\n\r\n{"pages": ')
        slow = connect()
        slow.sendall(HEAD + b"content-length: 400\r\n\r\n")
        for _ in range(20):
            start = time.perf_counter()
            assert client.post("/v1/predict", json={"pages": [PAGE]}).status_code == 200
            assert client.get("/readyz").status_code == 200
            assert time.perf_counter() - start < 10
            with suppress(ConnectionError):  # it may have been ended by now
                slow.sendall(b" ")
        assert b"408" in read_until_closed(half_sent[0]).split(b"\r\n")[0]
        assert {read_until_closed(each) for each in (*idle, *half_heads)} == {b""}
        assert client.post("/v1/predict", json={"pages": [PAGE]}).status_code == 200


@pytest.mark.parametrize("library", ["httptools", "h11"])  # that uvicorn reads requests with
def test_a_head_that_comes_byte_by_byte_is_not_waited_for(
    folders: dict[str, Path], library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "h11":  # as where httptools is not installed
        (tmp_path / "httptools.py").write_text("raise ImportError")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    whole = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with run_service(str(folders["ubm"]), "--quiet", "--timeout", "1") as client:
        address = (client.base_url.host, client.base_url.port)
        with (
            socket.create_connection(address) as slow,
            socket.create_connection(address) as second,
            socket.create_connection(address) as calm,
        ):
            for each in (second, calm):
                each.sendall(whole)
                assert read_answer(each).startswith(b"HTTP/1.1 200 ")
            for each in (slow, second):
                each.sendall(whole[:-2] + b"x: ")
            with suppress(ConnectionError):
                for _ in range(15):
                    slow.sendall(b"a")
                    second.sendall(b"a")
                    time.sleep(0.1)
            for each in (slow, second):
                assert is_closed(each)
            calm.sendall(whole)  # between two requests a connection may rest
            assert read_answer(calm).startswith(b"HTTP/1.1 200 ")


def test_a_stopped_service_answers_what_it_has_taken_and_nothing_more(
    folders: dict[str, Path],
) -> None:
    body = json.dumps({"pages": [PAGE]}).encode()
    head = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    with run_service(str(folders["ubm"]), "--quiet") as client:
        address = (client.base_url.host, client.base_url.port)
        with socket.create_connection(address) as taken:
            taken.sendall(head + body[:5])
            assert client.get("/readyz").status_code == 200  # so the half before it has arrived
            client.process.send_signal(signal.SIGTERM)
            assert wait_until_refused(address)
            taken.sendall(body[5:])
            answer = read_until_closed(taken)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"click_prob" in answer
        assert client.process.wait(timeout=20) in (0, 143, -signal.SIGTERM)


def wait_until_refused(address: tuple[str, int | None]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection(address).close()
        except ConnectionError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("declared", [True, False])
def test_an_oversized_body_is_refused_before_it_is_read(
    folders: dict[str, Path], declared: bool
) -> None:
    with run_service(str(folders["ubm"]), "--quiet", "--max-body", "4096") as client:
        address = (client.base_url.host, client.base_url.port)
        with socket.create_connection(address) as connection:
            if declared:
                connection.sendall(HEAD + b"content-length: 99999999999\r\n\r\n{")
            else:
                connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
                with suppress(ConnectionError):
                    for _ in range(5000):
                        connection.sendall(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
            connection.settimeout(20)
            answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert client.get("/readyz").status_code == 200


HOSTILE_HEADERS = {
    "content type of another character set": ("content-type", b"application/json; charset=utf-7"),
    "content type without an end": ("content-type", b"application/json;" + b"a=b;" * 500),
    "content type of raw bytes": ("content-type", bytes(range(128, 256))),
    "empty content type": ("content-type", b""),
    "form": ("content-type", b"application/x-www-form-urlencoded"),
    "several parts": ("content-type", b"multipart/form-data; boundary=x"),
    "compressed": ("content-encoding", b"gzip"),
    "expectation": ("expect", b"100-continue"),
    "upgrade": ("upgrade", b"h2c"),
    "range": ("range", b"bytes=0-99999999999"),
    "host of raw bytes": ("host", b"\xff\xfe"),
    "empty host": ("host", b""),
    "host with a path": ("host", b"localhost/../../etc"),
    "forwarded": ("x-forwarded-for", b"127.0.0.1, ::1, <script>"),
    "method override": ("x-http-method-override", b"DELETE"),
    "raw authorization": ("authorization", b"Bearer \xff\xff"),
    "many cookies": ("cookie", b"a=b; " * 2000),
    "accepts nothing": ("accept", b"text/nothing;q=0"),
}


@pytest.mark.parametrize("token", [None, "a-token-of-the-header-tests"])
def test_hostile_headers_are_answered_without_a_server_error(
    folders: dict[str, Path], token: str | None
) -> None:
    body = json.dumps({"pages": [PAGE]}).encode()
    with run_service(str(folders["ubm"]), "--quiet", token=token) as client:
        address = (client.base_url.host, client.base_url.port)
        for what, (name, value) in HOSTILE_HEADERS.items():
            headers = {"host": b"localhost", "content-type": b"application/json"}
            if token is not None:
                headers["authorization"] = b"Bearer " + token.encode()
            headers |= {name: value, "content-length": b"%d" % len(body), "connection": b"close"}
            lines = [key.encode() + b": " + each for key, each in headers.items()]
            head = b"\r\n".join([b"POST /v1/predict HTTP/1.1", *lines, b"", b""])
            with socket.create_connection(address) as connection:
                connection.sendall(head + body)
                answer = read_until_closed(connection)
            assert answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4", b"HTTP/1.1 100")), what
            assert b"Traceback" not in answer, what
        assert client.get("/readyz").status_code == 200


def test_bytes_that_are_no_request_are_refused(folders: dict[str, Path]) -> None:
    with run_service(str(folders["ubm"]), "--quiet") as client:
        address = (client.base_url.host, client.base_url.port)
        for content in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,  # TLS
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /\x00 HTTP/1.1\r\nhost: localhost\r\n\r\n",
            HEAD + b"content-length: -5\r\n\r\n",
            HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\n{}",
            HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
            b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 300_000 + b"\r\n\r\n",
        ):
            with socket.create_connection(address) as connection:
                try:
                    connection.sendall(content)
                    connection.shutdown(socket.SHUT_WR)
                    answer = read_until_closed(connection)
                except (ConnectionError, TimeoutError):
                    answer = b""
            assert not answer.startswith(b"HTTP/1.1 5"), content[:60]
        assert client.get("/readyz").status_code == 200
