"""A small driver of headless Chromium: the debugging protocol over two pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
# It may reach nothing: what is not refused by the page goes to a proxy that is not there.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--proxy-server=127.0.0.1:9",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0  # seconds for one answer


def find_chromium() -> str | None:
    """The browser on this machine, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """A browser with a new profile in this folder, gone at the end."""
    chromium = find_chromium()
    assert chromium
    to_read, to_write = (
        os.pipe(),
        os.pipe(),
    )  # the browser reads commands from its descriptor 3 and writes to 4
    command = [
        "bash",
        "-c",
        f'exec "$@" 3<&{to_read[0]} 4>&{to_write[1]}',
        "bash",
        chromium,
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
    ]
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            pass_fds=(to_read[0], to_write[1]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.close(to_read[0])
    os.close(to_write[1])
    try:
        yield Browser(to_read[1], to_write[0])
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to_read[1])
        os.close(to_write[0])


class Browser:
    """One page of a browser, and everything it said."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._rest, self._number = write, read, b"", 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Runtime", "Log", "Security"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what comes meanwhile is kept in `events`."""
        self._number += 1
        message = {
            "id": self._number,
            "method": method,
            "params": parameters,
            **({"sessionId": self._session} if self._session else {}),
        }
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return dict(answer["result"])

    def show(
        self, page: Path, *, width: int, height: int, dark: bool = False, print_: bool = False
    ) -> None:
        """Open a page at a size, light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media="print" if print_ else "", features=features)
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, script: str) -> Any:
        """What a script on the page gives."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, to: Path, **clip: float) -> None:
        """Save what is seen, or a piece of the page: x, y, width, height."""
        extra: dict[str, Any] = (
            {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True} if clip else {}
        )
        to.write_bytes(
            base64.b64decode(self.call("Page.captureScreenshot", format="png", **extra)["data"])
        )

    def paper(self, to: Path) -> None:
        """Save the page as it is printed."""
        to.write_bytes(
            base64.b64decode(
                self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"]
            )
        )

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(end - time.monotonic(), 0))
            chunk = os.read(self._read, 1 << 20) if ready else b""
            if not chunk:
                raise TimeoutError("The browser says nothing more.")
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))
