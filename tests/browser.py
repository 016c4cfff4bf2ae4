"""Drives headless Chromium by its DevTools protocol, over a pair of pipes.

The protocol is that of https://chromedevtools.github.io/devtools-protocol/; with
--remote-debugging-pipe messages are JSON that ends in a NUL, read from descriptor 3 and written to
4, so that neither a socket nor a package is needed.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import children

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --remote-debugging-pipe"
).split()
# The pipes have whatever numbers are free here; the browser wants its own two.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE_SECONDS = 60


class Browser:
    """A browser with one tab at a time; use it as a context."""

    def __init__(self, profile: Path):
        assert CHROMIUM is not None
        reads, self._writes = os.pipe()
        self._reads, writes = os.pipe()
        flags = [*FLAGS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(reads), str(writes), CHROMIUM, *flags],
            pass_fds=(reads, writes),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._number, self._rest, self._session = 0, b"", None
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: Any) -> None:
        self._session = None
        try:
            self.send("Browser.close")
            self._process.wait(PATIENCE_SECONDS)
        finally:
            children.end(self._process)
            os.close(self._reads)
            os.close(self._writes)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], PATIENCE_SECONDS)
            assert ready, f"the browser says nothing for {PATIENCE_SECONDS} s"
            content = os.read(self._reads, 1 << 20)
            assert content, "the browser has gone"
            self._rest += content
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, *, width: int = 1280, dark: bool = False, until: str = "") -> None:
        """Opens a page in a new tab, and waits until it is loaded.

        Args:
            path: The file.
            width: Of the window, in pixels; below 600 it is a phone's.
            dark: Whether dark colours are preferred.
            until: An expression in JavaScript; waited for, too, until it is true.
        """
        self._session, self.events = None, []
        tab = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=tab, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        metrics = {"height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", width=width, **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=path.as_uri())
        self.wait("location.protocol === 'file:' && document.readyState === 'complete'")
        if until:
            self.wait(until)

    def value(self, expression: str) -> Any:
        """Evaluates an expression in the page; a promise is waited for."""
        how = {"returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.value(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.02)

    def words(self) -> list[str]:
        """Lists what has been said on the console, errors and warnings included."""
        self.value("0")
        said = {
            "Runtime.consoleAPICalled": lambda p: [a.get("value", "") for a in p["args"]],
            "Runtime.exceptionThrown": lambda p: p["exceptionDetails"]["text"],
            "Log.entryAdded": lambda p: p["entry"]["text"],
        }
        events = [(event.get("method"), event.get("params")) for event in self.events]
        return [str(said[method](params)) for method, params in events if method in said]

    def click(self, x: float, y: float) -> None:
        """Clicks at a place of the window."""
        for kind in ("mousePressed", "mouseReleased"):
            button = {"button": "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def press(self, key: str, code: int) -> None:
        """Presses a key, such as Tab with the code 9."""
        for kind in ("rawKeyDown", "keyUp"):
            known = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            self.send("Input.dispatchKeyEvent", type=kind, **known)

    def picture(self) -> bytes:
        """Takes a picture of the whole page, as PNG."""
        taken = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(taken["data"])

    def print(self) -> bytes:
        """Prints the page, as PDF."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=False)["data"])
