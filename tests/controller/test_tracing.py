"""A QueueJob's submission, as the controller's own process records it."""

import json
from pathlib import Path

import pytest
from tests.controller.kubectl import Kubectl, queue_job
from tests.integration.serving import Server
from tests.otlp import collecting

_TRACE, _SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_resource_is_a_submission_in_the_trace_of_its_annotation(
    kubectl: Kubectl, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubectl.kubeconfig))
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    made = queue_job("job")
    made["metadata"]["annotations"] = {"queueoperator.dev/traceparent": f"00-{_TRACE}-{_SPAN}-01"}
    with collecting() as collector:
        server = Server(
            {
                "DATABASE__DSN": dsn,
                "CONTROLLER__ENABLED": "true",
                "CONTROLLER__NAMESPACES": json.dumps([kubectl.namespace]),
                "TRACING__ENDPOINT": collector.address,
            },
            tmp_path / "serve.log",
        )
        try:
            server.await_ready()
            kubectl("create", "-f", "-", stdin=json.dumps(made))
            sent = collector.await_span(queue_operator__door="resource")
            assert (sent.trace_id, sent.parent_id) == (_TRACE, _SPAN)
            assert (sent.name, sent.service) == ("send echo", "queue-operator")
            assert sent.attributes["queue_operator.namespace"] == kubectl.namespace
            assert server.end() == 0
        finally:
            server.process.kill()
            server.process.wait()
