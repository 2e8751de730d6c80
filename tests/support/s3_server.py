"""A real S3 server on loopback (moto's), with a door for faults in front of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.request import Request, urlopen

import pyarrow.fs

KEY, SECRET = "testing", "testing-secret"


@dataclass
class S3Server:
    """The server, what it was asked, and what it is to do wrong."""

    port: int = 0
    requests: list[tuple[str, str]] = field(default_factory=list)  # (method, path)
    sizes: list[int] = field(default_factory=list)  # of the answers to GET
    on_request: Callable[[str, str], str | None] | None = None  # returns a status to answer with

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find the server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REGION": "us-east-1",
        }

    @cached_property
    def client(self) -> Any:
        """A client of the tests' own."""
        return pyarrow.fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def require_credentials(self, required: bool) -> None:
        """Let the server check who asks, or not."""
        body = b"0" if required else b"inf"
        headers = {"Content-Type": "text/plain"}
        with urlopen(Request(f"{self.url}/moto-api/reset-auth", body, headers)):  # noqa: S310
            pass

    def wrap(self, app: Any) -> Any:
        """The application with the door for faults in front of it."""

        def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            self.requests.append((method, path))
            status = self.on_request and self.on_request(method, path)
            if status:
                start(status, [("Content-Length", "0")])
                return [b""]
            parts: Iterable[bytes] = app(environ, start)
            if method == "GET":
                parts = list(parts)
                self.sizes.append(sum(map(len, parts)))
            return parts

        return answer


@contextmanager
def run_s3_server() -> Iterator[S3Server]:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = S3Server()
    app = server.wrap(DomainDispatcherApplication(create_backend_app))
    listener = make_server("127.0.0.1", 0, app, threaded=True)
    server.port = listener.server_port
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
