"""Headless Chromium over its DevTools protocol: opens pages, collects what its console says."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
"""The browser; None where it is not installed."""

START_S = 60.0
OPTIONS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--window-size=1500,1000",
]

# Bokeh draws inside shadow roots, which innerText does not enter.
TEXT_JS = """
(() => { const walk = node => [...node.childNodes].map(child =>
  (child.nodeType === 3 ? child.data : child.tagName === "STYLE" || child.tagName === "SCRIPT" ?
   "" : walk(child) + (child.shadowRoot ? walk(child.shadowRoot) : ""))).join(" ");
  return walk(document.body); })()
"""


class Browser:
    """One tab.

    Parameters
    ----------
    loop, socket
        Where its DevTools connection lives.

    Attributes
    ----------
    complaints : list of str
        Errors on the console, exceptions and failed requests so far.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: WebSocketClientConnection) -> None:
        self._loop = loop
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Ask for something over the protocol, and wait for the answer."""
        return self._loop.run_until_complete(self._call(method, params))

    async def _call(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        self._number += 1
        number = self._number
        request = {"id": number, "method": method, "params": params}
        await self._socket.write_message(json.dumps(request))
        while True:
            message = json.loads(await self._socket.read_message())
            if message.get("id") == number:
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in {"error", "assert"}:
            self.complaints.append(str([arg.get("value") for arg in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def evaluate(self, expression: str) -> object:
        """The value of an expression of JavaScript."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def open(self, url: str, word: str, timeout_s: float = 60.0) -> tuple[str, float]:
        """Open a page and wait until it shows a word; returns its text and the seconds it took."""
        began_s = time.monotonic()
        self.call("Page.navigate", url=url)
        text = self.wait_text(word, timeout_s)
        return text, time.monotonic() - began_s

    def wait_text(self, word: str, timeout_s: float = 60.0) -> str:
        """Wait until the page shows a word; returns all its text.

        Raises
        ------
        TimeoutError
            It never showed it.
        """
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            text = str(self.evaluate(TEXT_JS) or "")
            if word in text:
                return text
            self._loop.run_until_complete(asyncio.sleep(0.02))
        raise TimeoutError(f"the page never showed {word!r}: {self.evaluate(TEXT_JS)!r}")

    def screenshot(self, path: Path) -> Path:
        """Write what the window shows as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))
        return path


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser whose profile lives in a folder; needs `CHROMIUM`."""
    process = subprocess.Popen(
        [str(CHROMIUM), *OPTIONS, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    loop = asyncio.new_event_loop()
    try:
        port = _port(folder / "DevToolsActivePort", process)
        tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
        url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        socket = loop.run_until_complete(_connect(url))
        yield Browser(loop, socket)
        loop.run_until_complete(_close(socket))
    finally:
        process.terminate()
        process.wait()
        loop.close()


async def _connect(url: str) -> WebSocketClientConnection:
    return await websocket_connect(url, max_message_size=1 << 28)


async def _close(socket: WebSocketClientConnection) -> None:
    socket.close()


def _port(path: Path, process: subprocess.Popen[bytes]) -> int:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        if process.poll() is not None:
            raise RuntimeError("the browser ended at once")
        if path.exists() and path.read_text().strip():
            return int(path.read_text().split()[0])
        time.sleep(0.05)
    raise TimeoutError("the browser did not open its port")
