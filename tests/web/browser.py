"""A real browser without a window, told what to do by the protocol of its developer tools.

Nothing beside the browser is needed: the protocol goes through two pipes, JSON between zero bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 60.0


def installed() -> str | None:
    """The browser of this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a browser of its own."""

    def __init__(self, program: str, home: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # It reads 3 and writes 4; a shell puts the pipes there.
        line = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", line, program, "--headless", "--no-sandbox", "--disable-gpu",
             "--no-first-run", "--hide-scrollbars",
             # It talks to loopback only: by itself it would ask its maker for updates and more.
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-quic", "--disable-domain-reliability", "--no-pings",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
             f"--user-data-dir={home}", "--remote-debugging-pipe"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._count, self._rest, self._session = 0, b"", ""
        self.errors: list[str] = []  # what the page told its console
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.tell("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.tell(f"{domain}.enable")

    def tell(self, method: str, **params: Any) -> dict[str, Any]:
        """One command, and what it gives."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            if answer.get("method") in {"Runtime.exceptionThrown", "Log.entryAdded"}:
                self.errors.append(json.dumps(answer["params"]))
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            some = os.read(self._read, 1 << 16)
            assert some, "the browser ended"
            self._rest += some
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def of_page(self, code: str) -> Any:
        """What an expression is in the page."""
        given = self.tell(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in given, given
        return given["result"].get("value")

    def until(self, code: str) -> None:
        """Wait until an expression holds in the page."""
        end = time.monotonic() + PATIENCE_S
        while not self.of_page(code):
            assert time.monotonic() < end, (code, self.of_page("document.body.innerText"))
            time.sleep(0.05)

    def open(self, address: str) -> None:
        """Go to an address, and wait for the page."""
        before = self.of_page("performance.timeOrigin")
        assert "errorText" not in self.tell("Page.navigate", url=address)
        self.until(f"performance.timeOrigin != {before} && document.readyState == 'complete'")

    def look(self, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Be a screen of this size, whose user wants it light or dark."""
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.tell("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path) -> None:
        """What is seen, as a PNG."""
        path.write_bytes(b64decode(self.tell("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End it."""
        os.close(self._write)
        os.close(self._read)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
