"""QueueJobs from `kubectl apply` to their last status."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.controller.jobs import claim, run_one, settle, until_state
from tests.controller.kubectl import JOBS, Kubectl, Refused, queue_job
from tests.controller.running import RunningController, until

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import ProgressReport
from queue_operator.controller.ports import BackendFactory
from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.job import Progress, ResourceRef
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import DEFAULT_BACKOFF
from queue_operator.domain.states import TERMINAL, Event, JobState
from queue_operator.settings import Quota, QuotaSettings


def conditions(body: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in body["status"]["conditions"]}


async def test_from_apply_to_complete(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = kubectl.apply_job("job", tags={"region": "eu"}, payload={"b": 1, "a": [1, None, "é"]})
    await until_state(backend, uid, kubectl.namespace)
    job = await backend.get_job(uid, namespace=kubectl.namespace)
    assert json.loads(job.payload) == {"a": [1, None, "é"], "b": 1}
    assert job.tags == {"region=eu"}
    assert job.backoff == DEFAULT_BACKOFF
    assert isinstance(job.resource, ResourceRef)
    assert (job.resource.uid, job.resource.name) == (uid, "job")

    assignment = await run_one(backend, kubectl.namespace)
    assert assignment.job_id == uid
    kubectl.wait("condition=Complete", f"{JOBS}/job")
    body = kubectl.get(JOBS, "job")
    status = body["status"]
    assert status["state"] == JobState.COMPLETED
    assert status["finished"] is True
    assert status["jobId"] == uid
    assert status["worker"] == "worker-1"
    assert status["attempt"] == 1
    assert status["observedGeneration"] == body["metadata"]["generation"]
    assert status["resultSummary"] == '{"ok":true}'
    assert conditions(body) == {"Accepted": "True", "Complete": "True"}


async def test_nothing_but_the_status_is_written(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    made, trace = queue_job("job"), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    made["metadata"]["annotations"] = {"queueoperator.dev/traceparent": trace}
    kubectl("create", "-f", "-", stdin=json.dumps(made))
    uid = kubectl.get(JOBS, "job")["metadata"]["uid"]
    await until_state(backend, uid, kubectl.namespace)
    assert (await run_one(backend, kubectl.namespace)).traceparent == trace
    kubectl.wait("condition=Complete", f"{JOBS}/job")
    metadata = json.loads(kubectl("get", JOBS, "job", "-o", "json", "--show-managed-fields"))[
        "metadata"
    ]
    assert metadata["annotations"] == made["metadata"]["annotations"]
    assert "finalizers" not in metadata
    ours = [m for m in metadata["managedFields"] if m["manager"] == "queue-operator"]
    assert [m["subresource"] for m in ours] == ["status"]


async def test_permanent_failure_is_stalled(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = kubectl.apply_job("job")
    await until_state(backend, uid, kubectl.namespace)
    await run_one(backend, kubectl.namespace, Event.EXHAUST)
    kubectl.wait("condition=Failed", f"{JOBS}/job")
    body = kubectl.get(JOBS, "job")
    assert conditions(body) == {"Accepted": "True", "Failed": "True", "Stalled": "True"}
    assert body["status"]["reason"] == "NoSuchUser"
    assert body["status"]["message"] == "no such user"


async def test_a_waiting_job_shows_that_it_was_accepted_and_a_long_one_that_it_runs(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = kubectl.apply_job("job", delay=0)
    kubectl.wait("condition=Accepted", f"{JOBS}/job")
    assert kubectl.get(JOBS, "job")["status"]["state"] == JobState.INITIAL_PENDING
    running = await claim(backend, kubectl.namespace)
    kubectl.wait(f"jsonpath={{.status.state}}={JobState.RUNNING}", f"{JOBS}/job")
    await settle(backend, running)
    kubectl.wait("condition=Complete", f"{JOBS}/job")
    assert running[0].job_id == uid
    assert controller.stats.figures.status_written == 3


async def test_how_far_a_job_has_come_is_in_its_status_while_it_runs(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = kubectl.apply_job("job")
    await until_state(backend, uid, kubectl.namespace)
    running = await claim(backend, kubectl.namespace)
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    told = ProgressReport(
        job_id=uid,
        namespace=kubectl.namespace,
        token=running[0].token,
        progress=Progress(40, "half of it, nearly", at),
    )
    await backend.record_progress([told])
    kubectl.wait("jsonpath={.status.progress.percent}=40", f"{JOBS}/job")
    assert kubectl.get(JOBS, "job")["status"]["progress"] == {
        "percent": 40,
        "message": "half of it, nearly",
        "updatedAt": "2026-01-02T03:04:05Z",
    }
    await settle(backend, running)
    kubectl.wait("condition=Complete", f"{JOBS}/job")
    assert "progress" not in kubectl.get(JOBS, "job")["status"]


async def test_over_its_quota_it_waits_and_is_taken_in_once_there_is_room(
    factory: BackendFactory, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    quotas = QuotaSettings(namespaces={kubectl.namespace: Quota(pending_jobs=1)})
    served = (kubectl.namespace,)
    with RunningController(factory, kubectl.kubeconfig, served, quotas=quotas) as controller:
        first = kubectl.apply_job("first")
        await until_state(backend, first, kubectl.namespace)
        later, gone = kubectl.apply_job("later"), kubectl.apply_job("gone")
        for name in ("later", "gone"):
            kubectl.wait("condition=Accepted=False", f"{JOBS}/{name}")
        body = kubectl.get(JOBS, "later")
        assert conditions(body) == {"Accepted": "False"}
        assert body["status"]["reason"] == "QuotaExceeded"
        assert not body["status"]["finished"]
        kubectl("delete", JOBS, "gone")
        await run_one(backend, kubectl.namespace)
        await until_state(backend, later, kubectl.namespace)
        await run_one(backend, kubectl.namespace)
        kubectl.wait("condition=Complete", f"{JOBS}/later")
        assert conditions(kubectl.get(JOBS, "later")) == {"Accepted": "True", "Complete": "True"}
        assert controller.stats.taken_in == 2
    with pytest.raises(JobNotFound):
        await backend.get_job(gone, namespace=kubectl.namespace)


async def test_a_restart_finds_those_that_are_over_their_quota(
    factory: BackendFactory, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    quotas = QuotaSettings(namespaces={kubectl.namespace: Quota(pending_jobs=1)})
    served = (kubectl.namespace,)
    with RunningController(factory, kubectl.kubeconfig, served, quotas=quotas):
        first = kubectl.apply_job("first")
        await until_state(backend, first, kubectl.namespace)
        later = kubectl.apply_job("later")
        kubectl.wait("condition=Accepted=False", f"{JOBS}/later")
    with RunningController(factory, kubectl.kubeconfig, served, quotas=quotas):
        await run_one(backend, kubectl.namespace)
        kubectl.wait("condition=Complete", f"{JOBS}/first")
        await until_state(backend, later, kubectl.namespace)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"typ": "a"}, 'unknown field "spec.typ"'),
        ({"type": None}, "spec.type: Required value"),
        ({"type": ""}, "spec.type"),
        ({"priority": "URGENT"}, "spec.priority: Unsupported value"),
        ({"delay": "5 m"}, "spec.delay: Invalid value"),
        ({"delay": "P1M"}, "no fixed length"),
        ({"maxAttempts": 0}, "spec.maxAttempts"),
        ({"maxAttempts": 101}, "spec.maxAttempts"),
        ({"tags": {"a=b": "c"}}, "spec.tags"),
        ({"tags": {str(n): "" for n in range(33)}}, "spec.tags"),
        ({"delay": 1, "scheduledAt": "2026-01-01T00:00:00Z"}, "not both"),
        ({"payloadText": "1"}, "exactly one of spec.payload and spec.payloadText"),
        ({"payload": None}, "exactly one of spec.payload and spec.payloadText"),
        ({"backoff": {"strategy": "CUSTOM"}}, "spec.backoff"),
    ],
)
def test_the_api_server_refuses(kubectl: Kubectl, spec: dict[str, Any], expected: str) -> None:
    with pytest.raises(Refused, match=expected.replace(".", r"\.")):
        kubectl.apply(queue_job("job", **spec))


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "other"},
        {"payload": {"n": 2}},
        {"timeout": 5},
        {"maxAttempts": 2},
        {"tags": {"a": "b"}},
    ],
)
def test_a_spec_stays_as_it_was_created(kubectl: Kubectl, spec: dict[str, Any]) -> None:
    kubectl.apply(queue_job("job"))
    kubectl.apply(queue_job("job"))
    (field,) = spec
    with pytest.raises(Refused, match=f"spec.{field} cannot change after creation"):
        kubectl.apply(queue_job("job", **spec))


async def test_a_priority_may_change_while_the_job_waits(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    first, second = kubectl.apply_job("first"), kubectl.apply_job("second")
    for uid in (first, second):
        await until_state(backend, uid, kubectl.namespace)
    kubectl("patch", JOBS, "second", "--type=merge", "-p", '{"spec":{"priority":"HIGH"}}')
    kubectl.wait("jsonpath={.status.observedGeneration}=2", f"{JOBS}/second")

    async def moved() -> bool:
        job = await backend.get_job(second, namespace=kubectl.namespace)
        return job.priority is Priority.HIGH

    await until(backend, moved)
    [assignment] = await claim(backend, kubectl.namespace)
    assert assignment.job_id == second


async def test_suspend_may_change_in_both_directions(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = kubectl.apply_job("job", suspend=True)
    kubectl.wait("condition=Suspended", f"{JOBS}/job")
    assert await claim(backend, kubectl.namespace) == []
    for generation, suspend in ((2, "false"), (3, "true"), (4, "null")):
        patch = f'{{"spec":{{"suspend":{suspend}}}}}'
        kubectl("patch", JOBS, "job", "--type=merge", "-p", patch)
        kubectl.wait(f"jsonpath={{.status.observedGeneration}}={generation}", f"{JOBS}/job")
    kubectl.wait("condition=Suspended=False", f"{JOBS}/job")
    [assignment] = await claim(backend, kubectl.namespace)
    assert assignment.job_id == uid


def test_a_cancel_cannot_be_taken_back(kubectl: Kubectl) -> None:
    kubectl.apply(queue_job("job", cancel=True))
    with pytest.raises(Refused, match=r"spec\.cancel cannot be taken back"):
        kubectl.apply(queue_job("job", cancel=False))


def test_a_lower_transition_is_refused(kubectl: Kubectl) -> None:
    kubectl.apply(queue_job("job"))
    for transition in (5, 5, 6):
        _patch_status(kubectl, {"transition": transition})
    for status in ({"transition": 5}, {"transition": None}):
        with pytest.raises(Refused, match="must not go down"):
            _patch_status(kubectl, status)


def _patch_status(kubectl: Kubectl, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    kubectl("patch", JOBS, "job", "--subresource=status", "--type=merge", "-p", patch)


def test_before_the_operator_looks_nothing_is_accepted(kubectl: Kubectl) -> None:
    kubectl.apply(queue_job("job"))
    assert conditions(kubectl.get(JOBS, "job")) == {"Accepted": "Unknown"}


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({"timeout": "PT0S"}, "InvalidRequest", "spec.timeout"),
        ({"payload": None, "payloadText": "{"}, "InvalidRequest", "spec.payloadText"),
        ({"payload": "x" * (256 * 1024)}, "PayloadTooLarge", "spec.payload"),
    ],
)
async def test_what_only_the_operator_can_see_is_refused_by_status(
    controller: RunningController,
    backend: PostgresBackend,
    kubectl: Kubectl,
    spec: dict[str, Any],
    reason: str,
    field: str,
) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(queue_job("job", **spec)))
    kubectl.wait("condition=Stalled", f"{JOBS}/job")
    body = kubectl.get(JOBS, "job")
    assert conditions(body) == {"Accepted": "False", "Stalled": "True"}
    assert body["status"]["reason"] == reason
    assert field in body["status"]["message"]
    assert body["status"]["finished"] is True
    assert (await backend.get_job_stats((), namespace=kubectl.namespace)).total_jobs == 0


async def test_cancel_before_it_ran(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = kubectl.apply_job("job")
    kubectl("patch", JOBS, "job", "--type=merge", "-p", '{"spec":{"cancel":true}}')
    kubectl.wait("condition=Cancelled", f"{JOBS}/job")
    body = kubectl.get(JOBS, "job")
    assert body["status"]["state"] == JobState.UNSCHEDULED
    assert body["status"]["observedGeneration"] == body["metadata"]["generation"] == 2
    job = await backend.get_job(uid, namespace=kubectl.namespace)
    assert job.state is JobState.UNSCHEDULED


async def test_cancel_of_a_running_job_is_not_forced(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = kubectl.apply_job("job")
    await until_state(backend, uid, kubectl.namespace)
    await claim(backend, kubectl.namespace)
    kubectl("patch", JOBS, "job", "--type=merge", "-p", '{"spec":{"cancel":true}}')
    kubectl.wait(f"jsonpath={{.status.state}}={JobState.CANCELLING}", f"{JOBS}/job")
    (request,) = (await backend.pending_cancels(["session-1"])).requests
    assert (request.job_id, request.force) == (uid, False)


async def test_a_cancel_right_behind_the_creation_is_not_lost(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    names = [f"job-{n}" for n in range(20)]
    for name in names:
        kubectl.apply(queue_job(name))
        kubectl("patch", JOBS, name, "--type=merge", "-p", '{"spec":{"cancel":true}}')
    kubectl.wait("condition=Cancelled", *(f"{JOBS}/{name}" for name in names))


async def test_deleting_interrupts_a_running_job(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = kubectl.apply_job("job")
    await until_state(backend, uid, kubectl.namespace)
    await claim(backend, kubectl.namespace)
    kubectl("delete", JOBS, "job")
    await until_state(backend, uid, kubectl.namespace, JobState.CANCELLING)
    (request,) = (await backend.pending_cancels(["session-1"])).requests
    assert request.force is True


async def test_a_finalizer_of_somebody_else_does_not_delay_the_cancel(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = kubectl.apply_job("job")
    await until_state(backend, uid, kubectl.namespace)
    finalizers = '{"metadata":{"finalizers":["example.org/hold"]}}'
    kubectl("patch", JOBS, "job", "--type=merge", "-p", finalizers)
    kubectl("delete", JOBS, "job", "--wait=false")
    await until_state(backend, uid, kubectl.namespace, JobState.UNSCHEDULED)
    kubectl("patch", JOBS, "job", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')


async def test_the_same_name_again_is_another_job(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uids = []
    for _ in range(5):
        uids.append(kubectl.apply_job("job"))
        kubectl("delete", JOBS, "job")
    last = kubectl.apply_job("job")
    await until_state(backend, last, kubectl.namespace)

    async def older_ones_are_cancelled() -> bool:
        stats = await backend.get_job_stats((), namespace=kubectl.namespace)
        return stats.by_state[JobState.UNSCHEDULED] == stats.total_jobs - 1

    await until(backend, older_ones_are_cancelled)
    assert (await run_one(backend, kubectl.namespace)).job_id == last
    kubectl.wait("condition=Complete", f"{JOBS}/job")
    assert kubectl.get(JOBS, "job")["status"]["jobId"] == last
    assert last not in uids


async def test_a_finished_job_leaves_the_watch_and_does_not_come_back(
    backend: PostgresBackend, kubectl: Kubectl, factory: Any
) -> None:
    served = (kubectl.namespace,)
    with RunningController(factory, kubectl.kubeconfig, served) as first:
        uid = kubectl.apply_job("job")
        await until_state(backend, uid, kubectl.namespace)
        await run_one(backend, kubectl.namespace)
        kubectl.wait("condition=Complete", f"{JOBS}/job")
        assert first.stats.detached == 0
    other = kubectl.apply_job("other")
    with RunningController(factory, kubectl.kubeconfig, served) as second:
        await until_state(backend, other, kubectl.namespace)
        assert second.stats.events == 1
        assert second.stats.taken_in == 1
    selected = kubectl("get", JOBS, "--field-selector=status.finished!=true", "-o", "name")
    assert selected.split() == ["queuejob.queueoperator.dev/other"]
    job = await backend.get_job(uid, namespace=kubectl.namespace)
    assert job.state in TERMINAL
    assert job.attempt == 1
