"""What traces must not cost: anything where they are off, and a job where nobody collects them."""

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.integration.serving import STOP_TIMEOUT_S
from tests.integration.tracing.conftest import running
from tests.waiting import DEADLINE_S

from queue_operator.client import QueueClient, Submission

_GIVEN = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


@pytest.fixture
def silent() -> Iterator[str]:
    """A collector that takes connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def _imported(log: str, name: str) -> list[str]:
    return re.findall(rf"^import time:.*\| +({name}.*)$", log, re.MULTILINE)


def test_nothing_of_opentelemetry_is_imported_where_traces_are_off(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with running(dsn, tmp_path) as stage, QueueClient(stage.rest) as client:
        # A caller's trace goes on all the same.
        body = {"type": "thread", "payload": None, "job_id": "off-1"}
        assert httpx.post(f"{stage.rest}/v1/jobs", json=body, headers=_GIVEN).is_success
        status = client.wait("off-1", timeout_s=DEADLINE_S)
    assert status.result is not None
    assert status.result.output == {"imported": False, "given": _GIVEN["traceparent"]}
    # FastAPI imports the interface, where it is installed.
    assert _imported(stage.server.log, "opentelemetry.(sdk|exporter|proto)") == []
    assert _imported(stage.server.log, "queue_operator.tracing.recording") == []
    assert _imported(stage.worker_log.read_text(), "opentelemetry") == []
    for log in stage.server.log, stage.worker_log.read_text():
        assert _imported(log, "queue_operator.tracing.off") != []


def test_jobs_go_on_and_processes_end_while_no_collector_answers(
    dsn: str, tmp_path: Path, silent: str
) -> None:
    with running(dsn, tmp_path, silent) as stage:
        with QueueClient(stage.rest) as client:
            for kind in ("async", "thread", "process"):
                job_id = client.submit(Submission(type=kind, payload=None)).job_id
                assert job_id is not None
                assert client.wait(job_id, timeout_s=DEADLINE_S).state == "COMPLETED"
        stage.worker.send_signal(signal.SIGTERM)
        assert stage.worker.wait(STOP_TIMEOUT_S) == 0
        assert stage.server.end() == 0
