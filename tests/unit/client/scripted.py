"""A real HTTP server that gives the answers it was told to."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """`status` 0: the connection is closed without an answer. A `stream` is cut off at its end."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    stream: bytes | None = None


NO_STREAM = Answer(
    404,
    {
        "code": "NOT_FOUND",
        "message": "no such path",
        "details": [{"field": "path", "code": "NO_SUCH_PATH", "message": "no such path"}],
    },
)


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Script:
    """The answers still to give, and what was asked so far. The last answer repeats. Streams have
    answers of their own; without any there is no such route.
    """

    answers: list[Answer]
    streams: list[Answer] = field(default_factory=list)
    listened: list[Asked] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""


class _Handler(BaseHTTPRequestHandler):
    script: Script

    def do_GET(self) -> None:
        self._reply()

    def do_POST(self) -> None:
        self._reply()

    def do_PUT(self) -> None:
        self._reply()

    def do_DELETE(self) -> None:
        self._reply()

    def log_message(self, *args: object) -> None:
        """The test's output is not the place."""

    def _reply(self) -> None:
        script = self.script
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        is_stream = headers.get("accept") == "text/event-stream"
        asked = script.listened if is_stream else script.asked
        asked.append(Asked(self.command, self.path, headers, body))
        answers = script.streams if is_stream else script.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        self.close_connection = True
        if answer.stream is not None:
            self._stream(answer.stream)
        elif answer.status:
            self._send(answer)

    def _stream(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.end_headers()
        self.wfile.write(content)

    def _send(self, answer: Answer) -> None:
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body)
        raw = content if isinstance(content, bytes) else content.encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@contextmanager
def serving(*answers: Answer, streams: Sequence[Answer] = ()) -> Iterator[Script]:
    """Serves `answers` in order on a free port."""
    script = Script(list(answers), list(streams) or [NO_STREAM])
    handler = type("Handler", (_Handler,), {"script": script})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    script.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
