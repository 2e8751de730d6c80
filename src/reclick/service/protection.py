"""Access control and limits: the ASGI layer around the service, and its connections.

Each limit has its own answer with a 4xx status. Every request writes one log line as JSON, which
contains no query, ad or text.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from reclick.service.measures import Measures

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/livez", "/readyz"})  # for probes, without a token
LAB_PATHS = frozenset({"/", "/lab.js", "/lab.css"})  # the page asks for the token itself
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "testserver"})
CONTENT_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", CONTENT_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
LONGEST_LENGTH = 20  # digits of a Content-Length
EXPOSED_HEADERS = b"x-reclick-model, x-reclick-version, x-request-id"
access = logging.getLogger("reclick.service")


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The limits of a request."""

    body_bytes: int = 8 << 20
    pages: int = 10_000  # per request
    ads: int = 100  # per page
    text_characters: int = 20_000  # per ad
    candidates: int = 200  # of a rank or an auction
    concurrency: int = 64  # requests at once; more are refused
    seconds: float = 30.0  # to receive and answer a request


class Protection:
    """Check each request before the service handles it, then measure and log it."""

    def __init__(
        self,
        app: App,
        *,
        limits: ServiceLimits,
        token: str | None,
        measures: Measures,
        allowed_hosts: frozenset[str],
        cors_origins: frozenset[str] = frozenset(),
    ) -> None:
        self.app = app
        self.limits = limits
        self.token = None if token is None else token.encode()
        self.measures = measures
        self.allowed_hosts = allowed_hosts
        self.cors_origins = cors_origins
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self.limits.body_bytes)
        self._allow_origin(exchange)
        self.running += 1
        try:
            refusal = self._refuse(exchange)
            if refusal is not None:
                await exchange.answer(*refusal)
            else:
                async with asyncio.timeout(self.limits.seconds):
                    await self.app(scope, exchange.receive, exchange.send)
        except TimeoutError:
            await exchange.answer(
                408,
                "timeout",
                f"The request was not received and answered within {self.limits.seconds:g} "
                "seconds. Send a smaller request.",
            )
        finally:
            self.running -= 1
            exchange.finish(self.measures)

    def _refuse(self, exchange: Exchange) -> tuple[int, str, str] | None:
        """Return status, code and message if the request is refused before its body is read."""
        path, headers = route_path(exchange.scope), exchange.headers
        if self.allowed_hosts and _host_name(headers.get(b"host", b"")) not in self.allowed_hosts:
            return 421, "unknown_host", "This service is not known under this Host name."
        if exchange.scope["method"] == "OPTIONS" and exchange.cors:
            return 204, "", ""
        if path in OPEN_PATHS:
            exchange.scope["state"]["has_token"] = self._has_token(headers)
            return None
        if self.running > self.limits.concurrency:
            return 429, "too_many_requests", "Too many requests at once. Try again in a moment."
        if path not in LAB_PATHS and not self._has_token(headers):
            return 401, "unauthorized", "Give the token: Authorization: Bearer TOKEN."
        return self._refuse_length(headers.get(b"content-length", b"0"))

    def _has_token(self, headers: dict[bytes, bytes]) -> bool:
        if self.token is None:
            return True
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        return hmac.compare_digest(token.strip(), self.token) and scheme.lower() == b"bearer"

    def _refuse_length(self, length: bytes) -> tuple[int, str, str] | None:
        if not length.isdigit() or len(length) > LONGEST_LENGTH:
            return 400, "bad_length", "The Content-Length is not a number."
        if int(length) > self.limits.body_bytes:
            return (
                413,
                "body_too_large",
                f"The body has {int(length):,} bytes, at most {self.limits.body_bytes:,} are read.",
            )
        return None

    def _allow_origin(self, exchange: Exchange) -> None:
        origin = exchange.headers.get(b"origin", b"")
        if origin and origin.decode("latin-1") in self.cors_origins:
            exchange.cors = [
                (b"access-control-allow-origin", origin),
                (b"access-control-allow-methods", b"GET, POST"),
                (b"access-control-allow-headers", b"authorization, content-type, accept"),
                (b"access-control-expose-headers", EXPOSED_HEADERS),
                (b"vary", b"origin"),
            ]


class BodyTooLargeError(Exception):
    """The body of a request is larger than the limit."""


class Exchange:
    """One request and its answer, with its size and duration."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, most_bytes: int) -> None:
        self.scope = scope
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.status = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.cors: list[tuple[bytes, bytes]] = []
        self.identifier = secrets.token_hex(8)
        self._receive, self._send = receive, send
        self._most_bytes = most_bytes
        self._start = time.perf_counter()
        scope.setdefault("state", {})["request"] = self.identifier

    async def receive(self) -> Message:
        """Receive the next part of the body; raise if the body is too large."""
        message = await self._receive()
        self.bytes_in += len(message.get("body", b""))
        if self.bytes_in > self._most_bytes:
            raise BodyTooLargeError(f"The body has more than {self._most_bytes:,} bytes.")
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message.get("headers", []),
                *SECURITY_HEADERS,
                (b"x-request-id", self.identifier.encode()),
                *self.cors,
            ]
        self.bytes_out += len(message.get("body", b""))
        await self._send(message)

    async def answer(self, status: int, code: str, message: str) -> None:
        """Send an answer without data, unless another answer has begun."""
        if self.status:
            return
        content = b"" if status == 204 else _encode_problem(code, message)
        headers = [(b"content-length", str(len(content)).encode())]
        if content:
            headers.append((b"content-type", b"application/json"))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if status == 429:
            headers.append((b"retry-after", b"1"))
        if status in (408, 413):  # the rest of the body is not read
            headers.append((b"connection", b"close"))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": content})

    def finish(self, measures: Measures) -> None:
        """Count the request and write its log line."""
        seconds = time.perf_counter() - self._start
        route = getattr(self.scope.get("route"), "path", "other")
        status = self.status or 499  # the client went away
        measures.count_request(route, status, seconds)
        if access.isEnabledFor(logging.INFO):
            state = self.scope["state"]
            access.info(
                json.dumps(
                    {
                        "time": round(time.time(), 3),
                        "request": self.identifier,
                        "method": self.scope["method"],
                        "route": route,
                        "status": status,
                        "milliseconds": round(seconds * 1000, 3),
                        "bytes_in": self.bytes_in,
                        "bytes_out": self.bytes_out,
                        **state.get("log", {}),
                    }
                )
            )


class HeadTimeout(asyncio.Protocol):
    """Close a connection whose client does not send the head of a request in time.

    A part of a class with a protocol of uvicorn, which waits for heads for ever. Its `cycle` is the
    newest request whose head has come. The time for a body and an answer is up to `Protection`.
    """

    head_seconds: float  # for the first head from the connection on, later from its first byte on
    cycle: Any
    _transport: asyncio.BaseTransport
    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the head of the first request."""
        super().connection_made(transport)
        self._transport = transport
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Go on waiting unless a head is now complete."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_head()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._closing is None:
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(self.head_seconds, self._transport.close)

    def _stop_waiting(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only.

    >>> [is_loopback(each) for each in ("127.0.0.1", "localhost", "::1", "0.0.0.0")]
    [True, True, True, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def route_path(scope: Scope) -> str:
    """Return the path without the prefix of a proxy or of an outer app."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def _host_name(header: bytes) -> str:
    """Return the name in a Host header, without the port."""
    text = header.decode("latin-1").lower()
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return text.partition(":")[0]


def _encode_problem(code: str, message: str) -> bytes:
    return json.dumps({"error": code, "message": message}).encode()
