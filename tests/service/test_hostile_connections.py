"""Connections that send slowly, half, or nothing: the service stays ready for the others."""

from __future__ import annotations

import json
import signal
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.support.service import run_service

PAGE = {"query": "tea", "ads": ["ad0", "ad1"]}
IDLE = 600  # connections; many systems allow 1024 open files
HEAD = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def read_until_closed(connection: socket.socket) -> bytes:
    connection.settimeout(20)
    received = b""
    while part := connection.recv(4096):
        received += part
    return received


def test_idle_slow_and_half_sent_requests_do_not_hold_up_others(folders: dict[str, Path]) -> None:
    options = ("--quiet", "--timeout", "1.5", "--max-requests", "300")
    with run_service(str(folders["ubm"]), *options) as client, ExitStack() as stack:
        address = (client.base_url.host, client.base_url.port)

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(address))

        for _ in range(IDLE):
            connect()  # and say nothing
        for _ in range(50):
            connect().sendall(HEAD[:40])  # half a head
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
        assert client.post("/v1/predict", json={"pages": [PAGE]}).status_code == 200


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
