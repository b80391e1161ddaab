"""An HTTP server of figures, in which time passes faster than outside."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from tests.observability.world import Counter, Figures, Series, value


class FigureServer:
    """Shows one target of the world on `/metrics`. A context manager.

    `factor` is how many seconds of the world pass in one second. What is planted holds from then
    on; counters go on from where they are.
    """

    def __init__(self, figures: Figures, factor: float) -> None:
        self._figures: dict[str, Series] = dict(figures)
        self._counted: dict[str, float] = {}
        self._factor = factor
        self._since = time.monotonic()
        self._lock = threading.Lock()
        self._down = False
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = server.text()
                self.send_response(503 if text is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, format: str, *_: object) -> None:
                """Nothing, as nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def text(self) -> str | None:
        """The exposition; None while it is down."""
        with self._lock:
            return None if self._down else self._shown()

    def _shown(self) -> str:
        elapsed = (time.monotonic() - self._since) * self._factor
        now = time.time()
        lines = (
            f"{name} {value(series, elapsed, now, self._counted.get(name, 0.0))!r}\n"
            for name, series in sorted(self._figures.items())
        )
        return "".join(lines)

    def plant(self, changed: Figures, *, down: bool = False) -> None:
        """From now on it is so."""
        with self._lock:
            elapsed = (time.monotonic() - self._since) * self._factor
            for name, series in self._figures.items():
                if isinstance(series, Counter):
                    self._counted[name] = self._counted.get(name, 0.0) + series.rate * elapsed
            self._since = time.monotonic()
            self._figures.update(changed)
            self._down = down

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
