"""A client that its process had used before it was forked."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.forks import forked, forked_with_a_loop

from queue_operator.client import AsyncQueueClient, QueueClient
from queue_operator.client.grpc import GrpcQueue, WrongProcess
from queue_operator.domain.job import Job

QUESTIONS = 60


class Echo(BaseHTTPRequestHandler):
    """Answers with the job that was asked for, over connections that stay open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        job_id = self.path.rpartition("/")[2].partition("?")[0]
        answer = {
            "job_id": job_id,
            "namespace": "default",
            "type": "t",
            "state": "RUNNING",
            "attempt": 1,
            "max_attempts": 4,
            "created_at": "2026-01-01T00:00:00Z",
            "priority": "NORMAL",
            "tags": {},
            "correlation_id": "",
        }
        raw = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args: object) -> None:
        """The test's output is not the place."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


# The parent's threads are those of the server, which no child needs.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


def test_children_of_one_client_get_their_own_answers(url: str, tmp_path: Path) -> None:
    with QueueClient(url) as client:
        assert client.get("parent").job_id == "parent"

        def ask(name: object) -> None:
            for number in range(QUESTIONS):
                job_id = f"{name}-{number}"
                assert client.get(job_id).job_id == job_id

        with forked(ask, tmp_path):
            ask("parent")


async def test_so_do_those_of_an_asynchronous_one(url: str, tmp_path: Path) -> None:
    async with AsyncQueueClient(url) as client:
        assert (await client.get("parent")).job_id == "parent"

        async def ask(name: object) -> None:
            for number in range(QUESTIONS):
                job_id = f"{name}-{number}"
                assert (await client.get(job_id)).job_id == job_id

        with forked_with_a_loop(ask, tmp_path):
            await ask("parent")


def test_closing_a_child_closes_nothing_of_the_parents(url: str, tmp_path: Path) -> None:
    client = QueueClient(url)
    assert client.get("before").job_id == "before"
    with forked(lambda _: client.close(), tmp_path):
        pass
    assert client.get("after").job_id == "after"
    client.close()


async def test_the_queue_over_grpc_refuses_by_name(tmp_path: Path) -> None:
    queue = GrpcQueue("127.0.0.1:1")

    async def use() -> None:
        for call in (queue.get_job("x"), queue.enqueue_job(Job(id="x", type="t"))):
            with pytest.raises(WrongProcess, match="make one in each process"):
                await call
        await queue.close()

    with forked_with_a_loop(lambda _: use(), tmp_path):
        pass
    await queue.close()
