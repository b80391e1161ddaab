"""QueueWorkers out of sessions."""

from dataclasses import replace
from typing import Any

import pytest
from tests.controller.kubectl import WORKERS, Kubectl, Refused
from tests.controller.running import RunningController

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import WorkerSession


def pod(kubectl: Kubectl, name: str) -> str:
    """A pod that no node will run, and its uid."""
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeSelector": {"example.org/nowhere": "true"},
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "worker", "image": "worker"}],
            },
        }
    )
    return str(kubectl.get("pod", name)["metadata"]["uid"])


def session_of(kubectl: Kubectl, name: str, pod_uid: str, **changes: Any) -> WorkerSession:
    session = WorkerSession(
        session_id=f"session-{name}",
        namespace=kubectl.namespace,
        worker_name=name,
        pod_uid=pod_uid,
        tags=frozenset({"gpu"}),
        types=frozenset({"echo"}),
        capacity=4,
        version="0.1.0",
    )
    return replace(session, **changes)


async def test_a_session_becomes_a_queue_worker_of_its_pod(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = pod(kubectl, "worker-1")
    session = session_of(kubectl, "worker-1", uid)
    await backend.open_session(session)
    kubectl.wait("create", f"{WORKERS}/worker-1")
    kubectl.wait("condition=Ready", f"{WORKERS}/worker-1")
    body = kubectl.get(WORKERS, "worker-1")
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", uid)
    assert body["spec"] == {}
    assert body["status"]["slots"] == 4
    assert body["status"]["effective"]["tags"] == ["gpu"]
    assert body["status"]["sessionId"] == session.session_id

    await backend.close_sessions([session.session_id])
    kubectl.wait("condition=Ready=False", f"{WORKERS}/worker-1")
    kubectl("delete", "pod", "worker-1", "--now")
    kubectl.wait("delete", f"{WORKERS}/worker-1")


async def test_one_of_an_earlier_pod_is_made_anew(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    first = session_of(kubectl, "worker-1", pod(kubectl, "worker-1"))
    await backend.open_session(first)
    kubectl.wait("create", f"{WORKERS}/worker-1")
    before = kubectl.get(WORKERS, "worker-1")["metadata"]["uid"]
    await backend.close_sessions([first.session_id])
    kubectl("delete", "pod", "worker-1", "--now")
    second = replace(first, session_id="later", pod_uid=pod(kubectl, "worker-1"))
    await backend.open_session(second)
    until_owned_by(kubectl, second.pod_uid)
    assert kubectl.get(WORKERS, "worker-1")["metadata"]["uid"] != before


def until_owned_by(kubectl: Kubectl, pod_uid: str) -> None:
    """The object may be deleted, by us or by the collector, while kubectl waits."""
    owned = f"jsonpath={{.metadata.ownerReferences[0].uid}}={pod_uid}"
    for _ in range(3):
        try:
            kubectl.wait("create", f"{WORKERS}/worker-1")
            kubectl.wait(owned, f"{WORKERS}/worker-1")
        except Refused:
            continue
        return
    pytest.fail("no QueueWorker of the new pod appeared")


async def test_a_process_worker_comes_and_goes_with_its_session(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    await backend.open_session(session_of(kubectl, "process-1", ""))
    kubectl.wait("create", f"{WORKERS}/process-1")
    kubectl.wait("condition=Ready", f"{WORKERS}/process-1")
    assert "ownerReferences" not in kubectl.get(WORKERS, "process-1")["metadata"]
    await backend.close_sessions(["session-process-1"])
    kubectl.wait("delete", f"{WORKERS}/process-1")


@pytest.mark.parametrize(
    ("spec", "field"),
    [({"capacity": -1}, "spec.capacity"), ({"slots": 1}, "spec.slots"), ({"tags": [""]}, "tags")],
)
def test_the_api_server_refuses(kubectl: Kubectl, spec: dict[str, Any], field: str) -> None:
    worker = {
        "apiVersion": "queueoperator.dev/v1alpha1",
        "kind": "QueueWorker",
        "metadata": {"name": "w"},
        "spec": spec,
    }
    with pytest.raises(Refused, match=field):
        kubectl.apply(worker)
