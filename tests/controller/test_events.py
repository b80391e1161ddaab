"""`kubectl describe` tells what somebody would act on, and nothing of what goes as it should."""

import json

from tests.controller.jobs import claim, run_one, settle, until_state
from tests.controller.kubectl import JOBS, Kubectl
from tests.controller.running import RunningController

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.states import Event, JobState


async def test_failures_refusals_and_cancellations_are_events(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = kubectl.apply_job("works")
    await until_state(backend, uid, kubectl.namespace)
    await run_one(backend, kubectl.namespace)
    kubectl.wait("condition=Complete", f"{JOBS}/works")
    uid = kubectl.apply_job("fails")
    await until_state(backend, uid, kubectl.namespace)
    await run_one(backend, kubectl.namespace, Event.EXHAUST)
    uid = kubectl.apply_job("loses")
    await until_state(backend, uid, kubectl.namespace)
    await settle(backend, await claim(backend, kubectl.namespace), Event.LOSE)
    await until_state(backend, uid, kubectl.namespace, JobState.UNKNOWN_RETRY)
    kubectl.wait("jsonpath={.status.state}=UNKNOWN_RETRY", f"{JOBS}/loses")
    kubectl.apply_job("loses", cancel=True)
    kubectl.apply_job("refused", timeout="PT0S")

    told = {}
    for name, reason in (
        ("fails", "JobFailed"),
        ("loses", "WorkerLost"),
        ("loses", "JobCancelled"),
        ("refused", "JobRejected"),
    ):
        kind = f"involvedObject.name={name},reason={reason}"
        kubectl("wait", "--for=create", "--timeout=30s", "event", f"--field-selector={kind}")
        (found,) = json.loads(kubectl("get", "events", f"--field-selector={kind}", "-o", "json"))[
            "items"
        ]
        assert found["involvedObject"]["uid"] == kubectl.get(JOBS, name)["metadata"]["uid"]
        told[name, reason] = (found["type"], found["message"])
    assert told == {
        ("fails", "JobFailed"): ("Warning", "NoSuchUser at attempt 1 of 4: no such user"),
        ("loses", "WorkerLost"): (
            "Warning",
            "worker worker-1 was lost at attempt 1 of 4; the job is run again",
        ),
        ("loses", "JobCancelled"): ("Normal", "Stopped: no such user"),
        ("refused", "JobRejected"): (
            "Warning",
            "InvalidRequest: spec.timeout: must be more than 0 seconds",
        ),
    }
    events = json.loads(kubectl("get", "events", "-o", "json"))["items"]
    assert len(events) == len(told)
    assert "JobFailed" in kubectl("describe", JOBS, "fails")
